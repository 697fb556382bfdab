"""Every secret inside a secret file is taken out, in each form in which a tool may print it; ordinary words stay."""

import base64
import json
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from steps.clients.redact import Redactor
from steps.contract.canonical import canonical
from steps.contract.runs.evidence import Evidence, decode
from steps.contract.verdict import passed

KEY = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIKcanary1keyLine000\nAwEHoUQDQgAEcanary2keyLine\n-----END EC PRIVATE KEY-----\n"
PACKED = base64.b64encode(KEY.encode()).decode()
KUBECONFIG = f"""apiVersion: v1
kind: Config
clusters: [{{name: lab, cluster: {{server: "https://10.0.0.1:6443"}}}}]
users:
- name: admin
  user:
    token: canary-token-5f2e
    client-key-data: {PACKED}
current-context: lab
"""
AUTH = base64.b64encode(b"robot:canary-registry-pw").decode()
FILES = {
    "kubeconfig token": (KUBECONFIG, "canary-token-5f2e"),
    "kubeconfig key": (KUBECONFIG, PACKED),
    "kubeconfig key, decoded": (KUBECONFIG, KEY.strip()),
    "kubeconfig key, one decoded line": (KUBECONFIG, "AwEHoUQDQgAEcanary2keyLine"),
    "quoted YAML": ("users:\n  password: 'canary #1 \"quoted\"'\n", 'canary #1 "quoted"'),
    "a number": ("password: 0012345678\n", "0012345678"),
    "below a secret key": ("secret:\n  - canary-one-aa\n  - value: canary-two-bb\n", "canary-two-bb"),
    "kind Secret": ("kind: Secret\nstringData:\n  anything: canary-string-data\n", "canary-string-data"),
    "kind Secret, base64": ("kind: Secret\ndata:\n  x: Y2FuYXJ5LWRhdGE=\n", "canary-data"),
    "JSON": ('{"api_key": "canary-json-key", "region": "eu-central"}', "canary-json-key"),
    "docker config": (json.dumps({"auths": {"registry.example.org": {"auth": AUTH}}}), AUTH),
    "docker config, decoded": (json.dumps({"auths": {"registry.example.org": {"auth": AUTH}}}), "canary-registry-pw"),
    "env": ("USER=robot\nPASSWORD=canary-env-pw\n", "canary-env-pw"),
    "env, quoted": ("export DB_PASSWORD='canary env pw'  \n", "canary env pw"),
    "env, one line": ("PASSWORD=canary-env-pw", "canary-env-pw"),
    "ini": ("[default]\naws_secret_access_key = canary/aws+key\n", "canary/aws+key"),
    "broken YAML": ("a: [\npassword: canary-broken\n", "canary-broken"),
    "netrc": ("machine x.example.org\n  login robot\n  password canary-netrc\n", "canary-netrc"),
    "lines": ("# tokens\ncanary7token8line9abc\n", "canary7token8line9abc"),
    "URL": ("proxy https://robot:canary-url-pw@proxy.example.org\n", "canary-url-pw"),
    "unicode": ("pässwörd-canary", "pässwörd-canary"),
    "whole": ("canary whole file\n", "canary whole file"),
    "cluster token": ("K10aaaa::server:canary-join-token\n", "canary-join-token"),
}


def _redactor(folder: Path, text: str) -> Redactor:
    (folder / "file").write_text(text)
    return Redactor([folder])


@pytest.mark.parametrize("name", FILES)
def test_a_secret_inside_a_file_is_taken_out_in_each_form(name: str, tmp_path: Path) -> None:
    text, secret = FILES[name]
    redactor = _redactor(tmp_path, text)
    assert secret not in redactor.text(f"error: {secret} was refused")
    nested = json.dumps({"log": json.dumps({"said": secret})})
    for form in (json.dumps({"x": secret}), msgspec.json.encode({"x": f"a {secret} b"}).decode(), nested):
        clean = redactor.data(form.encode()).decode()
        assert "canary" not in clean
        assert json.loads(clean)


@pytest.mark.parametrize(
    "text",
    [
        "password: short",
        "kind: Config\ncurrent-context: cluster\n",
        "secretName: registry-login\ntokenFile: /run/token\n",
        "# a comment about the scheduler\n",
        "gpu001 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE\ngpu002 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIF\n",
    ],
)
def test_what_is_no_secret_stays(text: str, tmp_path: Path) -> None:
    sentence = "short Config cluster scheduler registry-login /run/token gpu001 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE"
    assert _redactor(tmp_path, text).text(sentence) == sentence


def test_a_value_that_is_a_word_of_the_records_does_not_break_them(tmp_path: Path) -> None:
    record = Evidence(
        run="r1", stage="gang", task="control", verb="wait", shard=0, attempt=1, input_digest="sha256:0", engine="local",
        started=1.0, finished=2.0, verdict=passed("gang/control", "up"),
    )  # fmt: skip
    text = "ALGORITHM=sha256\nFIELD=finished\nSTATE=inconclusive\nPASSWORD=verdict\n"
    assert decode(_redactor(tmp_path, text).data(canonical(record))) == record


def test_aliases_that_multiply_are_read_once(tmp_path: Path) -> None:
    lines = ["a0: &a0 {password: canary-alias}"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    began = time.process_time()
    assert _redactor(tmp_path, "\n".join(lines)).text("canary-alias") == "[redacted]"
    assert time.process_time() - began < 1.0


def test_binary_and_missing_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00secret")
    assert Redactor([tmp_path, tmp_path / "missing"]).text("secret") == "secret"


def test_a_secret_that_comes_or_changes_later_is_known_at_once(tmp_path: Path) -> None:
    redactor = Redactor([tmp_path])
    assert redactor.text("canary-one canary-two") == "canary-one canary-two"
    (tmp_path / "token").write_text("canary-one")
    assert redactor.text("canary-one canary-two") == "[redacted] canary-two"
    (tmp_path / "new").write_text("canary-two")
    (tmp_path / "new").replace(tmp_path / "token")
    assert redactor.text("canary-one canary-two") == "canary-one [redacted]"


def test_many_secrets_and_a_large_text_are_quick(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"kubeconfig{number}").write_text(KUBECONFIG.replace("5f2e", f"{number:04d}"))
    redactor, text = Redactor([tmp_path]), "a line of a log without any secret\n" * 30_000
    began = time.process_time()
    assert redactor.text(text) == text
    assert time.process_time() - began < 1.0


def test_yaml_is_imported_only_for_files_that_need_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("canary-plain-token")
    code = (
        "import sys; from pathlib import Path; from steps.clients.redact import Redactor; "
        f"said = Redactor([Path({str(tmp_path)!r})]).text('canary-plain-token'); "
        "sys.exit('yaml' in sys.modules or 'canary' in said)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[3]).returncode == 0
