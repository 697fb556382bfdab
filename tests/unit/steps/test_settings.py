"""Settings written into Argo CD: our keys of argocd-cm and no others, host keys and CAs, and a Secret that is never shown."""

import base64
import functools
import hmac
import json
from typing import Any

import pytest

from steps.contract import delivery
from steps.contract.canonical import canonical
from steps.contract.runs.evidence import Evidence
from steps.contract.task import Task, Verb
from steps.contract.verdict import FailureClass
from tests.unit.steps.front import Front, Refusal

KEY = "resource.customizations.health.argoproj.io_Application"
TREE_PATH = "apps/environments/lab/bootstrap/argocd-cm.yaml"
CONFIG = "/api/v1/namespaces/default/configmaps/argocd-cm"
SECRET = "/api/v1/namespaces/default/secrets/bringup-repository-0a1b2c3d"
URL = "https://git.example.org/platform/apps.git"
CANARY = "canary-7f3a9b2c1d"
HOST = "git.example.org"
HASHED = "|1|" + "|".join(base64.b64encode(one).decode() for one in (b"salt" * 5, hmac.digest(b"salt" * 5, HOST.encode(), "sha1")))


def run(desk: Any, **arguments: Any) -> tuple[int, Evidence]:
    code = desk.run(Task(stage="base_services", name="delivery_settings", verb=Verb.APPLY, arguments=arguments)).returncode
    return code, desk.record("base_services", "delivery_settings")


def settings(desk: Any, text: str = "return hs\n") -> dict[str, Any]:
    """The arguments for our keys, whose texts lie in the rendered tree."""
    tree = {TREE_PATH: f"# ours\napiVersion: v1\nkind: ConfigMap\ndata:\n  {KEY}: {json.dumps(text)}\n"}
    (desk.root / "tasks" / delivery.TREE_FILE).write_bytes(canonical(tree))
    keys = {KEY: delivery.text_digest(text)}
    return {"config_map": {"namespace": "default", "name": "argocd-cm", "path": TREE_PATH, "keys": keys}}


def argocd_cm(api: Front, **more: Any) -> None:
    meta = {"name": "argocd-cm", "namespace": "default", **more.pop("metadata", {})}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"url": "https://argocd.example.org", **more}}
    api.user.post(CONFIG.rsplit("/", 1)[0], body)


def data(api: Front, path: str) -> dict[str, str]:
    found: dict[str, str] = api.user.get(path).body["data"]
    return found


def told(desk: Any) -> str:
    return "".join(path.read_text() for path in (desk.root / "store").rglob("*") if path.is_file())


def test_only_our_keys_are_set(desk: Any, api: Front) -> None:
    argocd_cm(api)
    code, record = run(desk, **settings(desk))
    assert code == 0
    assert record.changes == (f"changed ConfigMap default/argocd-cm: {KEY}",)
    assert data(api, CONFIG) == {"url": "https://argocd.example.org", KEY: "return hs\n"}
    code, record = run(desk, **settings(desk, "return hs"))
    assert record.changes == ("unchanged ConfigMap default/argocd-cm: 1 key",)


@pytest.mark.parametrize(
    ("owner", "named"),
    [
        (
            {"annotations": {"meta.helm.sh/release-name": "argo"}, "labels": {"app.kubernetes.io/managed-by": "Helm"}},
            "Helm release argo",
        ),
        ({"annotations": {"argocd.argoproj.io/tracking-id": "self:/ConfigMap:default/argocd-cm"}}, "Argo CD's Application self"),
        (
            {"ownerReferences": [{"apiVersion": "argoproj.io/v1beta1", "kind": "ArgoCD", "name": "site", "uid": "0a1b"}]},
            "belongs to ArgoCD site,",
        ),
        ({"labels": {"app.kubernetes.io/instance": "self"}}, "Argo CD's Application or the Helm release self"),
        ({"labels": {"app.kubernetes.io/managed-by": "Helm"}}, "belongs to a Helm release,"),
    ],
)
def test_an_owner_who_would_undo_it_is_named_and_left_alone(desk: Any, api: Front, owner: dict[str, Any], named: str) -> None:
    argocd_cm(api, metadata=owner)
    code, record = run(desk, **settings(desk))
    assert code == 65
    assert record.verdict is not None
    assert record.verdict.failure_class is FailureClass.COMPARISON
    assert named in record.verdict.reason
    assert KEY in record.verdict.reason
    assert data(api, CONFIG) == {"url": "https://argocd.example.org"}


def test_what_comes_through_the_owner_is_left_as_it_is(desk: Any, api: Front) -> None:
    argocd_cm(api, metadata={"labels": {"app.kubernetes.io/managed-by": "Helm"}}, **{KEY: "return hs"})
    code, record = run(desk, **settings(desk))
    assert (code, record.changes) == (0, ("unchanged ConfigMap default/argocd-cm: 1 key",))


def test_without_argo_cd_there_is_nothing_to_set(desk: Any, api: Front) -> None:
    code, record = run(desk, **settings(desk))
    assert code == 65
    assert record.verdict is not None
    assert record.verdict.failure_class is FailureClass.DEPENDENCY
    assert not [write for write in api.writes if "configmaps" in write]


@pytest.mark.parametrize("text", ["return hs # of another plan\n", ""])
def test_keys_that_are_not_those_of_the_task_are_refused(desk: Any, api: Front, text: str) -> None:
    argocd_cm(api)
    arguments = settings(desk)
    settings(desk, text)
    assert run_code(desk, arguments) == 64
    (desk.root / "tasks" / delivery.TREE_FILE).write_bytes(canonical({}))
    assert run_code(desk, arguments) == 64
    assert data(api, CONFIG) == {"url": "https://argocd.example.org"}


def run_code(desk: Any, arguments: dict[str, Any]) -> int:
    made = Task(stage="base_services", name="delivery_settings", verb=Verb.APPLY, arguments=arguments)
    return int(desk.run(made).returncode)


def test_our_host_keys_are_added_to_those_that_are_trusted(desk: Any, api: Front) -> None:
    path = CONFIG.replace("argocd-cm", "argocd-ssh-known-hosts-cm")
    meta = {"name": "argocd-ssh-known-hosts-cm", "namespace": "default", "labels": {"app.kubernetes.io/managed-by": "Helm"}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"ssh_known_hosts": "github.com ssh-ed25519 AAAA\n"}}
    api.user.post(path.rsplit("/", 1)[0], body)
    (desk.root / "secrets/git_known_hosts").write_text("# ours\ngithub.com ssh-ed25519 AAAA\ngit.example.org ssh-ed25519 BBBB\n")
    wanted = {"known_hosts": {"namespace": "default", "host": HOST, "file": "git_known_hosts"}}
    code, record = run(desk, **wanted)
    assert (code, record.changes) == (0, (f"changed ConfigMap default/argocd-ssh-known-hosts-cm: 1 host key added for {HOST}",))
    assert data(api, path) == {"ssh_known_hosts": "github.com ssh-ed25519 AAAA\ngit.example.org ssh-ed25519 BBBB\n"}
    assert run(desk, **wanted)[1].changes == (
        f"unchanged ConfigMap default/argocd-ssh-known-hosts-cm: 0 host keys added for {HOST}",
    )


def test_host_keys_of_before_a_rotation_go_and_those_of_other_hosts_stay(desk: Any, api: Front) -> None:
    path = CONFIG.replace("argocd-cm", "argocd-ssh-known-hosts-cm")
    before = (
        "# of the chart\ngithub.com ssh-rsa AAAA\n"
        f"{HOST},192.0.2.7 ssh-rsa OLD1 comment\n{HOST} ssh-ed25519 OLD2\n{HASHED} ssh-rsa OLD3\n"
        f"*.example.org ssh-rsa CCCC\n@revoked {HOST} ssh-rsa DDDD\n{HOST} ssh-ed25519 BBBB theirs\n"
    )
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": path.rsplit("/", 1)[1], "namespace": "default"}}
    api.user.post(path.rsplit("/", 1)[0], body | {"data": {"ssh_known_hosts": before}})
    (desk.root / "secrets/git_known_hosts").write_text(f"{HOST} ssh-ed25519 BBBB ours\n")
    wanted = {"known_hosts": {"namespace": "default", "host": HOST, "file": "git_known_hosts"}}
    code, record = run(desk, **wanted)
    said = f"changed ConfigMap default/argocd-ssh-known-hosts-cm: 0 host keys added and 3 host keys removed for {HOST}"
    assert (code, record.changes) == (0, (said,))
    assert data(api, path)["ssh_known_hosts"] == (
        "# of the chart\ngithub.com ssh-rsa AAAA\n192.0.2.7 ssh-rsa OLD1\n"
        f"*.example.org ssh-rsa CCCC\n@revoked {HOST} ssh-rsa DDDD\n{HOST} ssh-ed25519 BBBB theirs\n"
    )


@pytest.mark.parametrize(
    ("text", "code"), [("*.example.org ssh-rsa AAAA", 0), ("github.com ssh-rsa AAAA", 64), ("git.example.org", 64)]
)
def test_a_file_without_a_key_of_the_server_takes_away_nothing(desk: Any, api: Front, text: str, code: int) -> None:
    path = CONFIG.replace("argocd-cm", "argocd-ssh-known-hosts-cm")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": path.rsplit("/", 1)[1], "namespace": "default"}}
    api.user.post(path.rsplit("/", 1)[0], body | {"data": {"ssh_known_hosts": "one ssh-ed25519 AAAA\n"}})
    (desk.root / "secrets/git_known_hosts").write_text(text)
    assert run_code(desk, {"known_hosts": {"namespace": "default", "host": HOST, "file": "git_known_hosts"}}) == code
    assert data(api, path)["ssh_known_hosts"].startswith("one ssh-ed25519 AAAA\n")


def test_host_keys_that_somebody_adds_meanwhile_are_not_lost(desk: Any, api: Front) -> None:
    path = CONFIG.replace("argocd-cm", "argocd-ssh-known-hosts-cm")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": path.rsplit("/", 1)[1], "namespace": "default"}}
    api.user.post(path.rsplit("/", 1)[0], body | {"data": {"ssh_known_hosts": "one ssh-ed25519 AAAA\n"}})
    (desk.root / "secrets/git_known_hosts").write_text("ours ssh-ed25519 CCCC\n")
    wanted = {"known_hosts": {"namespace": "default", "host": "ours", "file": "git_known_hosts"}}
    theirs = "one ssh-ed25519 AAAA\ntwo ssh-ed25519 BBBB\n"
    api.meanwhile[f"PATCH {path}"] = lambda: api.user.patch(path, {"data": {"ssh_known_hosts": theirs}})
    assert run(desk, **wanted)[0] == 75
    assert data(api, path) == {"ssh_known_hosts": theirs}
    assert run(desk, **wanted)[0] == 0
    assert data(api, path) == {"ssh_known_hosts": f"{theirs}ours ssh-ed25519 CCCC\n"}


TLS = CONFIG.replace("argocd-cm", "argocd-tls-certs-cm")


@functools.cache
def certificate(name: str) -> str:
    """A certificate that nobody signed, as PEM: OpenSSL reads it all the same."""

    def item(tag: int, *parts: bytes) -> bytes:
        body = b"".join(parts)
        size = bytes([len(body)]) if len(body) < 128 else bytes([0x82, *len(body).to_bytes(2)])
        return bytes([tag]) + size + body

    subject = item(0x30, item(0x31, item(0x30, bytes.fromhex("0603550403"), item(0x0C, name.encode()))))
    algorithm = item(0x30, bytes.fromhex("06032b6570"))  # Ed25519
    times = item(0x30, item(0x17, b"200101000000Z"), item(0x17, b"491231235959Z"))
    key = item(0x30, algorithm, item(0x03, bytes(33)))
    version, serial = item(0xA0, item(0x02, b"\x02")), item(0x02, b"\x01")
    about = item(0x30, version, serial, algorithm, subject, times, subject, key)
    return delivery.pem(base64.b64encode(item(0x30, about, algorithm, item(0x03, bytes(65)))).decode())


def tls_certs(api: Front, **more: Any) -> None:
    meta = {"name": "argocd-tls-certs-cm", "namespace": "default", **more.pop("metadata", {})}
    api.user.post(TLS.rsplit("/", 1)[0], {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, **more})


def trusting(desk: Any, text: str) -> dict[str, Any]:
    (desk.root / "secrets/git_ca").write_text(text)
    return {"certificates": {"namespace": "default", "host": HOST, "file": "git_ca"}}


def test_our_ca_is_what_argo_cd_knows_the_server_by(desk: Any, api: Front) -> None:
    """Also beside other servers of a chart that owns the ConfigMap: it leaves alone what it does not know."""
    tls_certs(api, metadata={"labels": {"app.kubernetes.io/managed-by": "Helm"}}, data={"other.example.org": certificate("other")})
    wanted = trusting(desk, f"a comment\n{certificate('one')}{certificate('two')}")
    code, record = run(desk, **wanted)
    assert (code, record.changes) == (0, (f"changed ConfigMap default/argocd-tls-certs-cm: 2 certificates added for {HOST}",))
    assert data(api, TLS) == {"other.example.org": certificate("other"), HOST: certificate("one") + certificate("two")}
    changes = (f"unchanged ConfigMap default/argocd-tls-certs-cm: 0 certificates added for {HOST}",)
    assert run(desk, **wanted)[1].changes == changes


@pytest.mark.parametrize("labels", [{}, {"app.kubernetes.io/managed-by": "Helm"}])
def test_after_a_rotation_the_ca_of_before_is_no_longer_trusted(desk: Any, api: Front, labels: dict[str, str]) -> None:
    tls_certs(api, metadata={"labels": labels})
    assert run(desk, **trusting(desk, certificate("old")))[0] == 0
    assert run(desk, **trusting(desk, certificate("old") + certificate("new")))[0] == 0
    assert data(api, TLS) == {HOST: certificate("old") + certificate("new")}
    code, record = run(desk, **trusting(desk, certificate("new")))
    said = f"changed ConfigMap default/argocd-tls-certs-cm: 0 certificates added and 1 certificate removed for {HOST}"
    assert (code, record.changes) == (0, (said,))
    assert data(api, TLS) == {HOST: certificate("new")}


def test_where_nobody_keeps_the_config_map_the_ca_is_the_only_one(desk: Any, api: Front) -> None:
    tls_certs(api, data={HOST: certificate("theirs")})
    assert run(desk, **trusting(desk, certificate("ours")))[0] == 0
    assert data(api, TLS) == {HOST: certificate("ours")}


def test_an_owner_who_gave_another_ca_for_the_server_is_named_and_left_alone(desk: Any, api: Front) -> None:
    tls_certs(api, metadata={"labels": {"app.kubernetes.io/managed-by": "Helm"}}, data={HOST: certificate("theirs")})
    code, record = run(desk, **trusting(desk, certificate("ours")))
    assert code == 65
    assert record.verdict is not None
    assert record.verdict.failure_class is FailureClass.COMPARISON
    assert HOST in record.verdict.reason
    assert "configs.tls.certificates" in record.verdict.next_step
    assert data(api, TLS) == {HOST: certificate("theirs")}


@pytest.mark.parametrize(
    "text",
    [
        "no certificate at all",
        delivery.pem("AAAABBBBCCCC"),
        certificate("ours") + delivery.pem("AAAABBBBCCCC"),
        certificate("ours") + certificate("cut off")[:60],
        f"{certificate('ours')}-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n",
        "",
    ],
)
def test_what_is_no_ca_or_holds_a_private_key_never_gets_into_a_config_map(desk: Any, api: Front, text: str) -> None:
    tls_certs(api)
    assert run_code(desk, trusting(desk, text)) == 64
    assert "data" not in api.user.get(TLS).body
    assert CANARY not in told(desk)


def repository(credentials: str = "git_credentials") -> dict[str, Any]:
    name = SECRET.rsplit("/", 1)[1]
    return {"repository": {"namespace": "default", "name": name, "url": URL, "credentials": credentials}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"ada:{CANARY}\n", {"username": "ada", "password": CANARY}),
        (f"{CANARY}\n", {"username": "git", "password": CANARY}),
        (
            f"-----BEGIN OPENSSH PRIVATE KEY-----\n{CANARY}\n-----END OPENSSH PRIVATE KEY-----\n",
            {"sshPrivateKey": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{CANARY}\n-----END OPENSSH PRIVATE KEY-----\n"},
        ),
    ],
)
def test_the_secret_of_the_repository(desk: Any, api: Front, text: str, expected: dict[str, str]) -> None:
    (desk.root / "secrets/git_credentials").write_text(text)
    code, record = run(desk, **repository())
    assert code == 0
    assert record.changes == ("created Secret default/bringup-repository-0a1b2c3d",)
    made = api.user.get(SECRET).body
    assert made["metadata"]["labels"] == {"argocd.argoproj.io/secret-type": "repository"}
    assert {key: base64.b64decode(value).decode() for key, value in made["data"].items()} == {"type": "git", "url": URL, **expected}
    (desk.root / "secrets/git_credentials").write_text(text.replace(CANARY, "canary-of-tomorrow-1"))
    assert run(desk, **repository())[1].changes == ("changed Secret default/bringup-repository-0a1b2c3d",)
    assert "canary" not in told(desk)
    assert base64.b64encode(CANARY.encode()).decode() not in told(desk)


def test_a_refused_secret_tells_nothing_of_it(desk: Any, api: Front) -> None:
    (desk.root / "secrets/git_credentials").write_text(f"ada:{CANARY}")
    assert run(desk, **repository())[0] == 0
    (desk.root / "secrets/git_credentials").write_text("ada:canary-of-tomorrow-1")
    api.refusals.append(Refusal("PATCH", SECRET))
    code, record = run(desk, **repository())
    assert code == 65
    assert {one.what for one in record.diagnosis} >= {"answer of the API server", "live object"}
    assert "canary" not in told(desk)
    assert base64.b64encode(CANARY.encode()).decode() not in told(desk)


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_secret_file_is_a_bad_task(desk: Any, api: Front, text: str) -> None:
    (desk.root / "secrets/git_credentials").write_text(text)
    assert run(desk, **repository())[0] == 64
    assert not [write for write in api.writes if "secrets" in write]
