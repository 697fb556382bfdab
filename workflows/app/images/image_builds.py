"""Checks before a node image is built: no run starts if the image exists already, or if it cannot be built from here."""

from dataclasses import dataclass, replace
from pathlib import Path

from steps.clients.store import Store
from steps.contract import run_records
from steps.contract.runs import evidence
from steps.contract.verdict import Status
from steps.errors import StepError
from steps.nodeimage.containment import id_ranges
from steps.nodeimage.contract import build_keys, image_manifest
from steps.nodeimage.contract.boot_tests import Firmware
from steps.nodeimage.contract.resolved_recipe import Recipe
from steps.nodeimage.publishing import publication_status
from workflows.app.images import image_pipeline, image_specs, published_trees, shipped_recipes
from workflows.app.images.published_trees import TreeLogin
from workflows.app.run_options import LOCAL, Pipeline, StartOptions, UsageError, Wish
from workflows.engines.folders import StateFolder
from workflows.engines.run_secrets import SecretMissing
from workflows.nodeimage.image_spec import PUBLISHED, ImageSpec
from workflows.nodeimage.publish_targets import publish_target
from workflows.plan.model import Plan
from workflows.stages import image_boot


@dataclass(frozen=True, kw_only=True)
class PreparedBuild:
    """A checked build of a node image: its spec, resolved recipe, options and pipeline.

    If `unchanged` is not empty, no run is needed.
    """

    spec: str
    loaded: ImageSpec
    recipe: Recipe
    wish: Wish
    pipeline: Pipeline
    is_shipped: bool
    is_local: bool
    publishes: bool
    """True if the build ends by publishing the image."""
    unchanged: str = ""
    """Sentence about the equal image that exists already, such as `0003-… is published`; empty if a build is needed."""

    def unchanged_lines(self) -> list[str]:
        """Return lines for the user: why nothing is built, and the folder of the image if that is not published."""
        if not self.is_shipped:
            version = self.unchanged.removesuffix(" is published")
            return [f"nothing changed: {version} of {self.loaded.name} is published from this recipe, lock and settings"]
        sentence = f"nothing changed: {self.loaded.name} was built from this recipe and lock, and {self.unchanged}"
        return [sentence, *shipped_recipes.unpublished(self.recipe, self.wish.until, shipped=True)]

    def unpublished_lines(self) -> list[str]:
        """Return lines with the folder of the built image if it was built on this machine without being published, else none."""
        if self.publishes or not self.is_local:
            return []
        return shipped_recipes.unpublished(self.recipe, self.wish.until, shipped=self.is_shipped)


def prepare(spec: str, options: StartOptions, wish: Wish, login: TreeLogin) -> PreparedBuild:
    """Check a spec, or a shipped recipe given by name, and return its build. Raises UsageError, SpecErrors, NoPlace, BadTask.

    For a recipe a spec is written into BRINGUP_HOME (`shipped_recipes.of_recipe`); no run is started.
    """
    shipped_recipes.require_stage(wish.until)
    shipped, is_local = shipped_recipes.of_recipe(spec), options.engine == LOCAL
    if shipped is not None:
        if wish.until in (shipped_recipes.ASKED, PUBLISHED):
            raise UsageError(f"recipe {spec} has no place to be published to: bringup init --image {spec} writes a spec for it")
        spec, wish = str(shipped), replace(wish, until=wish.until or image_boot.ID)
    path, loaded = image_pipeline.IMAGE.read(spec)
    publishes = wish.until in ("", PUBLISHED)
    resolved = image_specs.check(path, loaded, image_specs.lacking(loaded, options.engine) if publishes else None)
    build = PreparedBuild(
        spec=spec,
        loaded=loaded,
        recipe=resolved.recipe,
        wish=wish,
        pipeline=image_pipeline.of_image(path, loaded, resolved),
        is_shipped=shipped is not None,
        is_local=is_local,
        publishes=publishes,
    )
    # on Argo the first stage asks the tree, which this machine may not reach
    if not wish.again and not wish.until and is_local and (version := _published(path, loaded, resolved.recipe, login)):
        return replace(build, unchanged=f"{version} is published")
    if shipped is not None and (name := _tested(path, build)):
        return replace(build, unchanged=f"passed its tests in run {name}")
    if publishes and is_local:
        image_specs.require_writable(loaded, resolved.recipe)
    if is_local and wish.until not in (shipped_recipes.ASKED, shipped_recipes.LOCKED):
        id_ranges.choose()  # refuse a user who cannot build in a mount namespace before packages are fetched
    if is_local and wish.until in ("", image_boot.ID, PUBLISHED):
        from steps.nodeimage.netboot import qemu_machine  # not needed to find out that nothing has changed

        qemu_machine.require(Firmware(name) for name in loaded.boot.firmware)  # its boots come after minutes of building
    return build


def _published(path: Path, loaded: ImageSpec, recipe: Recipe, login: TreeLogin) -> str:
    """Return the current published version if it was built from exactly this spec and recipe, else an empty text.

    If the tree cannot be read from here, the result is empty too, and the run itself reports why.
    """
    target, image_key = publish_target(loaded), (recipe.name, build_keys.image(recipe), loaded.boot.firmware)
    if not target.host:
        return publication_status.current_version(target, *image_key)
    try:
        with published_trees.opened(str(path), "", login) as opened_tree:
            return publication_status.current_version_through(opened_tree.transport, target, *image_key)
    except (StepError, SecretMissing):
        return ""


def _tested(path: Path, build: PreparedBuild) -> str:
    """Return the newest run on this machine that passed its boots with exactly this plan, or an empty text.

    The result is empty too if a file of the image is missing or has another size (contents are not read), or if the options ask for
    more than tested boots.
    """
    wish, home = build.wish, StateFolder.of_environment()
    if wish.again or wish.reuse != "none" or wish.until != image_boot.ID or not build.is_local:
        return ""
    plan = build.pipeline.plan(path, build.loaded, wish)
    if not _is_whole(home.store / "images/assembled" / build_keys.image(build.recipe)):
        return ""
    store = Store(home.store)
    return next((name for name in reversed(home.runs()) if _has_passed(store, name, plan)), "")


def _is_whole(folder: Path) -> bool:
    try:
        manifest = image_manifest.decode((folder / image_manifest.MANIFEST).read_bytes())
        return all((folder / part.name).stat().st_size == part.size for part in manifest.parts)
    except (OSError, image_manifest.ManifestError):
        return False


def _has_passed(store: Store, name: str, plan: Plan) -> bool:
    """Return True if run `name` had this plan and passed its boot tests, a stage that begins only after all others have passed."""
    header = store.read(run_records.header_key(name))
    if header is None or run_records.decode_header(header).plan != plan.digest:
        return False
    keys = store.keys(f"runs/{name}/evidence/{image_boot.ID}/judge")
    data = store.read(keys[-1]) if keys else None
    verdict = evidence.decode(data).verdict if data is not None else None
    return verdict is not None and verdict.status is Status.PASS
