"""Names in a manifest: snake_case ids become dashes here and nowhere else; ids of a plan come from its digest."""


def dashed(name: str) -> str:
    """`gpu_operator` → `gpu-operator`."""
    return name.replace("_", "-")


def template(stage: str, task: str) -> str:
    """Template name of a task: `gpu-operator-apply`."""
    return dashed(f"{stage}-{task}")


def short(digest: str) -> str:
    """The first 12 hex digits of a digest: enough to tell plans apart, short enough for a name."""
    return digest.removeprefix("sha256:")[:12]
