"""Translates messages of Git servers and ssh into errors of bringup: temporary, missing rights, or a wrong address."""

import errno
import re

from msgspec import Struct

from steps.clients import certificates
from steps.errors import BadTask, Conflict, Refused, StepError, StoreBusy, Temporary, Unreachable

_STATUS = re.compile(r"unexpected http resp (\d{3})")
_DENIED = re.compile(
    r"permission (to .* )?denied|access denied|not allowed|unauthorized|forbidden|protected|declined|read.?only", re.IGNORECASE
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
    """Raised if somebody else pushed in between. The caller fetches, rebuilds its commit on top, and pushes again."""


class Keys(Struct, frozen=True):
    """Names of the spec's fields about a repository, for advice in errors.

    They are the section, the key of the address in it, and the rights that credentials need.
    """

    section: str
    address: str
    right: str

    def of(self, key: str) -> str:
        """Return the full name of a field, such as `delivery.argo_cd.repo`."""
        return f"{self.section}.{key}" if self.section else key

    @property
    def check_address(self) -> str:
        """Return the advice for a repository that the server does not have."""
        return f"see {self.of(self.address)} and its credentials"


DELIVERY = Keys("delivery.argo_cd", "repo", "push branches and tags")
"""Fields of the repository that Argo CD delivers from."""
ANY = Keys("", "address", "reach it")
"""Fields of a repository that no spec names."""
CHECK_WAY = "is the Git server up and reachable from here? The engine tries again"


def permission_error(where: str, why: str, keys: Keys) -> Refused:
    """Return the error for missing rights on the server."""
    return Refused(f"{where}: {why}", hint=f"give the credentials in {keys.of('credentials')} the right to {keys.right}")


def error_for(where: str, text: str, keys: Keys) -> StepError:
    """Return the error for a message of the server or ssh, which is an HTTP status or words."""
    status = _STATUS.search(text)
    if status is not None:
        code = int(status[1])
        if code in (401, 403):
            return permission_error(where, f"the server answers {code}", keys)
        if code == 429 or code >= 500:
            return Unreachable(f"{where}: the server answers {code}", hint=CHECK_WAY)
    if _CERTIFICATE.search(text):  # not temporary: the certificate stays the same
        return BadTask(f"{where}: {text}", hint=certificates.advice(keys.of("ca")))
    if _HOST_KEY.search(text):
        hint = f"give the server's host keys in {keys.of('known_hosts')} (lines as in ~/.ssh/known_hosts)"
        return BadTask(f"{where}: {text}", hint=hint)
    if _DENIED.search(text):
        return permission_error(where, text, keys)
    # `could not resolve hostname … not found` is a network failure
    if _MISSING.search(text) and not _AWAY.search(text):
        return BadTask(f"{where}: {text}", hint=keys.check_address)
    return Unreachable(f"{where}: {text}", hint=CHECK_WAY)


def lost(where: str, error: OSError) -> StepError:
    """Return the error for a read that failed with an OSError: StoreBusy if the disk here is full, else Unreachable."""
    if is_full(error):
        return full(error)
    return Unreachable(f"{where}: {error}", hint=CHECK_WAY)


def full(error: OSError) -> StoreBusy:
    """Return StoreBusy for an error that says that the disk here is full (see `is_full`)."""
    return StoreBusy(f"what was read of the repository has no room here: {error.strerror}", hint="give TMPDIR a folder with room")


def is_full(error: Exception) -> bool:
    """Return True if an error says that a disk is full."""
    return isinstance(error, OSError) and error.errno in _FULL


def refused_ref(name: str, problem: str) -> StepError:
    """Return the error for the server's refusal of one ref of a push; `problem` is the server's message."""
    if _RACED.search(problem):
        return Raced(f"{name}: {problem}")
    if _DENIED.search(problem) or "hook" in problem:
        return Refused(f"{name}: the server says {problem}", hint="let these credentials push this branch and its tags")
    return Conflict(f"{name}: the server says {problem}", hint="see the rules of the repository")
