"""Packages and their repositories, through one adapter for each package manager. A fault of the manager is reported once."""

from __future__ import annotations

import glob
import os
import re
from typing import Dict

from ansible.module_utils import polling
from ansible.module_utils.nodeprofile import profile_files
from ansible.module_utils.nodeprofile.item import (
    CHANGED,
    DIFFERS,
    FAILED,
    OK,
    CannotChange,
    Item,
    NodeAccess,
    Unavailable,
    item,
    read_text,
)
from ansible.module_utils.nodeprofile.package_errors import (
    INSTALLED_WITH_SKIPS,
    LOCK_HELD,
    NOTHING_PROVIDES,
    REPOSITORY,
    SOME_REFRESHED,
    PackageManagerBroken,
    RepositoryAway,
    classify,
)

QUERY_RPM = ["rpm", "--query", "--queryformat", "%{NAME}\\tinstalled\\t%{VERSION}-%{RELEASE}\\n"]
LOCK_SECONDS = 120
"""Seconds to wait for another package manager's lock, unless the profile says otherwise."""
NO_LOCK_WAIT = "--setopt=exit_on_lock=True"
"""Option that makes dnf end if another process holds its lock, instead of waiting for ever. We retry the command."""
ALTERNATIVE = " or "
"""Separator in `a or b`: any of these packages will do. If all are missing, the first available one is installed."""

Adapter = Dict[str, list]

ADAPTERS = {
    "apt": {
        "query": ["dpkg-query", "--show", "--showformat=${Package}\\t${Status}\\t${Version}\\n"],
        # by default apt-get ends with 0 although a repository does not answer
        "refresh": ["apt-get", "-o", "DPkg::Lock::Timeout=@", "-o", "APT::Update::Error-Mode=any", "update"],
        "install": ["apt-get", "-o", "DPkg::Lock::Timeout=@", "install", "--yes", "--no-install-recommends"],
        "repair": ["dpkg", "--configure", "--pending", "--force-confold"],  # else it may ask about a changed configuration file
        "rebooting": [],
        "of_kernel": [],
        "without": [],
    },
    "dnf": {
        "query": QUERY_RPM,
        "refresh": [],
        "install": ["dnf", "--assumeyes", NO_LOCK_WAIT, "--setopt=install_weak_deps=False", "install"],
        "repair": [],
        "rebooting": ["dnf", NO_LOCK_WAIT, "needs-restarting", "-r"],
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
"""Package manager → its commands; @ stands for the seconds to wait for a lock.

`query` prints name, status and version separated by tabs. `repair` completes what an earlier run left half done. `rebooting` tells
whether a reboot is due. `of_kernel` are packages that exist per kernel. `without` begins the option that excludes a repository,
which dnf needs: it refreshes as it installs and does neither if one repository does not answer.
"""

REBOOT_FLAGS = ("/run/reboot-required", "/run/reboot-needed")
"""Files that packages of Debian and Ubuntu, and of SUSE, leave when a reboot is due."""
REBOOT_REQUIRED = "Reboot is required"
"""dnf's message when a reboot is due. Its exit code 1 alone is no proof: dnf also gives it if it lacks the subcommand."""

ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}  # needrestart would ask, or restart services

INTERRUPTED = re.compile(r"dpkg was interrupted|not fully installed or removed")


def packages(node: NodeAccess, wanted: list, manager: str, lock_seconds: float, pause: float = polling.FIRST) -> list:
    """Install the missing packages and return one setting result for each wanted package.

    All missing packages are installed at once, and one by one if a package is at fault. If the package manager itself fails, one
    result `package manager` takes the place of the missing packages. `pause` is the first pause in seconds between two tries for
    its lock.
    """
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
        errors, missed = _refresh_and_install(node, choices, adapter)
        after = _versions(node, wanted, adapter)
        # one that is away is no fault where others had something; where nothing came, each package would say the same of it
        if isinstance(missed, PackageManagerBroken) and not set(after) - set(before):
            raise missed
    except PackageManagerBroken as reason:
        there = [_item(node, name, before[name], "", "") for name in wanted if name in before]
        lacking = ", ".join(first for first, *_ in choices)
        return [*there, item("package manager", FAILED, want="installs " + lacking, why=str(reason))]
    words = " ".join(str(missed or "").split())
    why = {name: words if name in after else errors.get(_choices(name, adapter)[0], "") for name in wanted}
    return [_item(node, name, before.get(name, ""), after.get(name, ""), why[name]) for name in wanted]


def asks_for_reboot(node: NodeAccess, manager: str, root: str = "", pause: float = polling.FIRST) -> bool:
    """Return True if an installed package needs a reboot. Raises Unavailable if the package manager should tell and cannot."""
    if any(os.path.exists(root + flag) for flag in REBOOT_FLAGS):
        return True
    command = ADAPTERS[manager]["rebooting"] if manager in ADAPTERS else []
    if not command:
        return False
    code, output, error = 0, "", ""
    for _ in polling.attempts(LOCK_SECONDS, pause):
        code, output, error = node.run(*command)
        if not LOCK_HELD.search(error):
            break
    if code != 0 and REBOOT_REQUIRED not in output:
        raise Unavailable("`%s` does not say it: install dnf-plugins-core, and try it by hand" % " ".join(command))
    return REBOOT_REQUIRED in output


def _choices(name: str, adapter: Adapter) -> list:
    """Return the package names that satisfy a wanted name (`a or b`), best first.

    Packages of kernel modules get the running kernel's release first, because dnf would install those of a newer kernel.
    """
    names = name.split(ALTERNATIVE)
    return [*("%s-%s" % (package, os.uname().release) for package in names if package in adapter["of_kernel"]), *names]


def _item(node: NodeAccess, name: str, before: str, after: str, error: str) -> Item:
    label = "package " + name
    if before:
        return item(label, OK, want="present", after=before)
    if node.check_mode:
        return item(label, DIFFERS, want="present", before="absent", after="absent")
    if after:
        return item(label, CHANGED, want="present", before="absent", after=after, why=error)
    return item(label, FAILED, want="present", before="absent", after="absent", why=error or "installed, but not listed")


def _versions(node: NodeAccess, names: list, adapter: Adapter) -> dict:
    """Return wanted name → installed version of that package, or of one of its alternatives; missing packages are left out."""
    each = {name: name.split(ALTERNATIVE) for name in names}
    _, output, _ = node.run(*adapter["query"], *(package for packages in each.values() for package in packages))
    rows = [line.split("\t") for line in output.splitlines()]
    # dpkg also knows half-installed, and says `install reinstreq half-installed` of what was killed while it was unpacked
    installed = {row[0]: row[2] for row in rows if len(row) == 3 and row[1].split()[-1:] == ["installed"]}
    # reversed, so that the first alternative wins
    return {name: installed[package] for name, packages in each.items() for package in reversed(packages) if package in installed}


def _refresh_and_install(node: NodeAccess, choices: list, adapter: Adapter) -> tuple:
    """Refresh the package lists and install; return name → error of each failed package, and the error of the refresh or None.

    The second is a repository that does not answer, although others worked. Raises PackageManagerBroken if nothing can be
    installed.
    """
    try:
        if not adapter["refresh"]:
            return _install_all(node, choices, adapter), None
        _run_tool(node, adapter, adapter["refresh"])
    except (RepositoryAway, CannotChange) as missed:
        try:
            errors = _install_from_others(node, choices, adapter, missed)
        except RepositoryAway:
            raise
        except PackageManagerBroken as reason:
            # apt finds packages broken also where what they need is in the repository that is away
            raise PackageManagerBroken("%s; and before, %s" % (reason, missed)) from reason
        return {name: "%s; and before, %s" % (text, missed) for name, text in errors.items()}, missed
    return _install_all(node, choices, adapter), None


def _install_from_others(node: NodeAccess, choices: list, adapter: Adapter, missed: Exception) -> dict:
    """Install without the repositories that do not answer, and return name → error of each failed package.

    Raises `missed`, the error that came first, or RepositoryAway if the other repositories cannot serve any package.
    """
    problem, tool, *rest = missed, *adapter["install"]
    adapter = dict(adapter, away=[missed] if isinstance(missed, RepositoryAway) else [])
    out: list = []
    while True:
        for word in adapter["without"]:
            named = [word + name for name in REPOSITORY.findall(getattr(problem, "output", ""))[-1:] if word + name not in out]
            if not named:
                raise missed
            out += named
        try:
            return _install_all(node, choices, dict(adapter, install=[tool, *out, *rest]))
        except RepositoryAway as reason:
            if not out:
                raise (missed if isinstance(missed, PackageManagerBroken) else reason) from reason
            problem = reason


def _install_all(node: NodeAccess, choices: list, adapter: Adapter) -> dict:
    """Install the first available choice of each package; return first choice → error of each package that has none."""
    errors = _install(node, [first for first, *_ in choices], adapter)
    for first, *others in choices:
        if first in errors and any(not _install(node, [other], adapter) for other in others):
            del errors[first]
    return errors


def _install(node: NodeAccess, names: list, adapter: Adapter) -> dict:
    """Install packages, one by one if that fails for all together; return name → error of each that failed.

    Raises PackageManagerBroken (also as RepositoryAway) at the first error that is a fault of the package manager or of a
    repository.
    """
    try:
        _run_tool(node, adapter, adapter["install"] + names)
    except CannotChange as error:
        # zypper says so as it installs also where its refresh reached none; each package would wait for all repositories again
        if adapter.get("away") and NOTHING_PROVIDES in str(error) and SOME_REFRESHED in str(error):
            raise RepositoryAway(str(error)) from error
        if len(names) == 1:
            return {names[0]: str(error)}
        return {name: text for package in names for name, text in _install(node, [package], adapter).items()}
    return {}


def _run_tool(node: NodeAccess, adapter: Adapter, command: list) -> None:
    """Run a package manager's command; if an earlier run was interrupted, complete that one first.

    Raises what `classify` returns.
    """
    try:
        _run_unlocked(node, adapter, command)
    except CannotChange as error:
        if not adapter["repair"] or not INTERRUPTED.search(str(error)):
            raise classify(error) from error
        try:
            for words in (adapter["repair"], command):
                node.must(*words, **_environment(adapter))
        except CannotChange as again:
            raise classify(again) from again


def _run_unlocked(node: NodeAccess, adapter: Adapter, command: list) -> None:
    """Run a package manager's command; retry until time is up while another process holds its lock. Raises CannotChange."""
    problem = CannotChange()
    for _ in polling.attempts(float(adapter["seconds"][0]), adapter["pause"][0]):
        try:
            node.must(*command, **_environment(adapter))
            return
        except CannotChange as error:
            problem = error
        if SOME_REFRESHED in str(problem) and INSTALLED_WITH_SKIPS in str(problem):
            return
        if not LOCK_HELD.search(str(problem)):
            break
    raise problem


def _environment(adapter: Adapter) -> dict:
    """Return the environment for package managers, with the play's proxy variables also in lower case, which apt reads."""
    proxies = {name.lower(): value for name, value in os.environ.items() if name.upper().endswith("_PROXY")}
    return dict(ENVIRONMENT, ZYPP_LOCK_TIMEOUT=adapter["seconds"][0], **proxies)


THERE = "there"
NO_BASEURL = "none is known for this release of the distribution: write os.rke2_repository.baseurl"


def repositories(node: NodeAccess, wanted: dict) -> list:
    """Write the repository file of each package that no distribution has, and return one setting result for each.

    `id` and `keys` are the content of its file, `path` the file. `unless` is a pattern of files by which the site brings the
    package itself. A machine with the package needs no repository, because dnf fails if it cannot reach one.
    """
    return [_repository(node, package, entry) for package, entry in sorted(wanted.items())]


def _repository(node: NodeAccess, package: str, entry: dict) -> Item:
    name = "repository of " + package
    if not read_text(entry["path"]).startswith(profile_files.OURS):
        others = sorted(glob.glob(entry["unless"]))
        if others:
            return item(name, OK, want=THERE, after="%s, which is not bringup's" % others[0])
        if node.run("rpm", "--query", package)[0] == 0:
            return item(name, OK, want=THERE, after="not needed: the package is installed")
    if not entry["keys"].get("baseurl"):
        return item(name, FAILED, want=THERE, before="absent", after="absent", why=NO_BASEURL)
    rows = ["%s=%s" % pair for pair in sorted(entry["keys"].items())]
    text = "\n".join([profile_files.OURS, "[%s]" % entry["id"], *rows, ""])
    return profile_files.whole_file(node, name, entry["path"], text)
