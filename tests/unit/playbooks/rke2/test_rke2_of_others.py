"""An RKE2 that somebody else has set up is known for theirs: by its files, and by the traces that ours has beside it."""

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.rke2 import refusals, traces

CONFIG, DROP_IN, TOKEN = "etc/rancher/rke2/config.yaml", "etc/rancher/rke2/config.yaml.d/50-rancher.yaml", "etc/rancher/rke2/token"
RELEASE, RESET = "var/lib/rancher/download/v1.35.7+rke2r1/rke2.linux-amd64.tar.gz", "var/lib/.rke2-reset-begun"
RANCHER = json.dumps({"server": "https://192.0.2.9:9345", "token": "abc"})


def host(root: Path, files: dict[str, str]) -> str:
    """A root with these files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


@pytest.mark.parametrize(
    ("files", "ours"),
    [
        ({CONFIG: "# Made by bringup.\ncni: canal\n"}, True),
        ({CONFIG: "cni: canal\n", TOKEN: "x", RELEASE: ""}, False),
        ({}, False),
        ({DROP_IN: RANCHER}, False),
        ({DROP_IN: RANCHER, RELEASE: ""}, False),
        ({DROP_IN: "token-file: /etc/rancher/rke2/token\n", TOKEN: "x"}, False),
        ({RELEASE: "", TOKEN: "x"}, True),
        ({RELEASE: "", RESET: "{}"}, True),
    ],
    ids=[
        "our file",
        "their file, and what we have left",
        "a quick start",
        "Rancher's",
        "Rancher's after ours was uninstalled by hand",
        "a token of theirs in a file",
        "ours, whose file somebody has removed",
        "ours, whose reset was killed",
    ],
)
def test_who_has_set_a_host_up_is_told_by_what_lies_there(tmp_path: Path, files: dict[str, str], ours: bool) -> None:
    assert refusals.is_own_config(host(tmp_path, files)) is ours


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"joined": True, "state": "active", "ready": True}, ""),
        ({"joined": True, "state": "active", "ready": True, "version": "v1.35.6+rke2r1"}, "write rke2.version: v1.35.6"),
        ({"joined": True, "state": "inactive", "ready": False}, "set up here by other means and is not ready (etcd)"),
        ({"joined": False, "state": "activating", "ready": False}, "set up here by other means and is not ready (etcd)"),
        ({"joined": False, "state": "inactive", "ready": False, "version": ""}, ""),
        ({"joined": True, "state": "", "ready": False, "version": ""}, ""),
        ({"joined": True, "state": "active", "ready": True, "version": ""}, "runs here from another place"),
    ],
    ids=[
        "as it is wanted",
        "another release",
        "down",
        "on its way up",
        "bare",
        "data on a disk that stayed",
        "a program elsewhere",
    ],
)
def test_what_others_have_set_up_is_taken_as_it_is_or_refused(seen: dict[str, Any], said: str) -> None:
    facts = {"version": "v1.35.7+rke2r1", "waiting_for": "etcd"} | seen
    running = seen["state"] in ("active", "activating")
    assert refusals.is_adopted(facts) is bool(running or (seen["joined"] and facts["version"]))
    found = refusals.release_refusal(facts, "v1.35.7+rke2r1", {})
    assert (said in found) if said else found == ""


def test_a_reset_knows_the_cluster_that_a_drop_in_joins(tmp_path: Path) -> None:
    root = host(tmp_path, {DROP_IN: RANCHER})
    assert traces.joined_server(f"{root}/{CONFIG}") == "192.0.2.9"
    host(tmp_path, {DROP_IN: "cni: canal\n", CONFIG: 'server: "https://[fd00::9]:9345"\n'})
    assert traces.joined_server(f"{root}/{CONFIG}") == "fd00::9"
