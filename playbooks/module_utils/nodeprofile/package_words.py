"""What package managers say, and what it means: of the machine, of a repository, or of one package."""

from __future__ import annotations

import re

from ansible.module_utils import proxies
from ansible.module_utils.nodeprofile.item import CannotChange

BROKEN = {
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
"""The reason in our words, and what a package manager says when it works for no package at all because of it."""

AWAY = {
    proxies.REFUSED: r"[Pp]roxy [Aa]uthentication [Rr]equired",
    "a repository's signature is not trusted": r"not signed|NO_PUBKEY|GPG check FAILED|[Ss]ignature verification failed",
    "what a repository says is not valid yet: is this machine's clock behind?": r"not valid yet|not yet valid",
    "its repositories cannot be reached": (
        r"[Ff]ailed to fetch|[Cc]ould not resolve|Cannot download|Failed to download|Curl error|[Tt]emporary failure"
        r"|Could not refresh the repositories"
    ),
}
"""The same of what a repository does, and others may not."""
REPOSITORY = re.compile(r"""metadata .*for repo(?:sitory)? ['"]([^'"]+)['"]""")
"""Which one it is, as dnf says it at last."""

ANSWER = re.compile(r"\b(40[17]) +(?:Proxy|Unauthorized)|(?:[Ss]tatus code:?|HTTP code|returned error:) (40[17])")
"""The code of an answer that may be a proxy's."""

PARTLY = "Some of the repositories have not been refreshed"
"""zypper says which, and goes on with the others."""
SKIPPED = "ended with 106:"
"""zypper has installed what was asked for, from the repositories that it could reach."""
UNKNOWN = "ended with 104:"
"""zypper has installed nothing, as no repository that it reached has one of the packages."""

LOCKED = re.compile(BROKEN["another package manager holds the lock"])


class Broken(Exception):
    """The package manager works for no package."""


class Away(Broken):
    """A repository does not serve: an installation medium that is no longer there, or one that this site cannot reach, must not
    keep a mirror from being used. `said` are the tool's own words."""

    said = ""


def judged(error: CannotChange) -> Exception:
    """Broken, where the tool's words say that it works for no package, and Away where they say it of a repository; the error as it
    is where they tell of packages alone, or zypper goes on with its other repositories."""
    said = str(error)
    answer = ANSWER.search(said)
    refused = proxies.refused(int(answer.group(1) or answer.group(2))) if answer else ""
    lasting, away = (
        [reason for reason, pattern in known.items() if re.search(pattern, said)] if PARTLY not in said else []
        for known in (BROKEN, AWAY)
    )
    reason = "".join(lasting[:1]) or refused or "".join(away[:1])
    if not reason:
        return error
    rows = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [row for row in rows if re.search(dict(BROKEN, **AWAY).get(reason, ANSWER), row)]
    problem = (Broken if lasting else Away)("%s: %s" % (reason, (telling or rows)[0][-300:]))
    problem.said = said
    return problem
