"""What a publication writes and keeps, as pure functions: boot scripts, the list of digests, versions' numbers, retention."""

import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from steps.contract import plain
from steps.contract.canonical import canonical, digest_bytes
from steps.contract.image import ipxe, published
from steps.contract.image import manifest as manifests
from steps.contract.image.manifest import Manifest, Part
from steps.contract.image.published import Group, Place, Switch, Tested
from steps.contract.image.testing import Outcome, Result

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_URL = re.compile(r"https?://[!-~]+")
_SUM = re.compile(r"([0-9a-f]{64}) [ *]([^\0\n]+)")


LEFT_STEP: Final = "change the recipe, or publish it again on purpose: bringup image build --again"
"""What a person does about a version that a rollback left, which is neither built nor published again by itself."""


class PublishingError(ValueError):
    """What shall be published has a form that a tree or a boot script cannot take; the message names it."""


def name_of(text: str, what: str) -> str:
    """The text, where it can be one part of a path and of a URL. Raises PublishingError."""
    if not _NAME.fullmatch(text):
        raise PublishingError(f"{text!r} cannot be the name of {what}: letters, digits, dots, dashes and underscores, at most 64")
    return text


def base(url: str) -> str:
    """The URL of a tree without a slash at its end. Raises PublishingError where it is none."""
    if not _URL.fullmatch(url) or any(sign in url for sign in "?#$ "):
        raise PublishingError(f"{url!r} is no URL of a tree: write http://HOST[:PORT]/PATH, as nodes reach it")
    return url.rstrip("/")


def version_script(place: Place, version: str, manifest: Manifest, group: Group) -> bytes:
    """What the nodes of a group boot: every path names the version, so that a switch of the pointer in the middle of a boot mixes
    nothing. Raises PublishingError."""
    folder = _folder(place.url, manifest.name, version)
    root, start = manifest.part(manifests.ROOT), start_url(place.url)
    entry = f"{base(place.url)}/{published.BOOT}/{group_name(group.name)}{published.SCRIPT}"
    loaded = ipxe.Loaded(
        title=f"{manifest.name} {version} for group {group_name(group.name)}",
        kernel=f"{folder}/{manifests.KERNEL}",
        initrd=f"{folder}/{manifests.INITRD}",
        root=f"{folder}/{manifests.ROOT}",
        image=root.digest if root else "",
        arguments=(*manifest.kernel_arguments, *group.kernel_arguments),
        report=place.report,
        machines=group.nodes,
        others=tuple(mac for other in place.groups if other.name != group.name for mac in other.nodes),
        start=start,
        entry=entry,
        again=start if group.nodes or group.name == published.DEFAULT else entry,  # nothing but its DHCP server leads to others
    )
    try:
        return ipxe.script(loaded).encode()
    except ipxe.ScriptError as error:
        raise PublishingError(f"group {group.name}: {error}") from error


def machine_script(place: Place, version: str, image: str, group: str) -> bytes:
    """What one machine boots: its group's script in the same version. Raises PublishingError."""
    place_of = f"{_folder(place.url, image, version)}/{published.BOOT}/{group_name(group)}{published.SCRIPT}"
    return ipxe.chain(place_of, start_url(place.url)).encode()


def entry_script(url: str, image: str, name: str) -> bytes:
    """What nodes of a group, or one machine, are told to load: leads to their script of whatever version the pointer names. Raises
    PublishingError."""
    below = f"{name_of(image, 'an image')}/{published.CURRENT}/{published.BOOT}/{name_of(name, 'a group')}{published.SCRIPT}"
    return ipxe.chain(f"{base(url)}/{below}", start_url(url) if published.is_machine(name) else "").encode()


def start_script(url: str, names: Collection[str]) -> bytes:
    """What every node may be told to load. `names` are those of the groups and machines of all images that have a script in
    ROOT/boot: these machines, and where there is group `default`, all others go on. Raises PublishingError."""
    folder = f"{base(url)}/{published.BOOT}"
    all_others = f"{folder}/{published.DEFAULT}{published.SCRIPT}" if published.DEFAULT in names else ""
    known = [published.mac_of(name) for name in names if published.is_machine(name)]
    return ipxe.first(f"{folder}/{published.MACHINE}", known, all_others, start_url(url)).encode()


def start_url(url: str) -> str:
    """Where that one lies. Raises PublishingError."""
    return f"{base(url)}/{published.START_SCRIPT}"


def group_name(text: str) -> str:
    """The name, where a group can have it. Raises PublishingError."""
    if text == published.START or published.is_machine(text):
        raise PublishingError(f"{text!r} cannot be the name of a group: bringup's own script in boot has it")
    return name_of(text, "a group")


def _folder(url: str, image: str, version: str) -> str:
    return f"{base(url)}/{name_of(image, 'an image')}/{published.VERSIONS}/{version}"


def tests_file(tested: Tested) -> bytes:
    """The bytes of `tests.json`."""
    return canonical(tested) + b"\n"


def outcomes(tested: Tested) -> dict[str, dict[str, Outcome]]:
    """How each test ended, by task and name. One that several machines of a task ran has passed where it did on all of them."""
    return {task: {one.name: one.outcome for one in sorted(found, key=_passed_first)} for task, found in tested.results.items()}


def _passed_first(result: Result) -> bool:
    return result.outcome is not Outcome.PASS


def sums(files: Mapping[str, bytes], parts: Iterable[Part]) -> bytes:
    """The bytes of SHA256SUMS: small files by their bytes, large ones by what the manifest says."""
    found = {name: digest_bytes(data) for name, data in files.items()} | {part.name: part.digest for part in parts}
    return "".join(f"{found[name].removeprefix('sha256:')}  {name}\n" for name in sorted(found)).encode()


def read_sums(data: bytes) -> dict[str, str]:
    """File → digest `sha256:…`. Raises PublishingError for a line that is none."""
    found: dict[str, str] = {}
    for number, line in enumerate(data.decode(errors="replace").splitlines(), start=1):
        match = _SUM.fullmatch(line)
        if not match:
            raise PublishingError(f"{published.SUMS} line {number} is no digest and name")
        found[match[2]] = f"sha256:{match[1]}"
    return found


def history_line(switch: Switch) -> bytes:
    """One line of `history.jsonl`."""
    return canonical(switch) + b"\n"


def read_history(data: bytes) -> tuple[tuple[Switch, ...], int]:
    """The switches, oldest first, and how many lines are none."""
    found, odd = [], 0
    for line in data.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=Switch))
        except msgspec.MsgspecError:
            odd += 1
    return tuple(found), odd


def next_number(versions: Iterable[str], history: Iterable[Switch]) -> int:
    """A number that no version has or had."""
    return max([0, *map(published.number_of, versions), *(published.number_of(one.to) for one in history)]) + 1


def previous(history: Sequence[Switch], current: str, there: Collection[str]) -> str:
    """The version that a rollback goes back to: of those still `there` the one that was current before, by whatever switch, where
    what a rollback left counts no more, nor what came after the version that it went to. Empty where there is none."""
    way: list[str] = []
    for one in history:
        if one.rollback and one.to in way:
            del way[way.index(one.to) + 1 :]
            continue
        gone = {one.to, one.before} if one.rollback else {one.to}
        way = [*(name for name in way if name not in gone), one.to]
    if current in way:
        del way[way.index(current) :]
    return next((name for name in reversed(way) if name in there), "")


def left_by_rollback(history: Sequence[Switch], versions: Collection[str]) -> Switch | None:
    """The rollback that left one of these versions, which are the same thing; None where one of them became current since, or what
    left them was a publication."""
    for one in reversed(history):
        if one.to in versions or one.before in versions:
            return one if one.rollback and one.to not in versions else None
    return None


def left_sentence(left: Switch) -> str:
    """What is said of a version that a rollback left, by whom and when."""
    who, when = left.by.removeprefix("rollback by "), time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(left.at))
    return f"{left.before} was left by a rollback (by {plain.line(who)}, {when})"


def kept(versions: Iterable[str], keep: int, protected: Iterable[str]) -> tuple[str, ...]:
    """The versions that stay: the newest `keep` of them and the protected ones (current, those before, those that nodes run)."""
    ordered = sorted(versions, key=lambda name: (published.number_of(name), name))
    newest = set(ordered[-keep:] if keep > 0 else ())
    held = newest | set(protected)
    return tuple(name for name in ordered if name in held or published.number_of(name) < 0)
