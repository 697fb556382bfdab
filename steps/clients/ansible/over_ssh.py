"""Plays on real hosts: ansible-runner over SSH."""

import configparser
import os
import re
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steps.clients.ansible import children, failures
from steps.clients.ansible.stop import Stop
from steps.clients.ansible.workspace import Workspace, workspace
from steps.clients.ssh import proxies
from steps.contract.play import PlayRequest, PlayStatus
from steps.errors import StepError, Temporary

STATUS = {
    "successful": PlayStatus.OK,
    "failed": PlayStatus.FAILED,
    "timeout": PlayStatus.TIMEOUT,
    "canceled": PlayStatus.CANCELLED,
}
"""ansible-runner's words for the end of a play."""

POLL_SECONDS = 1
"""How often ansible-runner looks whether it should stop."""

OUTPUT_TAIL = 1500
HINT = "see to memory, processes, and space for temporary files where this step runs"

TASK_SHARE = 0.8
"""Of the play's time, how much one task may take: what hangs on one host ends there, and the others still come to their end."""


class SshTransport:
    """Runs the playbook here, against hosts over SSH."""

    name = "ssh"

    def stream(self, request: PlayRequest, feed: Callable[[object], None], stop: Stop) -> tuple[PlayStatus, str]:
        """Run to the end, hand every event on as it comes, and leave no process behind.

        Raises Temporary where the play's folder cannot be written, or no process started: the hosts have no part in that.
        """
        mark = secrets.token_hex(16)
        try:
            with workspace(request) as space:
                try:
                    runner = self._run(request, space, mark, feed, stop)
                finally:
                    children.end(mark, space.folder)
                status, tail = STATUS.get(str(runner.status)), _tail(space.folder)
        except OSError as error:
            raise Temporary(f"playbook {request.playbook} cannot be played here: {error.strerror or error}", hint=HINT) from error
        if status is None:
            raise StepError(f"ansible-runner ended as {runner.status}: {tail}")
        if runner.rc is None:  # no exit code: a signal ended it, and it was none of ours
            tail = f"{failures.KILLED}; it had said: {tail}"
        return status, tail if status is PlayStatus.FAILED else ""

    def _run(self, request: PlayRequest, space: Workspace, mark: str, feed: Callable[[object], None], stop: Stop) -> Any:
        import ansible_runner

        def handle(event: dict[str, Any]) -> bool:
            feed(proxies.explained(event, space.folder, request.reached))
            return False  # no file for each event: a shard would make thousands

        return ansible_runner.run(
            private_data_dir=str(space.folder),
            playbook=str(space.playbook),
            inventory=str(space.inventory),
            cmdline=f"--module-path {space.library} --extra-vars @{space.variables}" + (" --check" if request.check else ""),
            forks=request.forks,
            envvars=_environment(space, mark) | {"ANSIBLE_TASK_TIMEOUT": str(task_seconds(space.playbooks, request))},
            settings={
                "job_timeout": request.timeout_seconds,
                "idle_timeout": request.idle_timeout_seconds,
                "pexpect_timeout": POLL_SECONDS,
                "suppress_ansible_output": True,
            },
            event_handler=handle,
            cancel_callback=lambda: stop.requested,
            quiet=True,
        )


def _environment(space: Workspace, mark: str) -> dict[str, str]:
    """What Ansible is to know beside our own environment."""
    return {
        "ANSIBLE_CONFIG": str(space.playbooks / "ansible.cfg"),
        **_role_paths(space),
        "ANSIBLE_HOST_KEY_CHECKING": "True",  # ansible-runner turns it off where it is not set
        "ANSIBLE_HOME": str(space.folder / "home"),
        "ANSIBLE_LOCAL_TEMP": str(space.folder / "tmp"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(space.sockets),
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        "LC_ALL": "C.UTF-8",
        children.MARK: mark,
    }


def task_seconds(playbooks: Path, request: PlayRequest) -> int:
    """Longest time of a task that does not say its own: as configured beside the playbooks, and less in a short play."""
    configured = configparser.ConfigParser()
    configured.read(playbooks / "ansible.cfg")
    return max(1, min(configured.getint("defaults", "task_timeout"), int(request.timeout_seconds * TASK_SHARE)))


def _role_paths(space: Workspace) -> dict[str, str]:
    """With a role of the site: where it lies, and facts as variables of their own, which most roles out there expect."""
    if not space.roles.exists():
        return {}
    return {"ANSIBLE_ROLES_PATH": f"{space.roles}:{space.playbooks / 'roles'}", "ANSIBLE_INJECT_FACT_VARS": "True"}


def _tail(folder: Path) -> str:
    """The end of what Ansible printed: its only word where no event came, as for a playbook that does not load."""
    for path in sorted(folder.glob("artifacts/*/stdout")):
        return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", path.read_text(errors="replace")).strip()[-OUTPUT_TAIL:]
    return ""
