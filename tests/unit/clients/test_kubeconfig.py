"""Kubeconfigs: where a token or certificate may stand, and what is said when it does not."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from steps.clients import kubeconfig
from steps.errors import BadTask

CREDENTIAL = '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "%s"}}'


def written(folder: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None) -> Path:
    server = {"server": "https://192.0.2.1:6443/", **(cluster or {})}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": server}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def plug_in(code: str) -> dict[str, Any]:
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": sys.executable, "args": ["-c", code], "interactiveMode": "Never"}}


def test_a_token_file_is_read_anew_each_time(tmp_path: Path) -> None:
    path = written(tmp_path, {"tokenFile": "token"})
    for token in ("first", "second"):
        (tmp_path / "token").write_text(f"{token}\n")
        assert kubeconfig.load(path).token == token


def test_an_exec_plug_in_is_asked_each_time(tmp_path: Path) -> None:
    given = CREDENTIAL % "from-the-plug-in"
    code = f"open({str(tmp_path / 'asked')!r}, 'a').write('x'); print({given!r})"
    path = written(tmp_path, plug_in(code))
    found = [kubeconfig.load(path) for _ in range(2)]
    assert [(one.server, one.token) for one in found] == [("https://192.0.2.1:6443", "from-the-plug-in")] * 2
    assert (tmp_path / "asked").read_text() == "xx"


@pytest.mark.parametrize(
    ("user", "cluster", "said"),
    [
        pytest.param({"tokenFile": "gone"}, {}, "tokenFile gone: No such file or directory", id="token file"),
        pytest.param({}, {"certificate-authority": "ca.crt"}, "certificate-authority ca.crt: No such file", id="certificate"),
        pytest.param({"client-key-data": "%"}, {}, "client-key-data is no base64 text", id="base64"),
        pytest.param(plug_in("import sys; sys.exit(3)"), {}, "the plug-in of context 'x' gave no credentials", id="plug-in"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], said: str) -> None:
    path = written(tmp_path, user, cluster)
    with pytest.raises(BadTask, match="kubeconfig") as caught:
        kubeconfig.load(path)
    assert said in str(caught.value)
