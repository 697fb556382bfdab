"""Built-in checks of an image's root file system, judged from a listing of its files. Pure: equal listings give equal words."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from steps.nodeimage.contract import debian
from steps.nodeimage.contract.image_tests import BuiltinCheck
from steps.nodeimage.contract.root_listing import FOLDER, LINK, REGULAR, RootListing, plain_path

MODULE_LISTS: Final = ("modules.dep", "modules.builtin")
MODULES: Final = "usr/lib/modules"
MACHINE_ID: Final = "etc/machine-id"
TEXTS: Final = (debian.STATUS, MACHINE_ID)
"""Paths in a root of the files whose text the checks read, besides MODULE_LISTS below MODULES."""
MOST_TOLD: Final = 4

_UNITS: Final = ("etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")
_EMPTY_IDENTITY: Final = ("", "uninitialized")
_IDENTITY: Final = (
    ("/etc/ssh/ssh_host_*", "SSH host key"),
    ("/var/lib/systemd/random-seed", "random seed"),
    ("/var/lib/systemd/credential.secret", "credential secret"),
    ("/var/lib/NetworkManager/secret_key", "secret key of NetworkManager"),
    ("/var/lib/dhcp/*.leases", "DHCP lease"),
    ("/var/lib/NetworkManager/*.lease", "DHCP lease"),
)
_WORLD_WRITABLE, _STICKY, _SET_ID = 0o002, 0o1000, 0o6000
_SEPARATOR: Final = "!"
MIB: Final = 1 << 20


class UnknownCheck(ValueError):
    """Error: this version has no such built-in check, or the check takes other arguments; the message says which it knows."""


def judge(check: str, arguments: Sequence[str], root: RootListing) -> tuple[str, ...]:
    """Return the problems that a built-in check finds in a root, one clause each; empty if it passes. Raises UnknownCheck."""
    try:
        function = _CHECKS[BuiltinCheck(check)]
    except ValueError as error:
        raise UnknownCheck(f"there is no check {check!r}; this version has {', '.join(BuiltinCheck)}") from error
    return tuple(function(arguments, root))


def summarise_problems(problems: Sequence[str]) -> str:
    """Return the first MOST_TOLD problems in one line, with the number of further ones."""
    more = f"; and {len(problems) - MOST_TOLD} more" if len(problems) > MOST_TOLD else ""
    return "; ".join(problems[:MOST_TOLD]) + more


def _services_enabled(units: Sequence[str], root: RootListing) -> Iterable[str]:
    for unit in units:
        if root.link_of(f"/etc/systemd/system/{unit}") == "/dev/null":
            yield f"{unit} is masked"
        elif not any(root.expand(f"/{place}/{kind}/{unit}") for place in _UNITS for kind in ("*.wants", "*.requires")):
            yield f"{unit} is not enabled: no .wants or .requires folder has a link to it"
        elif not any(root.resolve(f"/{place}/{name}") for place in _UNITS for name in (unit, _template(unit))):
            yield f"{unit} is enabled, but there is no such unit file"


def _template(unit: str) -> str:
    head, at, tail = unit.partition("@")
    return f"{head}@.{tail.rpartition('.')[2]}" if at else unit


def _paths_present(patterns: Sequence[str], root: RootListing) -> Iterable[str]:
    for pattern in patterns:
        paths = root.expand(pattern)
        if not paths:
            yield f"{pattern} is missing"
        elif not any(root.resolve(path) for path in paths):
            yield f"{pattern} is a link to {root.link_of(paths[0])}, which is missing"


def _paths_absent(patterns: Sequence[str], root: RootListing) -> Iterable[str]:
    return (f"{path} is there" for pattern in patterns for path in root.expand(pattern))


def _packages_present(names: Sequence[str], root: RootListing) -> Iterable[str]:
    states = _states(root)
    for name in names:
        state = states.get(name)
        if state is None:
            yield f"package {name} is not installed"
        elif not debian.is_whole(state):
            yield f"package {name} is not installed completely ({state})"


def _packages_absent(names: Sequence[str], root: RootListing) -> Iterable[str]:
    states = _states(root)
    return (f"package {name} is there ({states[name]})" for name in names if name in states)


def _states(root: RootListing) -> dict[str, str]:
    return debian.states(root.texts.get(debian.STATUS, ""))


def _links_resolve(arguments: Sequence[str], root: RootListing) -> Iterable[str]:
    folders, tolerated = _split(arguments)
    exempt = {plain_path(path) for pattern in tolerated for path in root.expand(pattern)}
    for path, entry in root.below(folders or ("/",)):
        if entry.kind == LINK and path not in exempt and not root.resolve(f"/{path}"):
            yield f"/{path} is a link to {entry.link}, which is missing"


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the folders and the tolerated paths in a check's arguments. A tolerated path follows `!` or begins with it."""
    cut = arguments.index(_SEPARATOR) if _SEPARATOR in arguments else len(arguments)
    folders = [word for word in arguments[:cut] if not word.startswith(_SEPARATOR)]
    marked = [word.removeprefix(_SEPARATOR) for word in arguments[:cut] if word.startswith(_SEPARATOR)]
    return folders, [*marked, *arguments[cut + 1 :]]


def _not_world_writable(folders: Sequence[str], root: RootListing) -> Iterable[str]:
    for path, entry in root.below(folders or ("/",)):
        loose = entry.kind == REGULAR or (entry.kind == FOLDER and not entry.mode & _STICKY)
        if loose and entry.mode & _WORLD_WRITABLE:
            yield f"/{path} is writable by everybody (mode {entry.mode:04o})"


def _no_host_identity(_: Sequence[str], root: RootListing) -> Iterable[str]:
    if root.texts.get(MACHINE_ID, "").strip() not in _EMPTY_IDENTITY:
        yield f"/{MACHINE_ID} has the id of one machine"
    other = root.entries.get("var/lib/dbus/machine-id")
    if other is not None and other.kind == REGULAR and other.size:
        yield "/var/lib/dbus/machine-id has the id of one machine"
    for pattern, what in _IDENTITY:
        for path in root.expand(pattern):
            yield f"{path} is left behind ({what})"


def _size_budget(arguments: Sequence[str], root: RootListing) -> Iterable[str]:
    if len(arguments) != 1 or not arguments[0].isdigit():
        raise UnknownCheck(f"check size_budget takes one number of MiB, not {list(arguments)}")
    size, most = root.size / MIB, int(arguments[0])
    if size > most:
        yield f"the root has {size:.1f} MiB, {size - most:.1f} more than its budget of {most}"


def _modules_present(names: Sequence[str], root: RootListing) -> Iterable[str]:
    listed = {module_name(line) for path, text in root.texts.items() if path.endswith(MODULE_LISTS) for line in text.splitlines()}
    return (f"the kernel has no module {name}" for name in names if module_name(name) not in listed)


def module_name(line: str) -> str:
    """Return the kernel module's name in a line such as `kernel/drivers/net/e1000e.ko.xz: …`; `-` becomes `_`, its equal."""
    return line.partition(":")[0].rpartition("/")[2].partition(".ko")[0].replace("-", "_")


def _setuid(patterns: Sequence[str], root: RootListing) -> Iterable[str]:
    allowed = {path for pattern in patterns for match in root.expand(pattern) if (path := root.resolve(match))}
    for path, entry in root.below(("/",)):
        if entry.kind == REGULAR and entry.mode & _SET_ID and path not in allowed:
            yield f"/{path} is setuid or setgid (mode {entry.mode:04o}) and is not among the allowed ones"
    named = {path for pattern in patterns if "*" not in pattern and (path := root.resolve(pattern))}
    for path in sorted(named):
        entry = root.entries[path]
        if entry.kind == REGULAR and not entry.mode & _SET_ID:
            yield f"/{path} has lost its setuid bit (mode {entry.mode:04o})"


_CHECKS: dict[BuiltinCheck, Callable[[Sequence[str], RootListing], Iterable[str]]] = {
    BuiltinCheck.SERVICES_ENABLED: _services_enabled,
    BuiltinCheck.PATHS_PRESENT: _paths_present,
    BuiltinCheck.PATHS_ABSENT: _paths_absent,
    BuiltinCheck.PACKAGES_PRESENT: _packages_present,
    BuiltinCheck.PACKAGES_ABSENT: _packages_absent,
    BuiltinCheck.LINKS_RESOLVE: _links_resolve,
    BuiltinCheck.NOT_WORLD_WRITABLE: _not_world_writable,
    BuiltinCheck.NO_HOST_IDENTITY: _no_host_identity,
    BuiltinCheck.SIZE_BUDGET: _size_budget,
    BuiltinCheck.MODULES_PRESENT: _modules_present,
    BuiltinCheck.SETUID: _setuid,
}
