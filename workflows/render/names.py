"""Names in manifests: snake_case ids get dashes here and nowhere else; names of a plan's objects come from its digest."""


def dashed(name: str) -> str:
    """Return the id with dashes in place of underscores: `gpu_operator` → `gpu-operator`."""
    return name.replace("_", "-")


def template(stage: str, task: str) -> str:
    """Return the name of a task's Argo template, such as `gpu-operator-apply`."""
    return dashed(f"{stage}-{task}")


GRAPH = "-graph"
"""End of the name of the DAG template that holds a whole graph of builds."""


def short(digest: str) -> str:
    """Return the first 12 hex digits of a digest: enough to tell plans apart, short enough for a name."""
    return digest.removeprefix("sha256:")[:12]
