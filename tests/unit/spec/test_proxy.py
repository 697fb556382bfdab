"""HTTP proxies of the machines: the environment that plays get, with all that is reached without them."""

import pytest

from workflows import spec
from workflows.stages.host_access import secret_files, ssh_arguments

HEAD = """apiVersion: bringup/v1
kind: Cluster
name: x
owner: tests@example.org
revision: "1"
hosts:
  servers: {role: server, ranges: s1, addresses: {start: 10.9.0.1}}
  workers: {role: agent, ranges: "w[1-300]", addresses: WORKERS}
rke2: {cluster_cidr: 10.32.0.0/14, service_cidr: 10.43.0.0/16}
"""


def environment(proxy: str, workers: str = "{start: 10.9.1.1}") -> dict[str, str]:
    loaded = spec.load(HEAD.replace("WORKERS", workers) + f"proxy: {proxy}\n")
    found: dict[str, str] = ssh_arguments(loaded)["proxy"]
    return found


def test_plays_get_the_proxy_in_both_cases() -> None:
    found = environment('{http: "http://proxy.example.org:3128", no_proxy: [.corp]}')

    assert found["HTTP_PROXY"] == found["https_proxy"] == found["HTTPS_PROXY"] == "http://proxy.example.org:3128"
    outside = found["no_proxy"].split(",")
    assert {"localhost", ".svc", ".cluster.local", "10.32.0.0/14", "10.43.0.0/16", ".corp"} <= set(outside)
    assert {"10.9.0.0/24", "10.9.1.0/24", "10.9.2.0/24"} <= set(outside)


def test_few_machines_are_named_one_by_one_and_names_by_their_domain() -> None:
    outside = environment('{https: "http://proxy:3128"}', "{dns_suffix: example.org}")["NO_PROXY"].split(",")

    assert "10.9.0.1" in outside
    assert ".example.org" in outside
    assert len(outside) < 12


def test_no_proxy_is_no_argument() -> None:
    assert "proxy" not in ssh_arguments(spec.load(HEAD.replace("WORKERS", "{start: 10.9.1.1}")))


@pytest.mark.parametrize("text", ["{}", '{http: "http://user:canary-9@proxy:3128"}', '{http: "ftp://proxy"}'])
def test_what_is_no_proxy_is_refused(text: str) -> None:
    with pytest.raises(spec.SpecErrors) as refused:
        environment(text)
    assert "proxy" in str(refused.value)
    assert "canary-9" not in str(refused.value)


def test_a_login_in_a_url_is_told_where_it_belongs() -> None:
    with pytest.raises(spec.SpecErrors, match=r"write it as proxy: \{user: NAME, password: \{file: PATH\}\}"):
        environment('{http: "http://user:canary-9@proxy:3128"}')


def test_a_login_is_a_user_and_a_secret_file_and_no_part_of_the_plan() -> None:
    text = '{http: "http://proxy:3128", user: bringup, password: {env: PROXY_PASSWORD}}'
    loaded = spec.load(HEAD.replace("WORKERS", "{start: 10.9.1.1}") + f"proxy: {text}\n")
    told = ssh_arguments(loaded)
    assert (told["proxy_user"], told["proxy_password"]) == ("bringup", "proxy_password")
    assert told["proxy"]["HTTP_PROXY"] == "http://proxy:3128", "the environment of plays has no login: command lines show it"
    assert [file.variable for file in secret_files(loaded) if file.name == "proxy_password"] == ["PROXY_PASSWORD"]


@pytest.mark.parametrize(
    "login", ["user: bringup", "password: {env: PROXY_PASSWORD}", "user: 'a b', password: {env: P}", "user: a, password: canary-9"]
)
def test_half_a_login_is_none(login: str) -> None:
    with pytest.raises(spec.SpecErrors) as refused:
        environment(f'{{http: "http://proxy:3128", {login}}}')
    assert "canary-9" not in str(refused.value)
