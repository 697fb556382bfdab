"""Names in a manifest. Ids in snake_case get dashes here and nowhere else; a plan's names come from its digest."""


def dashed(name: str) -> str:
    """Return the name with dashes: `gpu_operator` → `gpu-operator`."""
    return name.replace("_", "-")


def template(stage: str, task: str) -> str:
    """Return the template name of a task: `gpu-operator-apply`."""
    return dashed(f"{stage}-{task}")


def short(digest: str) -> str:
    """Return the first 12 hex digits of a digest: enough to tell plans apart, short enough for a name."""
    return digest.removeprefix("sha256:")[:12]
