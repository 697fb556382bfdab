"""A build cache in a real registry, CNCF distribution with TLS and a login: builds on two machines that share nothing else."""

import io
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest

from steps.clients.registry_client import MANIFEST, RegistryClient, RegistryLimits, RegistryMisread, RegistryRepository
from steps.contract.canonical import canonical, digest_bytes
from steps.contract.delivery import certificates
from steps.contract.verdict import FailureClass, Status
from steps.softwarestack.builds import package_builds
from steps.softwarestack.builds.package_builds import BuildSite
from steps.softwarestack.cache.build_cache_registry import registry_cache
from steps.softwarestack.cache.cache_packages import CachePackages
from steps.softwarestack.contract.package_build import BuildFailure, BuildOutcome, PackageBuilt
from steps.softwarestack.contract.stack_input import BuildCacheLocation, CacheRegistry, StackInput
from steps.softwarestack.tree import tree_assembly
from steps.softwarestack.tree.link_checks import TraceRules
from steps.stages.stack_build import gate
from steps.stages.stack_build.contract import BatchBuilt, BatchExpectation
from tests.boot.published import servers
from tests.hosts.hostlab.waiting import listens, until
from tests.stack.shell_builder import GOOD, ShellBuilder, site_of, stack_of
from tests.unit.softwarestack import registry_stand_in
from tests.unit.steps import authority

PROGRAM = "/usr/bin/docker-registry"
SECONDS = 30.0
USERS = "builder:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n"
"""The user builder with the password `secret`, as htpasswd writes it."""
CONFIG = """version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: FOLDER/blobs}}
auth: {htpasswd: {realm: cache, path: FOLDER/users}}
http: {addr: "127.0.0.1:PORT", secret: none, tls: {certificate: FOLDER/server.pem, key: FOLDER/server.key}}
"""
QUICK = RegistryLimits(tries=2, backoff=0, patience=0)
RECIPES = {"a": GOOD, "b": f'test "$(cat $PACKAGES/a-1.0-*/bin/file)" = a && {GOOD}'}


@dataclass(frozen=True)
class RealRegistry:
    """A registry that runs on this machine."""

    process: subprocess.Popen[bytes]
    url: str
    authorities: tuple[str, ...]
    password: str = "secret"

    def site(self, folder: Path, name: str, *, signed_by: Path | None = None) -> BuildSite:
        """Return the surroundings of builds on a machine of its own, with the cache in the registry."""
        machine = folder / name
        machine.mkdir(exist_ok=True)
        registry = CacheRegistry(url=self.url, repository="hpc/cache", username="builder", password="cache_password", ca="cache_ca")
        signers = (signed_by.with_suffix(".pub").read_text(),) if signed_by else ()
        location = BuildCacheLocation(folder="", registry=registry, signers=signers)
        stack = msgspec.structs.replace(stack_of(machine, "a", "b"), cache=location)
        cache = registry_cache(
            location, stack.root, machine / "archives", password=self.password, authorities=self.authorities, limits=QUICK
        )
        site = site_of(machine, stack, ShellBuilder(RECIPES))
        return msgspec.structs.replace(site, cache=cache, key=signed_by)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The registry's program; where its package is not installed it is unpacked, because installing it would start one here."""
    installed = shutil.which(PROGRAM)
    folder = tmp_path_factory.mktemp("registry")
    return Path(installed) if installed else servers.unpacked("docker-registry", folder) / PROGRAM.lstrip("/")


@pytest.fixture
def registry(program: Path, tmp_path: Path) -> Iterator[RealRegistry]:
    folder = tmp_path / "registry"
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ca = authority.root(folder, "ca")
    authority.server(folder, "server", ca)
    (folder / "users").write_text(USERS)
    (folder / "config.yml").write_text(CONFIG.replace("FOLDER", str(folder)).replace("PORT", str(port)))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "serve", folder / "config.yml"], stdout=log, stderr=log)
    try:
        assert until(lambda: listens("127.0.0.1", port), SECONDS), (folder / "log").read_text()
        yield RealRegistry(process, f"https://127.0.0.1:{port}", certificates(ca.read_text()))
    finally:
        process.kill()
        process.wait()


def build(site: BuildSite, name: str) -> PackageBuilt:
    package = next(package for package in site.stack.packages if package.name == name)
    return package_builds.build_package(site, package)


def require_cause(stack: StackInput, result: PackageBuilt, failure: BuildFailure, kind: FailureClass) -> None:
    """Require that a build failed with a cause, and that the gate names it."""
    assert (result.outcome, result.failure) == (BuildOutcome.FAILED, failure), result
    seen = BatchBuilt(stack=stack.digest, batch=0, packages=(result,))
    verdict = gate.batch(seen, BatchExpectation(stack=stack.digest, packages=(result.hash,)))
    assert (verdict.status, verdict.failure_class) == (Status.FAIL, kind)
    assert f"({failure.value})" in verdict.reason


def test_machines_share_packages_through_a_real_registry(registry: RealRegistry, tmp_path: Path) -> None:
    """One machine builds and signs `a`, another takes it from the registry, builds `b`, and assembles the tree."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    first, second = (registry.site(tmp_path, name, signed_by=tmp_path / "key") for name in ("first", "second"))
    assert build(first, "a").outcome is BuildOutcome.BUILT
    assert [build(second, name).outcome for name in "ab"] == [BuildOutcome.CACHED, BuildOutcome.BUILT]
    assert first.cache.hashes() == {package.hash for package in first.stack.packages}
    seen = tree_assembly.assemble(tmp_path / "trees", first.stack, CachePackages(first.stack, first.cache), TraceRules())
    assert (seen.problems, len(seen.packages)) == ((), 2)
    for site in (first, second):
        assert list((site.scratch.parent / "archives").iterdir()) == []


def test_a_registry_that_is_away_fails_a_build_that_is_tried_again(registry: RealRegistry, tmp_path: Path) -> None:
    site = registry.site(tmp_path, "first")
    assert build(site, "a").outcome is BuildOutcome.BUILT
    denied = replace(registry, password="guess").site(tmp_path, "second")
    result = build(denied, "b")
    require_cause(denied.stack, result, BuildFailure.PERMISSION, FailureClass.PERMISSION)
    assert not result.retry
    registry.process.kill()
    registry.process.wait()
    result = build(site, "b")
    require_cause(site.stack, result, BuildFailure.REGISTRY, FailureClass.DEPENDENCY)
    assert result.retry


def test_the_stand_in_answers_as_the_real_registry(registry: RealRegistry) -> None:
    """Compare answers that the rules of the cache rest on: absent things, a manifest without its blobs, a second upload."""
    real = RegistryRepository(
        url=registry.url, name="other/cache", username="builder", password=registry.password, authorities=registry.authorities
    )
    with registry_stand_in.serving() as stand_in:
        stand_in.login = f"builder:{registry.password}"
        imitated = RegistryRepository(url=stand_in.url, name="other/cache", username="builder", password=registry.password)
        seen, expected = ([*answers(RegistryClient(repository, QUICK))] for repository in (imitated, real))
    assert seen == expected
    assert expected[-1] == ["one", "two"]


def answers(client: RegistryClient) -> Iterator[object]:
    """Yield what a new repository answers to a sequence of requests."""
    blob, digest = b"content", digest_bytes(b"content")
    descriptor = {"mediaType": "application/octet-stream", "digest": digest, "size": len(blob)}
    manifest = canonical({"schemaVersion": 2, "mediaType": MANIFEST, "config": descriptor, "layers": [descriptor]})
    client.require_registry()
    yield client.manifest("one")
    client.require_push()
    yield client.blob(digest, 10)
    yield client.download(digest, 10, io.BytesIO())
    yield list(client.tags())
    with pytest.raises(RegistryMisread):
        client.put_manifest("one", MANIFEST, manifest)
    yield client.manifest("one")
    with pytest.raises(RegistryMisread):
        client.upload(digest, len(blob), io.BytesIO(b"another"))
    yield client.blob(digest, 10)
    for _ in range(2):
        client.upload(digest, len(blob), io.BytesIO(blob))
    out = io.BytesIO()
    yield client.download(digest, len(blob), out)
    yield out.getvalue()
    for tag in ("two", "one", "one"):
        client.put_manifest(tag, MANIFEST, manifest)
    yield client.manifest("two")
    yield sorted(client.tags())
