"""Events of ansible-runner → outcomes, as data: the shapes are those that real runs showed."""

from typing import Any

import msgspec
import pytest

from steps.clients.ansible import failures
from steps.clients.ansible.events import Ledger
from steps.contract.host_play import ENDED, FailureKind, HostOutcome, HostStatus, PlayStatus
from steps.errors import StepError

SSH = "Failed to connect to the host via ssh: "


def event(name: str, host: str = "n1", task: str = "Bring the node to its profile", **data: Any) -> dict[str, Any]:
    return {"event": name, "created": "2026-11-21T10:00:00.000000+00:00", "event_data": {"host": host, "task": task, **data}}


def ok(host: str = "n1", **res: Any) -> dict[str, Any]:
    return event("runner_on_ok", host, res=res)


def failed(host: str = "n1", *, ignore_errors: bool | None = None, **res: Any) -> dict[str, Any]:
    return event("runner_on_failed", host, res=res, ignore_errors=ignore_errors)


def unreachable(said: str, host: str = "n1") -> dict[str, Any]:
    return event("runner_on_unreachable", host, res={"unreachable": True, "changed": False, "msg": said})


def stats(**columns: dict[str, int]) -> dict[str, Any]:
    return {"event": "playbook_on_stats", "created": "", "event_data": columns}


def outcome(*events: dict[str, Any], ended: PlayStatus = PlayStatus.FAILED) -> HostOutcome:
    ledger = Ledger(["n1"])
    for one in events:
        ledger.feed(one)
    return ledger.outcomes(ended)[0]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (SSH + "ssh: connect to host 10.250.206.162 port 22: Connection timed out", FailureKind.NETWORK),
        (SSH + "ssh: connect to host 192.0.2.7 port 22: No route to host", FailureKind.NETWORK),
        ("Data could not be sent to remote host. Make sure this host can be reached over ssh: ", FailureKind.NETWORK),
        (SSH + "Permission denied (publickey,gssapi-keyex,gssapi-with-mic).\r\n", FailureKind.SSH_AUTH),
        (SSH + "ec2-user@192.0.2.112: Permission denied (publickey).", FailureKind.SSH_AUTH),
        (SSH + "Host key verification failed.", FailureKind.HOST_KEY),
        (SSH + "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @ Host key verification failed.", FailureKind.HOST_KEY),
        ("Failed to create temporary directory. mkdir: cannot create directory: Read-only file system", FailureKind.READ_ONLY),
        ("Timeout (12s) waiting for privilege escalation prompt: ", FailureKind.SUDO),
        (
            SSH + "Unable to negotiate with 192.0.2.7 port 22: no matching host key type found. Their offer: ssh-rsa",
            FailureKind.SSH_ALGORITHMS,
        ),
        (SSH + "Your account has expired; please contact your system administrator. Connection closed", FailureKind.SSH_AUTH),
        (
            "Failed to create temporary directory. In some cases, you may have been able to authenticate and did not have "
            "permissions on the target directory. Failed command was: ( umask 77 && mkdir -p ...), exited with result 1",
            FailureKind.TASK_FAILED,
        ),
    ],
)
def test_an_unreachable_host_is_classified_by_what_ssh_says(said: str, kind: FailureKind) -> None:
    seen = outcome(unreachable(said), stats(dark={"n1": 1}, processed={"n1": 1}))

    assert (seen.status, seen.kind) == (HostStatus.UNREACHABLE, kind)
    assert seen.task == "Bring the node to its profile"
    assert " ".join(said.split()).endswith(seen.message) or seen.message == "no SSH connection"


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ({"rc": 127, "msg": "The module interpreter '/usr/bin/python9' was not found."}, FailureKind.PYTHON_MISSING),
        (
            {"rc": 127, "msg": "MODULE FAILURE", "module_stdout": "/bin/sh: 1: /usr/bin/python3: not found\r\n"},
            FailureKind.PYTHON_MISSING,
        ),
        ({"msg": "Task failed: ansible-core requires a minimum of Python version 3.8"}, FailureKind.PYTHON_MISSING),
        (
            {"msg": "Task failed: Premature end of stream waiting for become success.\nsudo: a password is required"},
            FailureKind.SUDO,
        ),
        ({"msg": "Missing sudo password"}, FailureKind.SUDO),
        ({"msg": "MODULE FAILURE", "module_stderr": "sudo: sorry, you must have a tty to run sudo"}, FailureKind.SUDO),
        ({"msg": "sudo: a terminal is required to read the password; either use the -S option"}, FailureKind.SUDO),
        ({"msg": "sudo: effective uid is not 0, is /usr/bin/sudo on a file system with 'nosuid' set?"}, FailureKind.SUDO),
        ({"msg": "sudo: PAM account management error: Permission denied"}, FailureKind.SUDO),
        ({"msg": "sudo: /etc/sudo.conf is owned by uid 1000, should be 0"}, FailureKind.SUDO),
        ({"msg": "MODULE FAILURE", "module_stderr": "sudo: Ein Passwort ist notwendig\n"}, FailureKind.SUDO),
        ({"msg": "MODULE FAILURE", "module_stdout": "sudo: il est nécessaire de saisir un mot de passe\r\n"}, FailureKind.SUDO),
        (
            {"msg": "items", "results": [{"failed": True, "msg": "x", "module_stderr": "sudo: パスワードが必要です"}]},
            FailureKind.SUDO,
        ),
        (
            {"msg": "MODULE FAILURE", "module_stderr": "sudo: Rechner n1 kann nicht aufgelöst werden\nKeyError: 'boom'\n"},
            FailureKind.TASK_FAILED,
        ),
        ({"msg": "MODULE FAILURE", "module_stderr": "sudo: unable to resolve host n1: x\n"}, FailureKind.TASK_FAILED),
        ({"msg": "non-zero return code", "stderr": "sudo: Ein Passwort ist notwendig"}, FailureKind.TASK_FAILED),
        ({"msg": "MODULE FAILURE", "module_stdout": "This account is currently not available."}, FailureKind.SSH_AUTH),
        ({"msg": "x", "module_stderr": "Your password has expired. Password change required but no TTY"}, FailureKind.SSH_AUTH),
        ({"msg": "Disk Requirements: At least 123MB more space needed on the / filesystem."}, FailureKind.DISK_FULL),
        ({"msg": "installing package kernel-5.14 needs 44MB more space on the /boot filesystem"}, FailureKind.DISK_FULL),
        ({"msg": "installing package kernel-5.14 needs 12 more inodes on the / filesystem"}, FailureKind.DISK_FULL),
        (
            {"msg": "apt failed", "stderr": f"{'a ' * 900}dpkg: failed to write (No space left on device){' b' * 900}"},
            FailureKind.DISK_FULL,
        ),
        (
            {"msg": "items", "results": [{"failed": True, "msg": "x", "stderr": f"{'a ' * 900}Could not get lock{' b' * 900}"}]},
            FailureKind.PACKAGE_LOCK,
        ),
        ({"msg": "root: the SSH user needs sudo without a password"}, FailureKind.SUDO),
        ({"msg": "file /etc/hosts: [Errno 30] Read-only file system: '/etc/hosts'"}, FailureKind.READ_ONLY),
        ({"msg": "E: You don't have enough free space in /var/cache/apt/archives/."}, FailureKind.DISK_FULL),
        ({"msg": "MODULE FAILURE", "module_stderr": "OSError: [Errno 28] No space left on device"}, FailureKind.DISK_FULL),
        (
            {"msg": "package chrony: E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 12"},
            FailureKind.PACKAGE_LOCK,
        ),
        ({"msg": "System management is locked by the application with pid 7 (zypper)."}, FailureKind.PACKAGE_LOCK),
        ({"msg": "E: Release file for file:/srv is not valid yet (invalid for another 3h)"}, FailureKind.CLOCK),
        ({"msg": "package manager: the package database is damaged: E: could not be parsed"}, FailureKind.PACKAGE_MANAGER),
        ({"msg": "E: dpkg was interrupted, you must manually run 'dpkg --configure -a'"}, FailureKind.PACKAGE_MANAGER),
        ({"msg": "package manager: another package manager holds the lock, also after 120 s: E: x"}, FailureKind.PACKAGE_LOCK),
        ({"msg": "Timed out waiting for last boot time check (timeout=60)", "rebooted": True}, FailureKind.REBOOT),
        ({"msg": "Timed out after 3 second(s)."}, FailureKind.TIMEOUT),
        (
            {"msg": "there is no cluster to join, and sv1, which is to found the cluster, was not reached"},
            FailureKind.HELPER,
        ),
        ({"msg": "non-zero return code", "rc": 1, "stderr": "boom"}, FailureKind.TASK_FAILED),
        (
            {"msg": "One or more items failed", "results": [{"msg": "fine"}, {"failed": True, "msg": "No space left"}]},
            FailureKind.DISK_FULL,
        ),
    ],
)
def test_a_failed_host_is_classified_by_what_the_task_says(result: dict[str, Any], kind: FailureKind) -> None:
    seen = outcome(failed(**result), stats(failures={"n1": 1}, processed={"n1": 1}))

    assert (seen.status, seen.kind) == (HostStatus.FAILED, kind)


HINT = "Make sure this host can be reached over ssh:"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (SSH + "ssh: connect to host n1 port 22: No route to host", "ssh: connect to host n1 port 22: No route to host"),
        (f'Task failed: Data could not be sent to remote host "10.0.0.3". {HINT} ', "no SSH connection to 10.0.0.3"),
        (f'Task failed: Data could not be sent to remote host "n1". {HINT} Timeout, server n1 dead', "Timeout, server n1 dead"),
        (f'Data could not be sent to remote host "n1". {HINT} Broken pipe', "n1: Broken pipe"),
        (SSH, "no SSH connection"),
        (
            f'Data could not be sent to remote host "n1". {HINT} packet.c:sshpkt_vfatal():1931 (pid=7): '
            "Connection closed by 10.0.0.3",
            "n1: Connection closed by 10.0.0.3",
        ),
        ("Task failed: Action failed: boom", "boom"),
    ],
)
def test_a_person_reads_the_cause_and_not_what_ansible_says_before_it(said: str, sentence: str) -> None:
    assert failures.message({"msg": said}) == sentence


def test_the_tools_own_words_are_in_the_message() -> None:
    assert outcome(failed(msg="non-zero return code", stderr="boom")).message == "non-zero return code: boom"


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        ({}, "it failed without a word, or with more than 700 kB of them, which ansible-runner leaves out"),
        ({"msg": "boom", "stderr": "x" * 5000}, "boom: [5000 characters that end without a space]"),
        ({"msg": "x" * 5000}, "… [5000 characters that end without a space]"),
    ],
)
def test_a_failure_never_goes_without_a_word(result: dict[str, Any], sentence: str) -> None:
    assert outcome(failed(**result)).message == sentence


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    message = outcome(failed(msg="begin " + "x" * 5000 + " end")).message

    assert message.startswith("begin ")
    assert message.endswith(" end")
    assert len(message) < 900


def test_an_ignored_failure_is_none() -> None:
    seen = outcome(failed(ignore_errors=True, msg="no"), ok(), stats(ok={"n1": 2}, ignored={"n1": 1}))

    assert (seen.status, seen.kind, seen.message) == (HostStatus.OK, None, "")


def test_a_rescued_failure_is_none() -> None:
    assert outcome(failed(msg="no"), ok(), stats(ok={"n1": 1}, rescued={"n1": 1})).status is HostStatus.OK


def test_the_first_failure_stands() -> None:
    seen = outcome(failed(msg="first"), failed(msg="second"), stats(failures={"n1": 2}))

    assert seen.message == "first"


def test_a_rescue_that_quotes_the_failure_says_what_became_of_it() -> None:
    cause = "rke2-server is activating: it ended 12 times within 70 s (unit activating): level=fatal"
    end = outcome(failed(msg=cause), failed(msg=f"{cause}: n1 did not come to v2 and runs v1 again"), stats(failures={"n1": 1}))
    assert end.message.endswith("runs v1 again")
    assert (end.status, end.kind) == (HostStatus.FAILED, FailureKind.TASK_FAILED)


def test_changes_are_counted_and_the_last_observation_is_kept_with_its_time() -> None:
    first = event("runner_on_ok", res={"changed": True, "observation": {"items": [1]}})
    last = event(
        "runner_on_ok",
        res={"changed": False, "observation": {"items": [2]}},
        start="2026-11-21T10:00:01.500000",  # ansible-runner writes these without a zone: UTC
        end="2026-11-21T10:00:03+00:00",
    )
    seen = outcome(first, last, stats(ok={"n1": 2}), ended=PlayStatus.OK)

    assert (seen.status, seen.done, seen.changed) == (HostStatus.OK, 2, 1)
    assert seen.facts == {"items": [2]}
    assert seen.facts_to - seen.facts_from == 1.5


def test_an_observation_may_come_as_its_json() -> None:
    assert outcome(ok(observation='{"items": [1]}'), stats(ok={"n1": 1})).facts == {"items": [1]}


@pytest.mark.parametrize("said", ["a word", "[1]", "[" * 20000, ["list"], 7])
def test_an_observation_that_cannot_be_read_is_the_affair_of_its_host(said: object) -> None:
    ledger = Ledger(["n1", "n2"])
    for one in (ok(observation={"old": 1}), ok(observation=said), ok("n2", observation={"a": 1}), stats(ok={"n1": 2, "n2": 1})):
        ledger.feed(one)
    first, second = ledger.outcomes(PlayStatus.OK)

    assert (first.status, first.facts) == (HostStatus.OK, {}), "what it said before holds no longer"
    assert "observed cannot be read" in first.message
    assert second.facts == {"a": 1}


@pytest.mark.parametrize("observation", ['{"why": "caf\\udce9 \\u00e9"}', {"why": "caf\udce9 \u00e9"}])
def test_bytes_that_are_no_text_are_marked_in_an_observation(observation: object) -> None:
    seen = outcome(ok(observation=observation), stats(ok={"n1": 1}))

    assert seen.facts == {"why": "caf? \u00e9"}
    assert msgspec.json.encode(seen)


def test_an_observation_set_as_a_fact_counts() -> None:
    assert outcome(ok(ansible_facts={"observation": {"a": 1}}), stats(ok={"n1": 1})).facts == {"a": 1}


@pytest.mark.parametrize(
    ("ended", "kind"),
    [(PlayStatus.TIMEOUT, FailureKind.TIMEOUT), (PlayStatus.CANCELLED, None), (PlayStatus.FAILED, FailureKind.CONTROLLER)],
)
def test_without_statistics_nobody_is_ok_but_known_failures_stay(ended: PlayStatus, kind: FailureKind | None) -> None:
    ledger = Ledger(["n1", "n2", "n3"])
    for one in (ok("n1"), failed("n2", msg="boom")):
        ledger.feed(one)

    assert [(row.host, row.status, row.kind) for row in ledger.outcomes(ended)] == [
        ("n1", HostStatus.CANCELLED, kind),
        ("n2", HostStatus.FAILED, FailureKind.TASK_FAILED),
        ("n3", HostStatus.CANCELLED, kind),
    ]


def test_a_play_that_is_cut_off_names_what_ran_where() -> None:
    ledger = Ledger(["n1", "n2"])
    for one in (event("runner_on_start", "n1", "Install"), event("runner_on_start", "n2", "Install"), ok("n1")):
        ledger.feed(one)
    waited, held_up = ledger.outcomes(PlayStatus.TIMEOUT)

    assert (waited.task, held_up.task) == ("", "Install")
    assert "before 'Install' had an end on this host" in held_up.message


def test_a_host_on_which_nothing_ran_is_not_ok() -> None:
    ledger = Ledger(["n1", "n2"])
    ledger.feed(ok("n1"))
    ledger.feed(stats(ok={"n1": 1}, processed={"n1": 1}))

    assert [row.status for row in ledger.outcomes(PlayStatus.OK)] == [HostStatus.OK, HostStatus.CANCELLED]


def test_where_a_playbook_says_who_came_to_the_end_nobody_else_did() -> None:
    ledger = Ledger(["n1", "n2", "n3"], marked=True)
    end = ok("n1", ansible_facts={ENDED: True})
    for one in (ok("n1"), ok("n2", observation={"version": "old"}), failed("n3", msg="its pods do not go"), end):
        ledger.feed(one)
    ledger.feed(stats(ok={"n1": 2, "n2": 1, "n3": 1}, rescued={"n3": 1}, processed={"n1": 1, "n2": 1, "n3": 1}))

    assert [(row.status, row.kind, row.message) for row in ledger.outcomes(PlayStatus.FAILED)] == [
        (HostStatus.OK, None, ""),
        (HostStatus.CANCELLED, FailureKind.NO_TURN, "others failed, with which Ansible ended the play before this host's end"),
        (HostStatus.FAILED, FailureKind.TASK_FAILED, "its pods do not go"),
    ]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ('Data could not be sent to remote host "s1". Make sure this host can be reached over ssh:', FailureKind.HELPER),
        (SSH + "ssh: connect to host 10.0.0.9 port 22: Connection timed out", FailureKind.HELPER),
        (SSH + "ssh: connect to host 10.0.0.90 port 22: Connection timed out", FailureKind.NETWORK),
        ('Data could not be sent to remote host "s1-old". Make sure this host can be reached over ssh:', FailureKind.NETWORK),
        ('Data could not be sent to remote host "n1". Make sure this host can be reached over ssh:', FailureKind.NETWORK),
    ],
)
def test_a_host_is_not_blamed_for_another_that_does_a_task_for_it(said: str, kind: FailureKind) -> None:
    ledger = Ledger(["n1"], ["n1", "s1", "10.0.0.9"])
    ledger.feed(unreachable(said))
    ledger.feed(stats(dark={"n1": 1}, processed={"n1": 1}))
    assert ledger.outcomes(PlayStatus.FAILED)[0].kind is kind


def test_statistics_alone_can_fail_a_host() -> None:
    assert outcome(stats(failures={"n1": 1}, processed={"n1": 1})).status is HostStatus.FAILED
    assert outcome(stats(dark={"n1": 1}, processed={"n1": 1})).status is HostStatus.UNREACHABLE


def test_events_of_strangers_change_nobody() -> None:
    assert outcome(failed("localhost", msg="no"), stats(ok={"n1": 1})).status is HostStatus.OK


def test_what_goes_to_the_events_file_has_no_results_in_it() -> None:
    line = Ledger(["n1"]).feed(ok(changed=True, stdout="token-8c1f", observation={"kubeconfig": "secret"}))

    assert line.changed
    assert b"token-8c1f" not in msgspec.json.encode(line)
    assert b"secret" not in msgspec.json.encode(line)


@pytest.mark.parametrize("raw", [[], {"event_data": {}}, {"event": "runner_on_ok", "event_data": {"res": [1]}}])
def test_what_is_no_event_is_refused(raw: object) -> None:
    with pytest.raises(StepError, match="not an event"):
        Ledger(["n1"]).feed(raw)
