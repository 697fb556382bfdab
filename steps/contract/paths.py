"""The five folders that a step may read or write, and the environment variables that name them."""

ROOT = "/bringup"
FOLDERS = ("tasks", "fleet", "secrets", "store", "out")
"""Folders below ROOT in every manifest. An engine may use other folders and says so in the environment."""


def variable(folder: str) -> str:
    """Return the environment variable of a folder: `BRINGUP_TASKS` … `BRINGUP_OUT`."""
    return f"BRINGUP_{folder.upper()}"


ENVIRONMENT = {variable(folder): f"{ROOT}/{folder}" for folder in FOLDERS}
"""Environment of every rendered container."""

RUN = "BRINGUP_RUN"
"""Environment variable with the run's name (`{{workflow.name}}` in the manifest)."""

ENGINE = "BRINGUP_ENGINE"
"""Environment variable with the engine's name: `local` or `argo`; absent means `argo`."""

REUSE = "BRINGUP_REUSE"
"""Environment variable with the run whose evidence may be reused (`{{workflow.parameters.reuse}}`), or `none`."""

NAMESPACE = "BRINGUP_NAMESPACE"
"""Environment variable of `announce` with the namespace of a run on Argo (`{{workflow.namespace}}`); without meaning elsewhere."""

SOURCE = "BRINGUP_SOURCE"
"""Environment variable of `open` with `revision.token` (`{{workflow.parameters.source}}`), or `none`."""
