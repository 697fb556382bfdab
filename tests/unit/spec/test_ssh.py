"""Section `ssh` of a spec, beside users and keys, as plays receive it."""

from typing import Any

import pytest

from workflows import catalog, spec
from workflows.plan import compiler, run_folders
from workflows.stages.host_access import secret_files, ssh_arguments

HEAD = """apiVersion: bringup/v1
kind: Cluster
name: x
owner: tests@example.org
revision: "1"
hosts: {servers: {role: server, ranges: s1}}
"""


@pytest.mark.parametrize(
    ("said", "given"), [("{}", {}), ("{post_quantum: false}", {}), ("{post_quantum: true}", {"post_quantum": True})]
)
def test_plays_hear_of_post_quantum_where_it_is_asked_for(said: str, given: dict[str, Any]) -> None:
    found = ssh_arguments(spec.load(f"{HEAD}ssh: {said}\n"))
    assert {name: value for name, value in found.items() if name == "post_quantum"} == given


def test_the_field_says_what_it_costs_and_what_is_lost_without_it() -> None:
    described = spec.json_schema("Cluster")["$defs"]["SshSettings"]["properties"]["post_quantum"]
    assert described["default"] is False
    for said in ("80 ms of CPU per login", "curve25519", "mlkem768"):
        assert said in described["description"]


@pytest.mark.parametrize("user", ["-oProxyCommand=x", "a=b"])
def test_a_user_that_is_no_name_is_not_made_one(user: str) -> None:
    with pytest.raises(spec.SpecErrors) as caught:
        spec.load(f"{HEAD}ssh: {{user: {user}}}\n")
    (error,) = caught.value.errors
    example = spec.json_schema("Cluster")["$defs"]["SshSettings"]["properties"]["user"]["examples"][0]
    assert error.fix == f"write {example}", "and nothing made of what was written"


@pytest.mark.parametrize(
    ("said", "path", "optional"),
    [
        ("{}", "~/.ssh/known_hosts", False),
        ("{known_hosts: ./k}", "./k", False),
        ("{host_key_policy: accept_new}", "~/.ssh/known_hosts", True),
        ("{host_key_policy: accept_new, known_hosts: ./k}", "./k", False),
    ],
)
def test_known_hosts_is_read_under_both_policies_and_only_the_users_own_may_lack(said: str, path: str, optional: bool) -> None:
    loaded = spec.load(f"{HEAD}ssh: {said}\n")
    (file,) = (one for one in secret_files(loaded) if one.name == "known_hosts")
    assert (file.path, file.optional, ssh_arguments(loaded)["known_hosts"]) == (path, optional, "known_hosts")


def test_the_proxy_before_ssh_has_its_login_by_reference() -> None:
    login = "http_proxy_user: site, http_proxy_password: {env: SSH_PROXY}"
    loaded = spec.load(f'{HEAD}ssh: {{http_proxy: "http://proxy:3128", {login}, jump_host: ops@b1}}\n')
    told = ssh_arguments(loaded)
    given = {"http_proxy": "http://proxy:3128", "http_proxy_user": "site", "http_proxy_password": "ssh_proxy_password"}
    assert {name: value for name, value in told.items() if "proxy" in name} == given
    assert [file.variable for file in secret_files(loaded) if file.name == "ssh_proxy_password"] == ["SSH_PROXY"]


def test_a_group_may_have_a_proxy_of_its_own() -> None:
    loaded = spec.load(HEAD.replace("ranges: s1", 'ranges: s1, http_proxy: "http://[2001:db8::1]:8080"'))
    assert "http_proxy" not in ssh_arguments(loaded)
    assert run_folders.hosts(loaded.machines)[0].variables == {"ssh_http_proxy": "http://[2001:db8::1]:8080"}


@pytest.mark.parametrize(
    ("ssh", "said"),
    [
        ('http_proxy: "https://proxy:3128"', "by plain http"),
        ('http_proxy: "http://proxy"', "not the URL of an HTTP proxy with its port"),
        ('http_proxy: "http://proxy:99999"', "not the URL of an HTTP proxy with its port"),
        ('http_proxy: "http://proxy:3128/x"', "not the URL of an HTTP proxy with its port"),
        ('http_proxy: "proxy:3128"', "not the URL of an HTTP proxy with its port"),
        ('http_proxy: "http://a b:1"', "not the URL of an HTTP proxy with its port"),
        ('http_proxy: "http://site@proxy:3128"', "http_proxy_user: NAME, http_proxy_password: {file: PATH}"),
        ('http_proxy: "http://site:canary-9@proxy:3128"', "http_proxy_user: NAME, http_proxy_password: {file: PATH}"),
        ('http_proxy: "http://proxy:3128", http_proxy_user: site', "one of them is missing"),
        ('http_proxy: "http://proxy:3128", http_proxy_password: {env: P}', "one of them is missing"),
        ('http_proxy: "http://proxy:3128", http_proxy_user: site, http_proxy_password: canary-9', "is written out in the spec"),
        ('http_proxy: "http://proxy:3128", http_proxy_user: "a:b", http_proxy_password: {env: P}', "http_proxy_user"),
        ("http_proxy_user: site, http_proxy_password: {env: P}", "the login has no effect without an HTTP proxy"),
    ],
)
def test_what_is_no_proxy_before_ssh_is_refused(ssh: str, said: str) -> None:
    with pytest.raises(spec.SpecErrors) as refused:
        spec.load(f"{HEAD}ssh: {{{ssh}}}\n")
    assert said in str(refused.value)
    assert "canary-9" not in str(refused.value)
    assert len(refused.value.errors) == 1


def test_the_login_may_be_for_the_proxy_of_a_group() -> None:
    head = HEAD.replace("ranges: s1", 'ranges: s1, http_proxy: "http://proxy:3128"')
    assert spec.load(f"{head}ssh: {{http_proxy_user: site, http_proxy_password: {{env: P}}}}\n").ssh.http_proxy_user == "site"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ('server: "127.0.0.1:6443"', "not the URL of an API server"),
        ('server: "http://127.0.0.1:6443"', "not the URL of an API server"),
        ('server: "https://127.0.0.1:66443"', "not the URL of an API server"),
        ('server: "https://a:b@127.0.0.1:6443"', "a URL with a password is written out"),
        ("tls_server_name: api.example.org", "write server: https://HOST:PORT beside it"),
    ],
)
def test_what_is_no_way_to_the_api_server_is_refused(target: str, said: str) -> None:
    with pytest.raises(spec.SpecErrors, match=said) as refused:
        spec.load(f"{HEAD}target: {{{target}}}\n")
    assert len(refused.value.errors) == 1


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("{}", {}),
        ('{server: "https://127.0.0.1:6443"}', {"server": "https://127.0.0.1:6443", "server_name": "10.0.0.9"}),
        (
            '{server: "https://[::1]:6443", tls_server_name: api}',
            {"server": "https://[::1]:6443", "server_name": "api"},
        ),
    ],
)
def test_the_play_that_makes_the_cluster_hears_where_it_is_reached(target: str, told: dict[str, str]) -> None:
    text = f"{HEAD}target: {target}\nrke2: {{registration_address: 10.0.0.9, tls_san: [api]}}\nstages: [rke2]\n"
    plan = compiler.compile_plan(spec.load(text), catalog.load())
    found = {one.name: one.arguments for one in plan.tasks if one.stage == "rke2"}["servers"]
    assert {name: value for name, value in found.items() if name.startswith("server")} == told


@pytest.mark.parametrize(
    ("name", "section", "is_right"),
    [
        ("other.example.org", "", False),
        ("other.example.org", "rke2: {tls_san: [other.example.org]}\n", True),
        ("s1", "", True),
        ("S1", "", True),
        ("kubernetes.default", "", True),
        ("kubernetes.default.svc.cluster.local", "", True),
        ("10.44.0.1", "rke2: {service_cidr: 10.44.0.0/16}\n", True),
        ("10.43.0.1", "rke2: {service_cidr: 10.44.0.0/16}\n", False),
        ("fd00:0::1", 'rke2: {tls_san: ["fd00::1"]}\n', True),
    ],
)
def test_the_certificate_has_the_name_by_which_it_is_verified(name: str, section: str, is_right: bool) -> None:
    text = f'{HEAD}target: {{server: "https://127.0.0.1:6443", tls_server_name: {name}}}\n{section}'
    if is_right:
        assert spec.load(text).target.tls_server_name == name
        return
    with pytest.raises(spec.SpecErrors, match="the API server's certificate has no such name") as refused:
        spec.load(text)
    assert [error.path for error in refused.value.errors] == ["target.tls_server_name"]
