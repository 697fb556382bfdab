"""Plays on real hosts: ansible-runner over SSH."""

import configparser
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from steps.clients.ansible import children, failures
from steps.clients.ansible.stop import Stop
from steps.clients.ansible.workspace import Workspace, workspace
from steps.clients.ssh import proxies
from steps.contract.host_play import PlayHost, PlayRequest, PlayStatus
from steps.errors import StepError, Temporary

STATUS = {"successful": PlayStatus.OK, "failed": PlayStatus.FAILED, "timeout": PlayStatus.TIMEOUT, "canceled": PlayStatus.CANCELLED}
"""ansible-runner's word for the end of a play → play status."""

POLL_SECONDS = 1
"""Interval in seconds at which ansible-runner checks if it should stop."""

OUTPUT_TAIL = 1500
HINT = "see to memory, processes, and space for temporary files where this step runs"

TASK_SHARE = 0.8
"""Largest share of the play's time for one task. A task that hangs on one host ends then, and the other hosts can finish."""


class SshTransport:
    """Transport that runs the playbook in this process's machine, against real hosts over SSH."""

    name = "ssh"

    def stream(self, request: PlayRequest, feed: Callable[[object], None], stop: Stop) -> tuple[PlayStatus, str]:
        """Run the play to its end, pass every event to `feed` as it comes, and leave no process behind.

        Returns the status, and Ansible's last output if the play failed. Raises Temporary if the play's folder cannot be written or
        no process started, which is not the hosts' fault.
        """
        mark = secrets.token_hex(16)
        try:
            with workspace(request) as space:
                try:
                    runner = self._run(request, space, mark, feed, stop)
                finally:
                    # ansible-runner ends its own process group only
                    children.end(mark, space.folder)
                status, tail = STATUS.get(str(runner.status)), _tail(space.folder)
        except OSError as error:
            raise Temporary(f"playbook {request.playbook} cannot be played here: {error.strerror or error}", hint=HINT) from error
        if status is None:
            raise StepError(f"ansible-runner ended as {runner.status}: {tail}")
        if runner.rc is None:  # no exit code: a signal from outside ended it
            tail = f"{failures.KILLED}; it had said: {tail}"
        return status, tail if status is PlayStatus.FAILED else ""

    def _run(self, request: PlayRequest, space: Workspace, mark: str, feed: Callable[[object], None], stop: Stop) -> Any:
        import ansible_runner

        def handle(event: dict[str, Any]) -> bool:
            feed(with_proxy_reason(event, space.folder, request.reached))
            return False  # False: write no file for each event, which would be thousands for a shard

        return ansible_runner.run(
            private_data_dir=str(space.folder),
            playbook=str(space.playbook),
            inventory=str(space.inventory),
            # the variables hold secrets, and every user of this machine can read command lines
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
    """Return the variables that Ansible gets in addition to this process's environment."""
    return {
        "ANSIBLE_CONFIG": str(space.playbooks / "ansible.cfg"),
        **_role_paths(space),
        "ANSIBLE_HOST_KEY_CHECKING": "True",  # ansible-runner turns it off if it is unset
        "ANSIBLE_HOME": str(space.folder / "home"),
        "ANSIBLE_LOCAL_TEMP": str(space.folder / "tmp"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(space.sockets),
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        "LC_ALL": "C.UTF-8",
        children.MARK: mark,
    }


def task_seconds(playbooks: Path, request: PlayRequest) -> int:
    """Return the time limit in seconds of tasks without their own: the configured one, at most `TASK_SHARE` of the play's."""
    configured = configparser.ConfigParser()
    configured.read(playbooks / "ansible.cfg")
    return max(1, min(configured.getint("defaults", "task_timeout"), int(request.timeout_seconds * TASK_SHARE)))


def _role_paths(space: Workspace) -> dict[str, str]:
    """Return Ansible variables for a role of the site: its path, and facts as variables, which most public roles expect."""
    if not space.roles.exists():
        return {}
    return {"ANSIBLE_ROLES_PATH": f"{space.roles}:{space.playbooks / 'roles'}", "ANSIBLE_INJECT_FACT_VARS": "True"}


def _tail(folder: Path) -> str:
    """Return the end of Ansible's output; if no event came, as for a playbook that does not load, it is the only message."""

    for path in sorted(folder.glob("artifacts/*/stdout")):
        return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", path.read_text(errors="replace")).strip()[-OUTPUT_TAIL:]
    return ""


_CONNECTION_LOST = re.compile(r"proxy dialer did not pass back|kex_exchange_identification|^no SSH connection")
"""Messages if ssh's ProxyCommand fails. The second one appears if the proxy is before a jump host.

The third one stands for no message at all: Ansible drops ssh's if it was still writing to ssh when that ended.
"""


def with_proxy_reason(event: dict[str, Any], folder: Path, reached: Iterable[PlayHost]) -> dict[str, Any]:
    """Return the event with the HTTP proxy's own reason as its message, if the proxy refused the connection; else unchanged.

    ssh drops the output of its ProxyCommand when it keeps connections open for later use, so the reason is read from `folder`. All
    hosts in `reached` are searched, the event's host first, because a delegated task connects to another host.
    """
    if event.get("event") != "runner_on_unreachable":
        return event
    data = event["event_data"]
    result = data["res"]
    # only these messages can come from a failed proxy
    if not _CONNECTION_LOST.search(failures.message(result)):
        return event
    ordered = sorted(reached, key=lambda host: host.name != data["host"])
    reason = next((sentence for host in ordered if (sentence := proxies.failure_of(folder, host))), "")
    return event | {"event_data": data | {"res": {**result, "msg": reason, "stderr": ""}}} if reason else event
