"""Classes for the errors of package managers: a fault of the machine, of a repository, or of single packages."""

from __future__ import annotations

import re

from ansible.module_utils import proxy_login
from ansible.module_utils.nodeprofile.item import CannotChange

TOOL_FAILURES = {
    "another package manager holds the lock": (
        r"[Cc]ould not get lock|[Uu]nable to (acquire|lock)|management is locked|transaction lock|[Ww]aiting for process"
        r"|already locked by"
    ),
    "packages are half installed": r"dpkg was interrupted|[Uu]nmet dependencies|held broken packages|error processing package",
    "the package database is damaged": (
        r"rpmdb|database disk image is malformed|Packages database|could not be parsed or opened|parsing file '?/var/lib/dpkg"
        r"|Unable to parse package file|package cache file is corrupted"
    ),
    "No space left on device": r"No space left on device",
    "Read-only file system": r"Read-only file system",
}
"""Our words for a fault → pattern of the messages of a package manager that can install no package at all."""

REPOSITORY_FAILURES = {
    proxy_login.LOGIN_REFUSED: r"[Pp]roxy [Aa]uthentication [Rr]equired",
    "a repository's signature is not trusted": r"not signed|NO_PUBKEY|GPG check FAILED|[Ss]ignature verification failed",
    "what a repository says is not valid yet: is this machine's clock behind?": r"not valid yet|not yet valid",
    "its repositories cannot be reached": (
        r"[Ff]ailed to fetch|[Cc]ould not resolve|Cannot download|Failed to download|Curl error|[Tt]emporary failure"
        r"|Could not refresh the repositories"
    ),
}
"""Our words for a fault → pattern of the messages about one repository, while others may work."""
REPOSITORY = re.compile(r"""metadata .*for repo(?:sitory)? ['"]([^'"]+)['"]""")
"""Pattern of dnf's message about a failing repository, whose name it captures."""

ANSWER = re.compile(r"\b(40[17]) +(?:Proxy|Unauthorized)|(?:[Ss]tatus code:?|HTTP code|returned error:) (40[17])")
"""Pattern of an HTTP status (401 or 407) in a tool's message, by which a proxy may have refused its login."""

SOME_REFRESHED = "Some of the repositories have not been refreshed"
"""zypper's message when some repositories failed and it goes on with the others."""
INSTALLED_WITH_SKIPS = "ended with 106:"
"""zypper's exit code after installing from the repositories that it could reach."""
NOTHING_PROVIDES = "ended with 104:"
"""zypper's exit code when no reachable repository has one of the packages, and nothing was installed."""

LOCK_HELD = re.compile(TOOL_FAILURES["another package manager holds the lock"])


class PackageManagerBroken(Exception):
    """Error: the package manager can install no package on this machine. `output` is the tool's own message."""


class RepositoryAway(PackageManagerBroken):
    """Error: a repository does not answer or is not trusted; packages of other repositories may still be installed."""

    output = ""


def classify(error: CannotChange) -> Exception:
    """Return PackageManagerBroken or RepositoryAway, by the message of `error`; `error` itself if it is about single packages."""
    message = str(error)
    answer = ANSWER.search(message)
    refused = proxy_login.login_refusal(int(answer.group(1) or answer.group(2))) if answer else ""
    lasting, away = (
        [reason for reason, pattern in known.items() if re.search(pattern, message)] if SOME_REFRESHED not in message else []
        for known in (TOOL_FAILURES, REPOSITORY_FAILURES)
    )
    reason = "".join(lasting[:1]) or refused or "".join(away[:1])
    if not reason:
        return error
    rows = [line.strip() for line in message.splitlines() if line.strip()]
    telling = [row for row in rows if re.search(dict(TOOL_FAILURES, **REPOSITORY_FAILURES).get(reason, ANSWER), row)]
    problem = (PackageManagerBroken if lasting else RepositoryAway)("%s: %s" % (reason, (telling or rows)[0][-300:]))
    problem.output = message
    return problem
