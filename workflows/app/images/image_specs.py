"""Load and check the image spec that a command names; errors of the spec and of its recipe are raised together."""

import re
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from steps.clients.releases import local_transport
from steps.contract.exit import ExitCode
from steps.nodeimage.contract.resolved_recipe import Recipe
from workflows.app.run_options import LOCAL
from workflows.app.specs import sources
from workflows.nodeimage import recipe_chain, recipe_resolution
from workflows.nodeimage.image_spec import ImageSpec, load_image
from workflows.nodeimage.recipe_resolution import RecipeRequest, Resolved
from workflows.podimage.errors import BuildError
from workflows.spec import SpecError, SpecErrors
from workflows.spec.parsing.loading import read
from workflows.spec.pipelines.pipeline_specs import RelativePath

CLUSTER = {
    "Cluster": (
        "this is the spec of a cluster, and none of an image",
        "`bringup init --image` writes one; `bringup plan {path}` takes this",
    )
}
_OTHERS = CLUSTER | {
    "ImageRecipe": (
        "this is a recipe, and no spec of an image",
        "name it as `recipe: {path}` in one; `bringup init --image` writes one",
    )
}
"""Kinds of files that are no image spec, each with the problem and the fix to print if it is given as one."""
_OF_SPEC = "spec: "
_OF_FILE = re.compile(r"[^\s:]+\.ya?ml(:\d+)?: ")


class NoPlace(ValueError):
    """Error for an image spec whose publish target the command cannot use, raised before a build.

    `path` is the spec key at fault.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, *, path: str, hint: str) -> None:
        super().__init__(message)
        self.path = path
        self.hint = hint


def load(path: Path) -> ImageSpec:
    """Return the image spec in a file.

    Raises SpecErrors: all errors of spec and recipe, or a single one for another kind of file.
    """
    try:
        return load_image(path)
    except SpecErrors as errors:
        sources.refuse_kinds(path, _OTHERS)
        raise SpecErrors(errors.source, [*errors.errors, *_of_recipe(path)]) from None


def asked(path: Path, spec: ImageSpec) -> RecipeRequest:
    """Return the request for the recipe that a spec names; hints in errors tell to lock this spec file."""
    return recipe_resolution.spec_request(spec, path.parent, f"bringup image lock {path}")


def check(path: Path, spec: ImageSpec, lacking: NoPlace | None) -> Resolved:
    """Return the resolved recipe of a spec.

    Raises errors of recipe and lock, together with `lacking`, the error about the target.
    """
    try:
        resolved = recipe_resolution.resolve(asked(path, spec))
    except (SpecErrors, BuildError) as error:
        if lacking is None:
            raise
        others = _as_of_spec(error) if isinstance(error, SpecErrors) else [SpecError("lock", str(error), error.hint)]
        raise SpecErrors(path.name, [SpecError(lacking.path, str(lacking), lacking.hint), *others]) from None
    if lacking is not None:
        raise lacking
    return resolved


def require_writable(spec: ImageSpec, recipe: Recipe) -> None:
    """Raise NoPlace if this user may not write the spec's publish folder on this machine; a run checks a remote folder itself."""
    if spec.publish.ssh is None and (folders := local_transport.unwritable(Path(spec.publish.root), recipe.name)):
        problem = f"this user may not write to publish.root {spec.publish.root} ({', '.join(folders)})"
        raise NoPlace(problem, path="publish.root", hint="give this user these folders, or build as the user that has them")


def lacking(spec: ImageSpec, engine: str) -> NoPlace | None:
    """Return the error if a run on `engine` could not reach the folder that the spec publishes to, else None."""
    publish = spec.publish
    if publish.ssh is not None:
        return None
    if engine != LOCAL:
        problem = "publish.root is a folder of one machine, and pods have none of it"
        return NoPlace(problem, path="publish", hint="add publish.ssh, the boot server")
    if not Path(publish.root).is_dir():
        problem = f"publish.root {publish.root} is no folder of this machine"
        return NoPlace(problem, path="publish.root", hint="make it, or mount what it should be")
    return None


def _of_recipe(path: Path) -> list[SpecError]:
    """Return the errors of the recipe that an invalid spec names; empty if the spec names no recipe in a valid way."""
    try:
        data = read(path)[1].data
        keys = data if isinstance(data, dict) else {}
        recipe = TypeAdapter(RelativePath).validate_python(keys.get("recipe"), strict=True)
        variables, secrets = keys.get("variables"), keys.get("secrets")
        texts = {name: text for name, text in variables.items() if isinstance(text, str)} if isinstance(variables, dict) else {}
        recipe_chain.read(recipe, path.parent, texts, secrets=tuple(secrets) if isinstance(secrets, dict) else ())
    except SpecErrors as errors:
        return _as_of_spec(errors)
    except ValidationError:
        pass
    return []


def _as_of_spec(errors: SpecErrors) -> list[SpecError]:
    """Return a recipe's errors in the form of errors of its spec: each path names recipe file and line, or is a key of the spec."""
    return [SpecError(_place(error, errors.source), error.problem, error.fix, error.value) for error in errors.errors]


def _place(error: SpecError, source: str) -> str:
    if error.path.startswith(_OF_SPEC):
        return error.path.removeprefix(_OF_SPEC)
    if _OF_FILE.match(error.path) or source == error.path:
        return error.path
    return f"{source}:{error.line}: {error.path}" if error.line else f"{source}: {error.path}"
