"""Packages, by small adapters for the package managers; what keeps one from working is said once, not for each package."""

from __future__ import annotations

import os
import re
from typing import Dict, Optional

from ansible.module_utils import waiting
from ansible.module_utils.nodeprofile.item import CHANGED, DIFFERS, FAILED, OK, CannotChange, Item, Node, Unavailable, item
from ansible.module_utils.nodeprofile.package_words import LOCKED, PARTLY, REPOSITORY, SKIPPED, UNKNOWN, Away, Broken, judged

QUERY_RPM = ["rpm", "--query", "--queryformat", "%{NAME}\\tinstalled\\t%{VERSION}-%{RELEASE}\\n"]
LOCK_SECONDS = 120
"""How long a lock of another package manager is waited for, where the profile says nothing else."""
AT_ONCE = "--setopt=exit_on_lock=True"
"""Without it dnf waits for a lock for ever; we try again instead, as we do where apt and zypper have no patience of their own."""
EITHER = " or "
"""Stands between packages of which any will do; where all lack, the first that there is is installed."""

Adapter = Dict[str, list]

ADAPTERS = {
    "apt": {
        "query": ["dpkg-query", "--show", "--showformat=${Package}\\t${Status}\\t${Version}\\n"],
        "refresh": ["apt-get", "-o", "DPkg::Lock::Timeout=@", "-o", "APT::Update::Error-Mode=any", "update"],
        "install": ["apt-get", "-o", "DPkg::Lock::Timeout=@", "install", "--yes", "--no-install-recommends"],
        "repair": ["dpkg", "--configure", "--pending", "--force-confold"],
        "rebooting": [],
        "of_kernel": [],
        "without": [],
    },
    "dnf": {
        "query": QUERY_RPM,
        "refresh": [],
        "install": ["dnf", "--assumeyes", AT_ONCE, "--setopt=install_weak_deps=False", "install"],
        "repair": [],
        "rebooting": ["dnf", AT_ONCE, "needs-restarting", "-r"],
        "of_kernel": ["kernel-modules-extra"],
        "without": ["--disablerepo="],
    },
    "zypper": {
        "query": QUERY_RPM,
        "refresh": ["zypper", "--non-interactive", "refresh"],
        "install": ["zypper", "--non-interactive", "install", "--no-recommends"],
        "repair": [],
        "rebooting": [],
        "of_kernel": [],
        "without": [],
    },
}
"""Manager → its commands: query prints name, status and version between tabs, repair ends what an earlier run left half done,
rebooting says whether what was installed waits for a reboot. @ stands for the seconds that a lock is waited for. `of_kernel` are
packages of which each kernel has its own; `without` begins the word that leaves a repository out, which dnf asks for: it refreshes
as it installs, and does neither where one is away."""

FLAGS = ("/run/reboot-required", "/run/reboot-needed")
"""What packages of Debian and Ubuntu leave where they wait for a reboot, and those of SUSE."""
OWED = "Reboot is required"
"""What dnf says then, beside ending with 1: it also does that where it has no such command, and cannot tell."""

ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}

INTERRUPTED = re.compile(r"dpkg was interrupted|not fully installed or removed")


def packages(node: Node, wanted: list, manager: str, lock_seconds: float, pause: float = waiting.FIRST) -> list:
    """Packages that must be there; all that lack are installed at once, and one by one where the fault is a package's own. `pause`
    is the first one between two looks at a lock."""
    if not wanted:
        return []
    if manager not in ADAPTERS:
        return [item("package manager", FAILED, want="one that we know", why="none is known for this distribution")]
    seconds = str(lock_seconds or LOCK_SECONDS)
    adapter = {name: [word.replace("@", seconds) for word in words] for name, words in ADAPTERS[manager].items()}
    adapter.update(seconds=[seconds], pause=[pause])
    before = _versions(node, wanted, adapter)
    choices = [_choices(name, adapter) for name in wanted if name not in before]
    if not choices or node.check_mode:
        return [_item(node, name, before.get(name, ""), "", "") for name in wanted]
    try:
        errors, missed = _installed(node, choices, adapter)
        after = _versions(node, wanted, adapter)
        # one that is away is no fault where others had something; where nothing came, each package would say the same of it
        if isinstance(missed, Broken) and not set(after) - set(before):
            raise missed
    except Broken as reason:
        there = [_item(node, name, before[name], "", "") for name in wanted if name in before]
        lacking = ", ".join(first for first, *_ in choices)
        return [*there, item("package manager", FAILED, want="installs " + lacking, why=str(reason))]
    words = " ".join(str(missed or "").split())
    why = {name: words if name in after else errors.get(_choices(name, adapter)[0], "") for name in wanted}
    return [_item(node, name, before.get(name, ""), after.get(name, ""), why[name]) for name in wanted]


def asks_for_reboot(node: Node, manager: str, root: str = "", pause: float = waiting.FIRST) -> bool:
    """Whether something that was installed works only after a reboot. Raises Unavailable where the package manager cannot tell."""
    if any(os.path.exists(root + flag) for flag in FLAGS):
        return True
    command = ADAPTERS[manager]["rebooting"] if manager in ADAPTERS else []
    if not command:
        return False
    code, said, error = 0, "", ""
    for _ in waiting.rounds(LOCK_SECONDS, pause):
        code, said, error = node.run(*command)
        if not LOCKED.search(error):
            break
    if code != 0 and OWED not in said:
        raise Unavailable("`%s` does not say it: install dnf-plugins-core, and try it by hand" % " ".join(command))
    return OWED in said


def _choices(name: str, adapter: Adapter) -> list:
    """What may be installed for a name, the best first. Modules are those of the kernel that runs: without a version dnf takes the
    newest, brings their kernel too, and the machine would have to boot into one that nobody asked for."""
    names = name.split(EITHER)
    return [*("%s-%s" % (one, os.uname().release) for one in names if one in adapter["of_kernel"]), *names]


def _item(node: Node, name: str, before: str, after: str, error: str) -> Item:
    label = "package " + name
    if before:
        return item(label, OK, want="present", after=before)
    if node.check_mode:
        return item(label, DIFFERS, want="present", before="absent", after="absent")
    if after:
        return item(label, CHANGED, want="present", before="absent", after=after, why=error)
    return item(label, FAILED, want="present", before="absent", after="absent", why=error or "installed, but not listed")


def _versions(node: Node, names: list, adapter: Adapter) -> dict:
    """Version of each package that is installed, or of the one that is there in its place."""
    each = {name: name.split(EITHER) for name in names}
    _, output, _ = node.run(*adapter["query"], *(one for ones in each.values() for one in ones))
    rows = [line.split("\t") for line in output.splitlines()]
    # dpkg also knows half-installed, and says `install reinstreq half-installed` of what was killed while it was unpacked
    found = {row[0]: row[2] for row in rows if len(row) == 3 and row[1].split()[-1:] == ["installed"]}
    return {name: found[one] for name, ones in each.items() for one in reversed(ones) if one in found}


def _installed(node: Node, choices: list, adapter: Adapter) -> tuple:
    """Install, after a refresh: the error of each package that could not be, and what a repository said that does not serve."""
    try:
        if not adapter["refresh"]:
            return _all(node, choices, adapter), None
        _tool(node, adapter, adapter["refresh"])
    except (Away, CannotChange) as missed:
        try:
            errors = _anyway(node, choices, adapter, missed)
        except Away:
            raise
        except Broken as reason:
            # apt finds packages broken also where what they need is in the repository that is away
            raise Broken("%s; and before, %s" % (reason, missed)) from reason
        return {name: "%s; and before, %s" % (text, missed) for name, text in errors.items()}, missed
    return _all(node, choices, adapter), None


def _anyway(node: Node, choices: list, adapter: Adapter, missed: Exception) -> dict:
    """Install what the other repositories have. Where they serve nothing either, the first reason stands."""
    problem, tool, *rest = missed, *adapter["install"]
    adapter = dict(adapter, away=[missed] if isinstance(missed, Away) else [])
    out: list = []
    while True:
        for word in adapter["without"]:
            named = [word + name for name in REPOSITORY.findall(getattr(problem, "said", ""))[-1:] if word + name not in out]
            if not named:
                raise missed
            out += named
        try:
            return _all(node, choices, dict(adapter, install=[tool, *out, *rest]))
        except Away as reason:
            if not out:
                raise (missed if isinstance(missed, Broken) else reason) from reason
            problem = reason


def _all(node: Node, choices: list, adapter: Adapter) -> dict:
    """Install of each the first that there is; the error of each of which there is none."""
    errors = _install(node, [first for first, *_ in choices], adapter)
    for first, *others in choices:
        if first in errors and any(not _install(node, [other], adapter) for other in others):
            del errors[first]
    return errors


def _install(node: Node, names: list, adapter: Adapter) -> dict:
    """Install; the error of each package that could not be. Raises Broken where none can."""
    try:
        _tool(node, adapter, adapter["install"] + names)
    except CannotChange as error:
        # zypper says so as it installs also where its refresh reached none; each package would wait for all repositories again
        if adapter.get("away") and UNKNOWN in str(error) and PARTLY in str(error):
            raise Away(str(error)) from error
        if len(names) == 1:
            return {names[0]: str(error)}
        return {name: text for one in names for name, text in _install(node, [one], adapter).items()}
    return {}


def _tool(node: Node, adapter: Adapter, command: list) -> None:
    """Run it; what an earlier run left half done is ended first where the tool asks for that."""
    try:
        _unlocked(node, adapter, command)
    except CannotChange as error:
        if not adapter["repair"] or not INTERRUPTED.search(str(error)):
            raise judged(error) from error
        _again(node, adapter, command)


def _unlocked(node: Node, adapter: Adapter, command: list) -> None:
    """Run it, and again while another package manager holds the lock, until time is up."""
    problem = None
    for _ in waiting.rounds(float(adapter["seconds"][0]), adapter["pause"][0]):
        problem = _problem(node, adapter, command)
        if problem is None or not LOCKED.search(str(problem)):
            break
    if problem is not None:
        raise problem


def _problem(node: Node, adapter: Adapter, command: list) -> Optional[CannotChange]:
    try:
        node.must(*command, **_environment(adapter))
    except CannotChange as error:
        return None if PARTLY in str(error) and SKIPPED in str(error) else error
    return None


def _again(node: Node, adapter: Adapter, command: list) -> None:
    try:
        node.must(*adapter["repair"], **_environment(adapter))
        node.must(*command, **_environment(adapter))
    except CannotChange as error:
        raise judged(error) from error


def _environment(adapter: Adapter) -> dict:
    """The proxies that the play was given, also in the small letters that apt reads."""
    proxies = {name.lower(): value for name, value in os.environ.items() if name.upper().endswith("_PROXY")}
    return dict(ENVIRONMENT, ZYPP_LOCK_TIMEOUT=adapter["seconds"][0], **proxies)
