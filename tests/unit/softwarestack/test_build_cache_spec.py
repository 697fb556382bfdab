"""The place of a build cache in a stack spec, and what planning reads of one in a registry (a stand-in); 2 s of CPU."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from steps.contract.exit import ExitCode
from steps.errors import Refused, Unreachable
from steps.softwarestack.contract.stack_input import CacheRegistry, prefix_digest
from tests.unit import small_stack
from tests.unit.cli.conftest import Machine
from tests.unit.softwarestack import registry_stand_in
from workflows import examples
from workflows.app.run_options import StartOptions, Wish
from workflows.app.stacks import cache_listing, stack_builds, stack_pipeline, stack_plans
from workflows.engines.run_secrets import SecretMissing
from workflows.render import secret_volumes
from workflows.softwarestack import stack_build_plan
from workflows.softwarestack.stack_spec import StackSpec, load_stack
from workflows.spec import SpecErrors

EXAMPLE = Path(examples.__file__).parent / "stacks/stack.yaml"
LOGIN = "username: builder, password: {file: ./cache_password}"


def spec_of(cache: str, access: str = "") -> StackSpec:
    """Return the starter spec with a build cache."""
    more = f"cache: {cache}\n" + (f"cache_access: {{{access}}}\n" if access else "")
    return load_stack(EXAMPLE.read_text().replace("jobs: 8", f"{more}jobs: 8", 1))


@pytest.mark.parametrize(
    ("cache", "access", "url"),
    [
        ("oci://registry.example.org/hpc/cache", "", "https://registry.example.org"),
        ("oci://registry.example.org:5000/cache", "plain_http: true", "http://registry.example.org:5000"),
        ("oci://localhost:5000/cache", "", "http://localhost:5000"),
        ("oci://127.0.0.1:5000/cache", LOGIN, "http://127.0.0.1:5000"),
        ("oci://localhost/cache", "plain_http: false", "https://localhost"),
        ("oci://localhost/cache", "ca: {file: ca.pem}", "https://localhost"),
        ("oci://localhost.example.org/cache", "", "https://localhost.example.org"),
        ("'oci://[2001:db8::7]:5000/cache'", "", "https://[2001:db8::7]:5000"),
    ],
)
def test_a_registry_is_reached_with_tls_unless_it_is_local(cache: str, access: str, url: str) -> None:
    registry = spec_of(cache, access).cache_registry
    assert registry is not None
    assert registry.url == url
    assert registry.repository == cache.strip("'").removeprefix("oci://").partition("/")[2]


@pytest.mark.parametrize(
    ("cache", "access", "sentence"),
    [
        ("s3://bucket/cache", "", "nothing reads or writes one at s3://"),
        ("https://registry.example.org/cache", "", "nothing reads or writes one at https://"),
        ("oci://registry.example.org", "", "is no repository of a registry"),
        ("oci://registry.example.org/Cache", "", "is no repository of a registry"),
        ("oci://registry.example.org/a/../b", "", "is no repository of a registry"),
        ("oci://builder:secret@registry.example.org/cache", "", "a URL with a password is written out in the spec"),
        ("oci://registry.example.org/cache?x=y", "", "is no repository of a registry"),
        ("oci://registry.example.org/cache", "username: builder", "username and password belong together"),
        ("oci://registry.example.org/cache", f"{LOGIN}, plain_http: true", "the password would cross the network in clear"),
        ("oci://registry.example.org/cache", "ca: {file: ca.pem}, plain_http: true", "no server shows a certificate"),
        ("/srv/cache", "plain_http: true", "cache_access is about a registry"),
        ("relative/cache", "", "cache"),
    ],
)
def test_what_no_build_cache_can_be_is_refused(cache: str, access: str, sentence: str) -> None:
    with pytest.raises(SpecErrors, match=re.escape(sentence)):
        spec_of(cache, access)


def test_object_storage_is_refused_with_the_way_that_works() -> None:
    with pytest.raises(SpecErrors) as caught:
        spec_of("s3://bucket/cache")
    assert "oci://REGISTRY/REPOSITORY" in str(caught.value.errors[0].fix)


@pytest.mark.parametrize(
    ("cache", "lacks"),
    [("/srv/cache", "none of the folder cache"), ("oci://localhost/c", "no registry at localhost"), ("oci://r.example.org/c", "")],
)
def test_pods_need_a_cache_that_they_reach(cache: str, lacks: str) -> None:
    reason = spec_of(cache).bound_to_machine
    assert (lacks in reason[0]) if reason else not lacks


def test_tasks_that_read_the_cache_get_its_secrets_and_no_others_do(tmp_path: Path) -> None:
    cache: dict[str, Any] = {"cache": "oci://registry.example.org/hpc/cache"}
    login = {"username": "builder", "password": {"secret": {"name": "cache", "key": "token"}}, "ca": {"file": "ca.pem"}}
    small_stack.write(tmp_path, publish={"root": "/srv/stacks"}, **cache, cache_access=login)
    spec, resolved = small_stack.resolved(tmp_path, publish={"root": "/srv/stacks"}, **cache, cache_access=login)
    registry = CacheRegistry(
        url="https://registry.example.org", repository="hpc/cache", username="builder", password="cache_password", ca="cache_ca"
    )
    assert (resolved.stack.cache.folder, resolved.stack.cache.registry) == ("", registry)
    plan = stack_build_plan.compile_stack(spec, resolved, resolved.planned(()))
    needed = {task.stage: secret_volumes.needed_secrets(task, plan.secrets) for task in plan.tasks if task.verb.value == "build"}
    both = ("cache_ca", "cache_password")
    assert needed == {"stack_build": both, "stack_tree": both, "stack_test": ()}
    assert {file.name: file.certificates for file in plan.secrets} == {"cache_ca": "cache_access.ca", "cache_password": ""}
    assert plan.stages[0].changes[0].where == "oci://registry.example.org/hpc/cache"


def test_a_plan_leaves_out_what_the_registry_has(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    root = str(machine.folder / "root")
    with registry_stand_in.serving() as registry:
        registry.login = "builder:secret"
        place = f"oci://{registry.url.removeprefix('http://')}/hpc/cache"
        (machine.folder / "password").write_text("secret\n")
        login = {"username": "builder", "password": {"file": "password"}}
        spec = small_stack.write(machine.folder, publish={"root": root}, cache=place, cache_access=login)
        available = small_stack.hash_of("lz4")
        registry.manifests = {
            f"{prefix_digest(root)}-{hash_}": ("", b"") for hash_ in (available, *map("{:032}".format, range(2000)))
        }
        made = json.loads(machine.call("stack", "plan", str(spec), "-o", "json").out)
        assert (made["packages"], made["cached"] + made["externals"] + made["builds"]) == (4, 4)
        assert made["cached"] == 1
        registry.refuse = {("POST", "/uploads/"): [403]}
        Path(root).mkdir()
        done = machine.call("stack", "build", str(spec))
        assert (done.code, "answered 403 to the begin of an upload" in done.err) == (ExitCode.GATE_FAILED, True), done.err
        assert not machine.runs
        loaded = load_stack(spec)
        access = loaded.cache_registry
        assert access is not None
        assert len(cache_listing.hashes(access, loaded, tmp_path)) == 2001
        registry.login = "builder:changed"
        with pytest.raises(Refused, match="answered 401"):
            cache_listing.hashes(access, loaded, tmp_path)
        sees, (note,) = cache_listing.listed(access, loaded, tmp_path)
        assert (sees, "cannot be listed from here" in note, "answered 401" in note) == (frozenset(), True, True), note
    with pytest.raises(Unreachable, match="the registry does not answer"):
        cache_listing.hashes(access, loaded, tmp_path)
    sees, (note,) = cache_listing.listed(access, loaded, tmp_path)
    assert (sees, "the registry does not answer" in note) == (frozenset(), True), note
    done = machine.call("stack", "gc", "--packages", str(spec))
    assert (done.code, "has its build cache in a registry" in done.err) == (ExitCode.USAGE, True), done.err


def test_a_plan_counts_every_package_and_says_so_if_only_pods_have_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRINGUP_HOME", str(tmp_path / "home"))
    login = {"username": "builder", "password": {"secret": {"name": "cache", "key": "token"}}}
    publish, cache = {"root": "/srv/stacks", "claim": "share"}, "oci://registry.example.org/hpc/cache"
    spec = str(small_stack.write(tmp_path, publish=publish, cache=cache, cache_access=login))
    sentence = f"the build cache {cache} cannot be listed from here, so every package counts as a build: secret cache_password"
    planned = stack_plans.prepare(spec, None, None, ())
    assert (planned.summary()["builds"], planned.notes[0].startswith(sentence)) == (3, True), planned.notes
    assert any(line.startswith(sentence) for line in planned.sentences())
    prepared = stack_builds.prepare(spec, StartOptions(engine="argo"), Wish(), 0)
    assert [note.startswith(sentence) for note in prepared.notes] == [True]
    assert not prepared.pipeline.plan(tmp_path / "stack.yaml", prepared.loaded, prepared.wish).issues
    path, loaded = stack_pipeline.read(spec)
    (issue,) = stack_pipeline.STACK.plan(path, loaded, Wish()).issues
    assert (issue.severity, issue.path, issue.problem.startswith(sentence)) == ("warning", "cache", True)
    with pytest.raises(SecretMissing):
        stack_builds.prepare(spec, StartOptions(), Wish(), 0)
