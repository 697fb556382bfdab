"""The preparation of a build of a node image: nothing is started if the image is there already, or cannot be made here."""

from dataclasses import dataclass, replace
from pathlib import Path

from steps.errors import StepError
from steps.nodeimage.contract import build_keys
from steps.nodeimage.contract.resolved_recipe import Recipe
from steps.nodeimage.publishing import publication_status
from workflows.app.images import image_pipeline, image_specs, published_trees, shipped_recipes, tested_builds
from workflows.app.images.published_trees import TreeLogin
from workflows.app.messages import UsageError
from workflows.app.run_options import LOCAL, Pipeline, StartOptions, Wish
from workflows.engines.run_secrets import SecretMissing
from workflows.nodeimage.image_plan import place
from workflows.nodeimage.image_spec import ImageSpec

PUBLISHED = "image_publish"
"""The last stage."""
TESTED = "image_boot"


@dataclass(frozen=True, kw_only=True)
class PreparedBuild:
    """A build that may be started: spec, recipe and pipeline. If `unchanged` has a text, nothing is built."""

    spec: str
    loaded: ImageSpec
    recipe: Recipe
    wish: Wish
    pipeline: Pipeline
    is_shipped: bool
    is_local: bool
    unchanged: str = ""
    """Sentence about the same image that is there already, such as `0003-… is published`; empty if there is something to build."""

    @property
    def publishes(self) -> bool:
        """Return True if the build ends with the image in a published tree."""
        return self.wish.until in ("", PUBLISHED)

    def unchanged_lines(self) -> list[str]:
        """Return why nothing is built, and where an image lies that is not published."""
        if not self.is_shipped:
            version = self.unchanged.removesuffix(" is published")
            return [f"nothing changed: {version} of {self.loaded.name} is published from this recipe, lock and settings"]
        sentence = f"nothing changed: {self.loaded.name} was built from this recipe and lock, and {self.unchanged}"
        return [sentence, *shipped_recipes.unpublished(self.recipe, self.wish.until, shipped=True)]

    def unpublished_lines(self) -> list[str]:
        """Return where the built image lies if it is not published and was built on this machine; otherwise nothing."""
        if self.publishes or not self.is_local:
            return []
        return shipped_recipes.unpublished(self.recipe, self.wish.until, shipped=self.is_shipped)


def prepare(spec: str, options: StartOptions, wish: Wish, login: TreeLogin) -> PreparedBuild:
    """Return a build of a spec or of a shipped recipe. Raises UsageError, SpecErrors, NoPlace, BadTask; nothing is written."""
    shipped_recipes.require_stage(wish.until)
    shipped, is_local = shipped_recipes.of_recipe(spec), options.engine == LOCAL
    if shipped is not None:
        spec, wish = str(shipped), replace(wish, until=_last_stage(spec, wish.until))
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
    )
    # on Argo the first stage asks the tree, which this machine may not reach
    if not wish.again and not wish.until and is_local and (version := _published(path, loaded, resolved.recipe, login)):
        return replace(build, unchanged=f"{version} is published")
    if shipped is not None and (run := _tested(path, build)):
        return replace(build, unchanged=f"passed its tests in run {run}")
    if publishes and is_local:
        image_specs.require_writable(loaded, resolved.recipe)
    if is_local:
        shipped_recipes.require_namespaces(wish.until)
    return build


def _last_stage(recipe: str, until: str) -> str:
    """Return the last stage for a recipe without a spec: the end of its tests. Raises UsageError for a stage that needs a tree."""
    if until in (shipped_recipes.ASKED, PUBLISHED):
        raise UsageError(f"recipe {recipe} has no place to be published to: bringup init --image {recipe} writes a spec for it")
    return until or TESTED


def _published(path: Path, loaded: ImageSpec, recipe: Recipe, login: TreeLogin) -> str:
    """Return the version that is published from exactly this spec and recipe; empty if there is none.

    The result is empty too if the tree cannot be read from here: the run itself then reports why.
    """
    target, image_key = place(loaded), (recipe.name, build_keys.image(recipe), loaded.boot.firmware)
    if not target.host:
        return publication_status.current_version(target, *image_key)
    try:
        with published_trees.opened(str(path), "", login) as opened_tree:
            return publication_status.current_version_through(opened_tree.transport, target, *image_key)
    except (StepError, SecretMissing):
        return ""


def _tested(path: Path, build: PreparedBuild) -> str:
    """Return the run of this machine that built and booted exactly this image; empty if there is none or options ask for more."""
    wish = build.wish
    if wish.again or wish.reuse != "none" or wish.until != TESTED or not build.is_local:
        return ""
    return tested_builds.by_run(build.pipeline.plan(path, build.loaded, wish), build.recipe)
