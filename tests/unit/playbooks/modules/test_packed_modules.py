"""A packed module does what Ansible's own way of sending it does, with the same arguments, results and refusals."""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.parameters import remove_values

from steps.clients.ansible import module_packing
from steps.clients.ansible.workspace import playbook_path
from steps.stages.os_prep.contract import NodesExpectation
from workflows.spec.sections.hosts import HostGroup

PLAYBOOKS = playbook_path("os_prep").parent
LIBRARY = PLAYBOOKS / "library"


def loaded(path: Path) -> Any:
    """A module that lies where no import finds it."""
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def answer(folder: Path, *more: str, profile: dict[str, Any], settings: dict[str, str] | None = None) -> dict[str, Any]:
    """Run module node_profile by Ansible in check mode on this machine and return its result; `more` are further options."""
    told = json.dumps({"profile": profile, "hostname": "other", "groups": ["gpu"]})
    command = [str(Path(sys.executable).with_name("ansible")), "localhost", "--check", "--diff", "--connection", "local", *more]
    command += ["--extra-vars", json.dumps({"ansible_python_interpreter": sys.executable}), "--module-name", "node_profile"]
    settings = {**(settings or {}), "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"), "ANSIBLE_HOME": str(folder)}
    # without -vvv, Ansible leaves the diff out of what it keeps
    subprocess.run(
        [*command, "-vvv", "--tree", str(folder / "said"), "--args", told],
        env=os.environ | settings,
        capture_output=True,
        check=True,
    )
    found: dict[str, Any] = json.loads((folder / "said/localhost").read_text())
    return found


PROFILE: dict[str, Any] = {
    "sysctls": {"kernel.no_such_value": "1"},
    "files": [{"path": "/etc/bringup-no-such-folder/ü", "content": 'a "quoted"\n\\line — 😀\n'}],
    "directories": {"/proc": "0755"},
    "gpu_groups": ["gpu"],
    "gpu": {"hugepages": {}, "memlock": "unlimited"},
}


def before(script: str, line: str) -> str:
    """The script with a line of ours that runs before all others."""
    first, rest = script.split("\n", 1)
    return f"{first}\n{line}\n{rest}"


def test_both_ways_say_the_same(tmp_path: Path) -> None:
    mark = tmp_path / "packed-ran"
    script = before(module_packing.packed_module(PLAYBOOKS, "node_profile"), f"open({str(mark)!r}, 'w').close()")
    (tmp_path / "node_profile.py").write_text(script)
    plain = answer(tmp_path, profile=PROFILE)
    assert not mark.exists()
    packed = answer(tmp_path, "--module-path", str(tmp_path), profile=PROFILE)
    assert mark.exists(), "Ansible took the module of the library"
    seen = [json.loads(one.pop("observation")) for one in (plain, packed)]
    assert seen[0]["items"] == seen[1]["items"]
    assert seen[0]["facts"].keys() == seen[1]["facts"].keys()
    assert plain == packed
    assert packed["changed"]
    path, content = PROFILE["files"][0]["path"], PROFILE["files"][0]["content"]
    (shown,) = [one for one in packed["diff"] if one["after_header"] == path]
    assert shown == {"before_header": path, "after_header": path, "before": "", "after": content}
    assert {"file /etc/bringup-no-such-folder/ü", "sysctl kernel.no_such_value"} <= {one["name"] for one in seen[1]["items"]}


LOGGED = "import sys, types; log = types.SimpleNamespace(LOG_USER=8, LOG_LOCAL3=152, LOG_INFO=6, "
LOGGED += "openlog=lambda *said: print(said, file=sys.stderr), syslog=lambda *said: print(said, file=sys.stderr)); "
LOGGED += "sys.modules['syslog'] = log"
"""A stand-in for the machine's log, which says what it is told on standard error."""


@pytest.mark.parametrize(
    ("words", "logged"),
    [
        ({"syslog_facility": "LOG_USER"}, "('ansible-node_profile', 0, 8)\n(6, 'Invoked in check mode')\n"),
        ({"syslog_facility": "LOG_LOCAL3"}, "('ansible-node_profile', 0, 152)\n(6, 'Invoked in check mode')\n"),
        (
            {"syslog_facility": "LOG_NONE", "target_log_info": "run 7"},
            "('ansible-node_profile', 0, 8)\n(6, 'run 7 Invoked in check mode')\n",
        ),
        ({"syslog_facility": "LOG_USER", "no_log": True}, ""),
    ],
)
def test_the_machines_log_is_written_as_ansible_says(words: dict[str, Any], logged: str) -> None:
    said = {"profile": {}, "_ansible_check_mode": True, "_ansible_module_name": "node_profile"}
    given = json.dumps(said | {f"_ansible_{key}": value for key, value in words.items()}).encode()
    script = module_packing.packed_module(PLAYBOOKS, "node_profile")
    script = script.replace('"<<INCLUDE_ANSIBLE_MODULE_COMPLEX_ARGS>>"', repr(given))
    ended = subprocess.run([sys.executable, "-"], input=before(script, LOGGED), capture_output=True, text=True, check=True)
    assert "observation" in json.loads(ended.stdout)
    assert ended.stderr == logged


def test_no_target_syslog_of_ansible_reaches_the_module_as_no_log(tmp_path: Path) -> None:
    settings = {"ANSIBLE_NO_TARGET_SYSLOG": "true"}
    kept = tmp_path / "given"
    leave = f"import atexit, pathlib; atexit.register(lambda: pathlib.Path({str(kept)!r}).write_bytes(ARGUMENTS))"
    (tmp_path / "node_profile.py").write_text(before(module_packing.packed_module(PLAYBOOKS, "node_profile"), leave))
    answer(tmp_path, "--module-path", str(tmp_path), profile={}, settings=settings)
    assert json.loads(kept.read_bytes())["_ansible_no_log"] is True


def test_what_a_module_does_not_catch_is_told_as_its_failure(tmp_path: Path) -> None:
    for name in ("library", "packed", "module_utils"):
        (tmp_path / name).mkdir()
    for name in ("start.py", "basic.py"):
        (tmp_path / "packed" / name).write_text((PLAYBOOKS / "packed" / name).read_text())
    (tmp_path / "module_utils/broken.py").write_text("raise OSError('no space left')\n")
    (tmp_path / "library/broken.py").write_text("from ansible.module_utils import broken\n")
    ended = subprocess.run(
        [sys.executable, "-"], input=module_packing.packed_module(tmp_path, "broken"), capture_output=True, text=True, check=False
    )
    said = json.loads(ended.stdout)
    assert (ended.returncode, said["failed"], said["msg"]) == (1, True, "broken: OSError: no space left")
    assert "broken.py" in said["exception"]


def test_all_modules_of_a_play_are_packed() -> None:
    for playbook, names in module_packing.MODULES.items():
        assert list(module_packing.modules(PLAYBOOKS, playbook)) == [f"{name}.py" for name in names]


def test_a_command_that_cannot_be_started_fails_the_module_as_with_ansible() -> None:
    script = module_packing.packed_module(PLAYBOOKS, "rke2_status")
    arguments = json.dumps({"service": "rke2-server", "_ansible_no_log": True}).encode()
    script = script.replace('"<<INCLUDE_ANSIBLE_MODULE_COMPLEX_ARGS>>"', repr(arguments))
    ended = subprocess.run([sys.executable, "-"], input=script, env={"PATH": ""}, capture_output=True, text=True, check=False)
    answer = json.loads(ended.stdout)
    assert (ended.returncode, answer["failed"], answer["rc"]) == (1, True, 2)
    assert answer["msg"].startswith("Error executing command: ")
    assert "systemctl" in answer["cmd"]


def test_a_module_that_needs_more_of_ansible_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library/needy.py").write_text("from ansible.module_utils.service import daemonize\n")
    with pytest.raises(ValueError, match=r"ansible\.module_utils\.service is Ansible's own"):
        module_packing.packed_module(tmp_path, "needy")


def test_only_what_is_listed_is_packed() -> None:
    assert module_packing.modules(PLAYBOOKS, "os_prep").keys() == {"node_profile.py"}
    assert module_packing.modules(PLAYBOOKS, "factory_cut") == {}


def test_all_imports_of_a_module_are_packed() -> None:
    for path in [*LIBRARY.glob("*.py"), *PLAYBOOKS.glob("module_utils/**/*.py")]:
        imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        names = {f"{node.module}.{alias.name}" for node in imports for alias in node.names} | {str(node.module) for node in imports}
        parts = module_packing._imports(PLAYBOOKS, path.read_text())
        assert parts.keys() == {name for name in names if name.startswith("ansible.") and module_packing._path(PLAYBOOKS, name)}


def test_the_modules_that_roles_use_are_packed() -> None:
    """Plays would not show a missing one: Ansible takes what is not packed from the library."""
    for role in ("os_prep", "rke2", "rke2_reset"):
        tasks = "\n".join(path.read_text() for path in PLAYBOOKS.glob(f"roles/{role}/tasks/*.yml"))
        used = {name for name in re.findall(r"^ +(\w+):$", tasks, re.MULTILINE) if (LIBRARY / f"{name}.py").exists()}
        plays = [path for path in PLAYBOOKS.glob("*.yml") if re.search(rf"(?:name|role): {role}$", path.read_text(), re.MULTILINE)]
        assert used <= {name for play in plays for name in module_packing.MODULES[play.stem]}, role


GOOD: tuple[dict[str, Any], ...] = (
    {},
    {"packages": ["curl", 7], "ports": "2379,2380"},
    {"sysctls": {"a.b": "1"}, "swap_off": "yes", "memlock": 8388608},
    {"swap_off": False, "selinux": "enforcing", "gpu": {"pcie_acs": "off", "files": [{"path": "/x"}]}},
    {"gpu": None, "users": []},
)


@pytest.mark.parametrize("profile", GOOD, ids=range(len(GOOD)))
def test_arguments_get_the_same_types_and_defaults(profile: dict[str, Any]) -> None:
    ours, spec = loaded(PLAYBOOKS / "packed/basic.py"), loaded(LIBRARY / "node_profile.py").SPEC
    theirs = ArgumentSpecValidator(spec).validate({"profile": profile})
    assert theirs.error_messages == []
    assert ours._settled("", spec, {"profile": profile}) == theirs.validated_parameters


CONFIG: dict[str, Any] = {
    "config": {"cni": "canal"},
    "token": "K10-secret",
    "files": [{"path": "~/token", "content": "secret text"}, {"path": "/x", "content": "y", "mode": 600, "restart": "no"}],
}


def test_lists_of_options_are_settled_as_ansible_settles_them() -> None:
    ours, spec = loaded(PLAYBOOKS / "packed/basic.py"), loaded(LIBRARY / "rke2_config.py").SPEC
    theirs = ArgumentSpecValidator(spec).validate(CONFIG)
    assert theirs.error_messages == []
    assert ours._settled("", spec, CONFIG) == theirs.validated_parameters
    for wrong in ({"files": ["/x"]}, {"files": [{"path": "/x"}]}, {"files": [{"path": "/x", "content": "y", "owner": "z"}]}):
        assert ArgumentSpecValidator(spec).validate(CONFIG | wrong).error_messages
        with pytest.raises(ValueError, match=r"\w"):
            ours._settled("", spec, CONFIG | wrong)


def test_secret_arguments_are_left_out_of_results_as_ansible_leaves_them_out() -> None:
    ours, spec = loaded(PLAYBOOKS / "packed/basic.py"), loaded(LIBRARY / "rke2_config.py").SPEC
    secrets = sorted(ours._secrets(spec, ours._settled("", spec, CONFIG)), key=len, reverse=True)
    assert secrets == ["secret text", "K10-secret", "y"]
    result = {"msg": "token K10-secret is another", "files": ["K10-secret", "secret text"], "changed": False, "code": 7}
    assert ours._masked(result, secrets) == remove_values(result, set(secrets))


BAD: tuple[dict[str, Any], ...] = (
    {},
    {"profile": {"package": ["curl"]}},
    {"profile": {"gpu": {"sysctl": {}}}},
    {"profile": {"selinux": "off"}},
    {"profile": {"sysctls": ["a"]}},
    {"profile": {"files": ["/etc/hosts"]}},
    {"profile": {"swap_off": "perhaps"}},
    {"profile": {"packages": {"curl": 1}}},
    {"profile": {}, "hosts": "n1"},
)


@pytest.mark.parametrize("given", BAD, ids=range(len(BAD)))
def test_the_same_arguments_are_refused(given: dict[str, Any]) -> None:
    ours, spec = loaded(PLAYBOOKS / "packed/basic.py"), loaded(LIBRARY / "node_profile.py").SPEC
    assert ArgumentSpecValidator(spec).validate(given).error_messages
    with pytest.raises(ValueError, match=r"\w"):
        ours._settled("", spec, given)


def test_plan_module_and_gate_ask_for_the_same_python() -> None:
    least = NodesExpectation(nodes=()).python_min
    assert f"Python ({least} or newer)" in str(HostGroup.model_fields["python"].description)
    start = (PLAYBOOKS / "packed/start.py").read_text()
    assert f"sys.version_info < ({least.replace('.', ', ')})" in start
    assert f"requires a minimum of Python {least};" in start
