"""The check if a recipe without a spec was already built and tested: there is no published tree that would tell."""

from pathlib import Path

from steps.clients.store import Store
from steps.contract import evidence, run
from steps.contract.verdict import Status
from steps.nodeimage.contract import build_keys, image_manifest
from steps.nodeimage.contract.resolved_recipe import Recipe
from workflows.engines.folders import StateFolder
from workflows.plan.model import Plan
from workflows.stages import image_boot

_JUDGE = "judge"


def by_run(plan: Plan, recipe: Recipe) -> str:
    """Return the newest run of this machine that passed with exactly this plan; empty if there is none or its image is incomplete.

    Large files are compared by size.
    """
    home = StateFolder.of_environment()
    if not _is_whole(home.store / "images/assembled" / build_keys.image(recipe)):
        return ""
    store = Store(home.store)
    return next((name for name in reversed(home.runs()) if _is_of(store, name, plan) and _has_passed(store, name)), "")


def _is_whole(folder: Path) -> bool:
    try:
        manifest = image_manifest.decode((folder / image_manifest.MANIFEST).read_bytes())
        return all((folder / part.name).stat().st_size == part.size for part in manifest.parts)
    except (OSError, image_manifest.ManifestError):
        return False


def _is_of(store: Store, name: str, plan: Plan) -> bool:
    data = store.read(run.header_key(name))
    return data is not None and run.decode_header(data).plan == plan.digest


def _has_passed(store: Store, name: str) -> bool:
    """Return True if the run's boots were judged to have passed; that stage begins only after all earlier ones have passed."""
    keys = store.keys(f"runs/{name}/evidence/{image_boot.ID}/{_JUDGE}")
    data = store.read(keys[-1]) if keys else None
    verdict = evidence.decode(data).verdict if data is not None else None
    return verdict is not None and verdict.status is Status.PASS
