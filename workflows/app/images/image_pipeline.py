"""The pipeline of node images: load the spec, resolve the recipe, plan the run, and tell if a retry may mend a failed build."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from steps.clients.store import Store
from steps.contract import evidence
from steps.contract.exit import ExitCode
from steps.contract.verdict import Status
from workflows.app.images import image_specs, recipe_origins, shipped_recipes
from workflows.app.run_options import Pipeline, Wish
from workflows.app.specs import sources
from workflows.engines.folders import StateFolder
from workflows.nodeimage import recipe_resolution
from workflows.nodeimage.image_plan import compile_image
from workflows.nodeimage.image_spec import ImageSpec
from workflows.nodeimage.recipe_resolution import Resolved
from workflows.plan.model import Plan


def _read(spec: str) -> tuple[Path, ImageSpec]:
    path = sources.find_image(spec)
    return path, image_specs.load(path)


def _plan(path: Path, loaded: ImageSpec, wish: Wish, *, resolved: Resolved | None = None) -> Plan:
    request = image_specs.asked(path, loaded)
    resolved = resolved or recipe_resolution.resolve(request)
    origin = recipe_origins.of(path, request, wish.source)
    recipe = msgspec.structs.replace(resolved.recipe, origin=origin)
    relock = shipped_recipes.relock(path, loaded)
    return compile_image(loaded, recipe, resolved.files, until=wish.until, again=wish.again, relock=relock)


def _ended(run: str, code: int) -> int:
    """Return exit code 75 for a failed build that a retry may mend, as a failed build leaves nothing half changed; else `code`."""
    return ExitCode.TEMPORARY if code == ExitCode.GATE_FAILED and may_pass(run) else code


IMAGE = Pipeline("image", _read, _plan, _ended)


def of_image(path: Path, loaded: ImageSpec, resolved: Resolved) -> Pipeline:
    """Return the image pipeline for a spec and recipe that are loaded already, so that it does not read their files again."""
    return replace(IMAGE, read=lambda _: (path, loaded), plan=partial(_plan, resolved=resolved))


def may_pass(run: str) -> bool:
    """Return True if a retry may mend a failed run: each task that failed last ended with a temporary error, not with a verdict."""
    store = Store(StateFolder.of_environment().store)
    latest = {key.rpartition("/")[0]: key for key in store.keys(f"runs/{run}/evidence")}
    records = [evidence.decode(data) for key in latest.values() if (data := store.read(key)) is not None]
    ends = [(record.error, record.verdict.status) for record in records if record.task != "judge" and record.verdict]
    failures = [(error, status) for error, status in ends if status not in (Status.PASS, Status.SKIPPED)]
    return bool(failures) and all(error and status is Status.INCONCLUSIVE for error, status in failures)
