"""What a Git server or ssh says, as our own errors: may it pass, is it a matter of rights, or of the address?"""

import errno
import re

from msgspec import Struct

from steps.clients import certificates
from steps.errors import BadTask, Conflict, Refused, StepError, StoreBusy, Temporary, Unreachable

_STATUS = re.compile(r"unexpected http resp (\d{3})")
_DENIED = re.compile(
    r"permission (to .* )?denied|access denied|not allowed|unauthorized|forbidden|protected|declined|read.?only",
    re.IGNORECASE,
)
_HOST_KEY = re.compile(r"host key verification failed|host key is known|host identification has changed", re.IGNORECASE)
_CERTIFICATE = re.compile(r"certificate.verify.failed", re.IGNORECASE)
_AWAY = re.compile(r"resolve hostname|connection (refused|reset|closed|timed out)|timed? ?out|no route|unreachable", re.IGNORECASE)
_MISSING = re.compile(r"not found|does not appear to be a git repository|does not exist", re.IGNORECASE)
_RACED = re.compile(
    r"failed to (update|lock)|fetch first|non-fast-forward|stale info|cannot lock|unable to set|incorrect old value", re.IGNORECASE
)

_FULL = {errno.ENOSPC, errno.EDQUOT}


class Raced(Temporary):
    """Somebody else pushed in between: fetch, build on top, push again."""


class Keys(Struct, frozen=True):
    """Where a spec names a repository, for advice: the section, its key for the address, and what the credentials must allow."""

    section: str
    address: str
    right: str

    def of(self, key: str) -> str:
        """One of its keys in full."""
        return f"{self.section}.{key}" if self.section else key

    @property
    def check_address(self) -> str:
        """What to look at where there is no repository."""
        return f"see {self.of(self.address)} and its credentials"


DELIVERY = Keys("delivery.argo_cd", "repo", "push branches and tags")
"""The repository that Argo CD delivers from."""
ANY = Keys("", "address", "reach it")
"""One that no spec names."""
CHECK_WAY = "is the Git server up and reachable from here? The engine tries again"


def denied(where: str, why: str, keys: Keys) -> Refused:
    """The server does not let us."""
    return Refused(f"{where}: {why}", hint=f"give the credentials in {keys.of('credentials')} the right to {keys.right}")


def said(where: str, text: str, keys: Keys) -> StepError:
    """An error by what the server or ssh said: an HTTP status, or words."""
    status = _STATUS.search(text)
    if status is not None:
        code = int(status[1])
        if code in (401, 403):
            return denied(where, f"the server answers {code}", keys)
        if code == 429 or code >= 500:
            return Unreachable(f"{where}: the server answers {code}", hint=CHECK_WAY)
    if _CERTIFICATE.search(text):  # it will be the same at the next try
        return BadTask(f"{where}: {text}", hint=certificates.advice(keys.of("ca")))
    if _HOST_KEY.search(text):
        hint = f"give the server's host keys in {keys.of('known_hosts')} (lines as in ~/.ssh/known_hosts)"
        return BadTask(f"{where}: {text}", hint=hint)
    if _DENIED.search(text):
        return denied(where, text, keys)
    if _MISSING.search(text) and not _AWAY.search(text):
        return BadTask(f"{where}: {text}", hint=keys.check_address)
    return Unreachable(f"{where}: {text}", hint=CHECK_WAY)


def lost(where: str, error: OSError) -> StepError:
    """An error of the system while a repository is read: the disk here is full, else the server is away."""
    if is_full(error):
        return full(error)
    return Unreachable(f"{where}: {error}", hint=CHECK_WAY)


def full(error: OSError) -> StoreBusy:
    """What of a repository lies here has no room; `is_full` tells such an error."""
    return StoreBusy(f"what was read of the repository has no room here: {error.strerror}", hint="give TMPDIR a folder with room")


def is_full(error: Exception) -> bool:
    """Whether a disk has no room for what should be written."""
    return isinstance(error, OSError) and error.errno in _FULL


def refused_ref(name: str, problem: str) -> StepError:
    """An error by what the server says of one ref of a push."""
    if _RACED.search(problem):
        return Raced(f"{name}: {problem}")
    if _DENIED.search(problem) or "hook" in problem:
        return Refused(f"{name}: the server says {problem}", hint="let these credentials push this branch and its tags")
    return Conflict(f"{name}: the server says {problem}", hint="see the rules of the repository")
