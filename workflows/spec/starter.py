"""The commented files that `bringup init` writes. They are valid as written, so the first edit starts from a spec that works."""

from __future__ import annotations

from pathlib import Path

_IMAGE = "compute"
"""Name of the recipe in the example of an image spec."""
_BESIDE_MIB = 2048
"""Memory of a test machine in MiB for kernel, overlay and tests, beside the packed root that lies in memory."""
_STEP_MIB = 1024
_LARGE_MIB = 1024
"""Size of a packed root in MiB from which a test machine gets more time to fetch and read it."""


def starter() -> str:
    """Return the starter `cluster.yaml` with its comments."""
    return (Path(__file__).parent / "starter.yaml").read_text(encoding="utf-8")


def stack_starter() -> str:
    """Return the starter `stack.yaml` with its comments."""
    from workflows import examples

    return (Path(examples.__file__).parent / "stacks/stack.yaml").read_text(encoding="utf-8")


def factory_starter() -> str:
    """Return the starter `factory.yaml` with its comments."""
    from workflows import examples

    return (Path(examples.__file__).parent / "factories/factory.yaml").read_text(encoding="utf-8")


def image(recipe: str, *, own_lock: bool = True, packed_mib: int = 0) -> str:
    """Return an `image.yaml` for a shipped recipe, with its comments.

    Without `own_lock` the spec uses the lock of the recipe and the kernel that is locked there. `packed_mib` is the largest
    expected size of the packed root, for which test machines get enough memory.
    """
    from workflows import examples

    text = (Path(examples.__file__).parent / "images/image.yaml").read_text(encoding="utf-8")
    for key in ("name: ", "recipe: ", "lock: "):
        text = text.replace(f"\n{key}{_IMAGE}", f"\n{key}{recipe}", 1)
    for key in () if own_lock else ("lock: ", "variables: "):
        text = text.replace(f"\n{key}", f"\n# {key}", 1)
    if packed_mib > _LARGE_MIB:
        memory = -(-(packed_mib + _BESIDE_MIB) // _STEP_MIB) * _STEP_MIB
        text = text.replace("\n  memory_mib: 3072\n  timeout: 5m\n", f"\n  memory_mib: {memory}\n  timeout: 15m\n", 1)
    return text
