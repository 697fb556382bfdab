"""Types of stage slurm_login: login pods with their revisions, and the sessions on pods of an old revision."""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from steps.contract.objects.charts import Trouble
from steps.contract.stage_contracts import ApprovalNote

ID: Final = "slurm_login"
LISTED_BY: Final = ("slurm", "sessions")
"""Stage and task that list the sessions, before anybody is asked."""
MOST_SHOWN = 8


class OutdatedPod(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A login pod of an old revision, and the sessions that end with it, as `USER TERMINAL`; `error`: they are not known."""

    name: str
    sessions: tuple[str, ...] = ()
    error: str = ""

    @property
    def users(self) -> frozenset[str]:
        """Return the users who have a session."""
        return frozenset(session.partition(" ")[0] for session in self.sessions)

    @property
    def text(self) -> str:
        """Return the pod with its sessions as a clause: `slurm-login-0: alice (pts/0, pts/1), bob (notty)`."""
        if self.error:
            return f"{self.name}: unknown ({self.error})"
        terminals: dict[str, list[str]] = {}
        for session in self.sessions:
            user, _, terminal = session.partition(" ")
            terminals.setdefault(user, []).append(terminal)
        users = [f"{user} ({', '.join(names[:MOST_SHOWN])})" for user, names in sorted(terminals.items())]
        more = f" and {len(users) - MOST_SHOWN} more" if len(users) > MOST_SHOWN else ""
        return f"{self.name}: {', '.join(users[:MOST_SHOWN])}{more}" if users else f"{self.name}: nobody"


class SessionsObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of the task that lists sessions: the login pods of an old revision."""

    pods: tuple[OutdatedPod, ...] = ()

    @property
    def is_used(self) -> bool:
        """Return True if replacing the pods ends a session, or may end one."""
        return any(pod.sessions or pod.error for pod in self.pods)

    @property
    def text(self) -> str:
        """Return the pods with their sessions as one line; empty if no pod is of an old revision."""
        return "; ".join(pod.text for pod in self.pods)


def approval_text(observations: Iterable[object]) -> str:
    """Return what an approver is shown: the sessions that end; empty if none does."""
    listed = [msgspec.convert(seen, SessionsObservation) for seen in observations if seen is not None]
    return "; ".join(f"replacing login pods ends sessions, {entry.text}" for entry in listed if entry.is_used)


APPROVAL_NOTE: Final = ApprovalNote(stage=LISTED_BY[0], task=LISTED_BY[1], text=approval_text)


class LoginPod(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A login pod with its revision (label `controller-revision-hash`), and why it is not ready."""

    name: str
    revision: str = ""
    ready: bool = False
    trouble: Trouble | None = None


class PodsObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate slurm_login/pods: the StatefulSet's strategy, generation and newest revision, and its pods.

    `exists` is False if there is no such StatefulSet.
    """

    exists: bool = False
    strategy: str = ""
    generation: int = 0
    observed: int = 0
    revision: str = ""
    pods: tuple[LoginPod, ...] = ()


class PodsExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of gate slurm_login/pods: `replicas` pods of StatefulSet `name`, each of the newest revision and ready."""

    name: str = "slurm-login"
    replicas: int = 1
