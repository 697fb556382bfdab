"""Image specs as commands take them: a file, or the name of a shipped recipe; every error of spec and recipe in one round."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from steps.contract.exit import ExitCode
from workflows.cli.argo.options import LOCAL
from workflows.images.errors import BuildError

if TYPE_CHECKING:
    from steps.contract.image.recipe import Recipe
    from workflows.images.nodes.resolve import Asked, Resolved
    from workflows.spec import SpecError, SpecErrors
    from workflows.spec.image import ImageSpec

RECIPE, CLUSTER = "ImageRecipe", "Cluster"
"""Kinds of other files that are given where an image spec is wanted."""
_OTHERS = {
    RECIPE: ("this is a recipe, and no spec of an image", "name it as `recipe: {path}` in one; `bringup init --image` writes one"),
    CLUSTER: (
        "this is the spec of a cluster, and none of an image",
        "`bringup init --image` writes one; `bringup plan {path}` takes this",
    ),
}
_OF_SPEC = "spec: "
_OF_FILE = re.compile(r"[^\s:]+\.ya?ml(:\d+)?: ")


class NoPlace(ValueError):
    """There is nowhere to build or to publish to; better said now than after the boots. `path` is the key of the spec."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, *, path: str, hint: str) -> None:
        super().__init__(message)
        self.path = path
        self.hint = hint


def load(path: Path) -> "ImageSpec":
    """A spec. Raises SpecErrors: what is wrong with it, and with the recipe that it names; or that it is a file of another kind."""
    from workflows.spec import SpecErrors
    from workflows.spec.image import load_image

    try:
        return load_image(path)
    except SpecErrors as errors:
        refuse_others(path, RECIPE, CLUSTER)
        raise SpecErrors(errors.source, [*errors.errors, *_of_recipe(path)]) from None


def refuse_others(path: Path, *kinds: str) -> None:
    """Raise SpecErrors for a file that says to be of one of these kinds, or that cannot be read at all: one error, and not all that
    such a file lacks."""
    from workflows.spec import SpecError, SpecErrors
    from workflows.spec.loading import read
    from workflows.spec.problems import line_of

    name, document = read(path)
    found = document.data.get("kind") if isinstance(document.data, dict) else None
    if found in kinds:
        problem, fix = _OTHERS[found]
        raise SpecErrors(name, [SpecError("kind", problem, fix.format(path=path), found, line_of("kind", document))])


def asked(path: Path, spec: "ImageSpec") -> "Asked":
    """What a spec asks for; its hints name this very file."""
    from workflows.images.nodes import resolve

    return resolve.of_spec(spec, path.parent, f"bringup image lock {path}")


def check(path: Path, spec: "ImageSpec", lacking: NoPlace | None) -> "Resolved":
    """The resolved recipe of a spec. Raises what is wrong with the recipe and its lock, and `lacking`: all of it in one error where
    it is more than one thing."""
    from workflows.images.nodes import resolve
    from workflows.spec import SpecError, SpecErrors

    try:
        found = resolve.resolve(asked(path, spec))
    except SpecErrors as errors:
        if lacking is None:
            raise
        raise SpecErrors(path.name, [_as_error(lacking), *_as_of_spec(errors)]) from None
    except BuildError as error:
        if lacking is None:
            raise
        raise SpecErrors(path.name, [_as_error(lacking), SpecError("lock", str(error), error.hint)]) from None
    if lacking is not None:
        raise lacking
    return found


def require_writable(spec: "ImageSpec", recipe: "Recipe") -> None:
    """Raise NoPlace where this user may not write the tree of a spec on this machine; another machine's is asked by the run."""
    from steps.clients.published import local

    if spec.publish.ssh is None and (found := local.unwritable(Path(spec.publish.root), recipe.name)):
        said = f"this user may not write to publish.root {spec.publish.root} ({', '.join(found)})"
        raise NoPlace(said, path="publish.root", hint="give this user these folders, or build as the user that has them")


def lacking(spec: "ImageSpec", engine: str) -> NoPlace | None:
    """Why a run on that engine could not reach the tree of the spec, if so."""
    told = spec.publish
    if told.ssh is not None:
        return None
    if engine != LOCAL:
        return NoPlace(
            "publish.root is a folder of one machine, and pods have none of it",
            path="publish",
            hint="add publish.ssh, the boot server",
        )
    if not Path(told.root).is_dir():
        said = f"publish.root {told.root} is no folder of this machine"
        return NoPlace(said, path="publish.root", hint="make it, or mount what it should be")
    return None


def _as_error(lacking: NoPlace) -> "SpecError":
    from workflows.spec import SpecError

    return SpecError(lacking.path, str(lacking), lacking.hint)


def _of_recipe(path: Path) -> list["SpecError"]:
    """What is wrong with the recipe of a spec that is itself not sound; nothing where the spec does not say which that is."""
    from pydantic import TypeAdapter, ValidationError

    from workflows.images.nodes import chain
    from workflows.spec import SpecErrors
    from workflows.spec.loading import read
    from workflows.spec.others import RelativePath

    try:
        data = read(path)[1].data
        told = data if isinstance(data, dict) else {}
        recipe = TypeAdapter(RelativePath).validate_python(told.get("recipe"), strict=True)
        chain.read(recipe, path.parent, _texts(told.get("variables")), secrets=_names(told.get("secrets")))
    except SpecErrors as errors:
        return _as_of_spec(errors)
    except ValidationError:
        pass
    return []


def _as_of_spec(errors: "SpecErrors") -> list["SpecError"]:
    """Errors of a recipe among those of its spec: each says which file it is about."""
    from workflows.spec import SpecError

    return [SpecError(_place(one, errors.source), one.problem, one.fix, one.value) for one in errors.errors]


def _place(one: "SpecError", source: str) -> str:
    if one.path.startswith(_OF_SPEC):
        return one.path.removeprefix(_OF_SPEC)
    if _OF_FILE.match(one.path) or source == one.path:
        return one.path
    return f"{source}:{one.line}: {one.path}" if one.line else f"{source}: {one.path}"


def _texts(data: object) -> dict[str, str]:
    return {name: text for name, text in data.items() if isinstance(text, str)} if isinstance(data, dict) else {}


def _names(data: object) -> tuple[str, ...]:
    return tuple(data) if isinstance(data, dict) else ()
