"""Whether a recipe that is built without a spec was built and tested to the end already, which no published tree can tell."""

from pathlib import Path

from steps.clients.store import Store
from steps.contract import evidence, run
from steps.contract.image import keys, manifest
from steps.contract.image.recipe import Recipe
from steps.contract.verdict import Status
from workflows.engines.folders import Home
from workflows.plan.model import Plan
from workflows.stages import image_boot

_JUDGE = "judge"


def by_run(plan: Plan, recipe: Recipe) -> str:
    """The newest run of this machine that passed by exactly this plan; empty where there is none, or its image is not there whole.
    Large files are compared by size."""
    home = Home.of_environment()
    if not _is_whole(home.store / "images/assembled" / keys.image(recipe)):
        return ""
    store = Store(home.store)
    return next((name for name in reversed(home.runs()) if _is_of(store, name, plan) and _has_passed(store, name)), "")


def _is_whole(folder: Path) -> bool:
    try:
        made = manifest.decode((folder / manifest.MANIFEST).read_bytes())
        return all((folder / part.name).stat().st_size == part.size for part in made.parts)
    except (OSError, manifest.ManifestError):
        return False


def _is_of(store: Store, name: str, plan: Plan) -> bool:
    data = store.read(run.header_key(name))
    return data is not None and run.decode_header(data).plan == plan.digest


def _has_passed(store: Store, name: str) -> bool:
    """Whether its boots were judged to have passed: a stage begins where those before it have."""
    found = store.keys(f"runs/{name}/evidence/{image_boot.ID}/{_JUDGE}")
    data = store.read(found[-1]) if found else None
    verdict = evidence.decode(data).verdict if data is not None else None
    return verdict is not None and verdict.status is Status.PASS
