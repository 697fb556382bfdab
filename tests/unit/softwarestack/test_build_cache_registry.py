"""The build cache in a registry, which is a stand-in in memory: equal to the one in a folder, and honest about each failure."""

import base64
import itertools
import json
import os
import random
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import msgspec
import pytest

from steps.clients import registry_login
from steps.clients.registry_client import RegistryClient, RegistryLimits, RegistryRepository
from steps.errors import BadTask, NotUnderstood, Refused, Unreachable
from steps.softwarestack.builds import package_builds
from steps.softwarestack.cache.build_cache import BuildCache
from steps.softwarestack.cache.build_cache_registry import DESCRIPTION, registry_cache
from steps.softwarestack.cache.build_cache_storage import CacheEntry, CacheError
from steps.softwarestack.cache.package_packing import PackedContent
from steps.softwarestack.contract.package_build import BuildFailure, BuildOutcome, PackageBuilt
from steps.softwarestack.contract.stack_input import BuildCacheLocation, CacheRegistry
from tests.stack import shell_builder
from tests.stack.shell_builder import ShellBuilder
from tests.unit.softwarestack import registry_stand_in, small_trees
from tests.unit.softwarestack.packed_packages import MODULE, PREFIX_FOLDER, ROOT
from tests.unit.softwarestack.registry_stand_in import StandInRegistry

HASH = "0123456789abcdefghijklmnopqrstuv"
TAG = f"{PREFIX_FOLDER}-{HASH}"
OTHER = f"sha256:{'0' * 64}"
QUICK = RegistryLimits(tries=3, backoff=0, patience=0)
"""Limits that wait for nothing."""


@pytest.fixture
def registry() -> Iterator[StandInRegistry]:
    with registry_stand_in.serving() as server:
        yield server


def cache_of(
    registry: StandInRegistry, folder: Path, *, signers: tuple[str, ...] = (), user: str = "", password: str = ""
) -> BuildCache:
    place = CacheRegistry(url=registry.url, repository="hpc/cache", username=user, password="cache_password")
    location = BuildCacheLocation(folder="", signers=signers, registry=place)
    return registry_cache(location, ROOT, folder / "temporary", password=password, limits=QUICK)


def put(cache: BuildCache, data: bytes, hash_: str = HASH, key: Path | None = None) -> CacheEntry:
    def write(file: IO[bytes]) -> PackedContent:
        file.write(data)
        return PackedContent(modules=(MODULE,), members=1, size=10_000)

    draft = CacheEntry(hash=hash_, title="zlib@1.3", root=ROOT, archive="", size=0, modules=(), members=0, unpacked=0)
    return cache.put(draft, write, key)


def content(cache: BuildCache, hash_: str = HASH) -> bytes:
    entry = cache.entry(hash_)
    assert entry is not None
    with cache.open_archive(entry) as file:
        return file.read()


def refusal(act: Callable[[], object]) -> CacheError:
    with pytest.raises(CacheError) as caught:
        act()
    return caught.value


def key_pair(folder: Path, name: str) -> tuple[Path, str]:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name], check=True)
    return folder / name, (folder / f"{name}.pub").read_text()


@pytest.mark.parametrize("seed", range(3))
def test_folder_and_registry_do_the_same(seed: int, registry: StandInRegistry, tmp_path: Path) -> None:
    """Each step of a random sequence has the same result in both, damage of an archive included."""
    print(f"seed {seed}")
    chance, hashes = random.Random(seed), [letter * 32 for letter in "abc"]
    caches = (BuildCache(BuildCacheLocation(folder=str(tmp_path / "folder")), ROOT), cache_of(registry, tmp_path))

    def damage(hash_: str, data: bytes) -> None:
        if hash_ in hashes and (entry := caches[0].entry(hash_)) is not None:
            next(caches[0].folder.glob(f"{hash_}-*")).write_bytes(data)
            registry.blobs[entry.archive] = data

    def result(act: Callable[[BuildCache], object], cache: BuildCache) -> object:
        try:
            return act(cache)
        except CacheError as error:
            return error.failure
        except (AssertionError, BadTask) as error:
            return type(error)

    outcomes = list[object]()
    for number in range(50):
        hash_ = chance.choice([*hashes, "not-a-hash"])
        data = f"{number} {hash_}".encode()
        acts: dict[str, Callable[[BuildCache], object]] = {
            "put": lambda cache, hash_=hash_, data=data: put(cache, data, hash_),  # type: ignore[misc]
            "entry": lambda cache, hash_=hash_: cache.entry(hash_),  # type: ignore[misc]
            "content": lambda cache, hash_=hash_: content(cache, hash_),  # type: ignore[misc]
            "hashes": lambda cache: cache.hashes(),
        }
        name = chance.choice([*acts, "content", "damage"] if number > 5 else ["put", "content"])
        if name == "damage":
            damage(hash_, data)
            continue
        in_folder, in_registry = (result(acts[name], cache) for cache in caches)
        assert in_folder == in_registry, (number, name, hash_)
        outcomes.append(in_folder)
    assert BuildFailure.TAMPERED in outcomes
    assert any(isinstance(outcome, bytes) for outcome in outcomes)


def test_an_entry_is_a_manifest_with_description_and_archive(registry: StandInRegistry, tmp_path: Path) -> None:
    cache = cache_of(registry, tmp_path)
    assert cache.entry(HASH) is None
    entry = put(cache, b"archive")
    assert registry.tags() == [TAG]
    manifest = json.loads(registry.manifests[TAG][1])
    assert (manifest["config"]["mediaType"], manifest["layers"][0]["digest"]) == (DESCRIPTION, entry.archive)
    assert json.loads(registry.blobs[manifest["config"]["digest"]])["entry"]["hash"] == HASH
    before = len(registry.requests)
    assert put(cache, b"another") == entry
    assert [method for method, *_ in registry.requests[before:]] == ["GET", "GET"], "an entry that is there was written"
    assert list((tmp_path / "temporary").iterdir()) == []


def test_two_writers_end_with_one_whole_entry(registry: StandInRegistry, tmp_path: Path) -> None:
    """Both have seen that there is none. Each gets an entry whose archive is its own, and readers see one of the two."""
    start = threading.Barrier(2)

    def before(method: str, path: str) -> None:
        if method == "PUT" and "/manifests/" in path:
            start.wait(20)

    registry.before = before
    with ThreadPoolExecutor(2) as beside:
        entries = list(beside.map(lambda data: put(cache_of(registry, tmp_path), data), [b"first", b"second"]))
    assert {content(cache_of(registry, tmp_path))} < {b"first", b"second"}
    for entry in entries:
        with cache_of(registry, tmp_path).open_archive(entry) as file:
            assert file.read() in (b"first", b"second")


def test_a_registry_with_immutable_tags_keeps_the_first(registry: StandInRegistry, tmp_path: Path) -> None:
    registry.immutable = True
    other = threading.Thread(target=put, args=(cache_of(registry, tmp_path), b"first"))
    begun = itertools.count()

    def before(method: str, path: str) -> None:
        if method == "PUT" and "/manifests/" in path and next(begun) == 0:
            other.start()
            other.join()

    registry.before = before
    entry = put(cache_of(registry, tmp_path), b"second")
    assert content(cache_of(registry, tmp_path)) == b"first"
    assert entry == cache_of(registry, tmp_path).entry(HASH)


def test_a_writer_that_is_killed_leaves_no_entry(registry: StandInRegistry, tmp_path: Path) -> None:
    """Each of its five changes in turn is the last before which it lives; the next writer stores a whole entry."""
    changes = ("POST", "PUT")
    for number in range(5):
        registry.blobs.clear()
        registry.manifests.clear()
        reader, starter = os.pipe()
        if (child := os.fork()) == 0:
            try:
                os.read(reader, 1)
                put(cache_of(registry, tmp_path), b"killed")
            finally:
                os._exit(0)  # never on into the tests
        changes, is_killed = itertools.count(), threading.Event()

        def before(
            method: str,
            _path: str,
            number: int = number,
            child: int = child,
            changes: Iterator[int] = changes,
            is_killed: threading.Event = is_killed,
        ) -> None:
            if method in ("POST", "PUT") and next(changes) == number:
                os.kill(child, signal.SIGKILL)
                is_killed.set()
                raise ConnectionAbortedError

        registry.before = before
        os.write(starter, b"x")
        _, status = os.waitpid(child, 0)
        os.close(reader)
        os.close(starter)
        assert os.WIFSIGNALED(status)
        assert is_killed.wait(20), "the child was not killed by this test"
        registry.before = lambda _method, _path: None
        assert cache_of(registry, tmp_path).entry(HASH) is None
        put(cache_of(registry, tmp_path), b"whole")
        assert content(cache_of(registry, tmp_path)) == b"whole"
    assert list((tmp_path / "temporary").iterdir()) == []


def _other_image(registry: StandInRegistry) -> None:
    manifest = json.loads(registry.manifests[TAG][1])
    manifest["config"]["mediaType"] = "application/vnd.oci.image.config.v1+json"
    registry.manifests[TAG] = ("", json.dumps(manifest).encode())


def _other_layer(registry: StandInRegistry) -> None:
    manifest = json.loads(registry.manifests[TAG][1])
    manifest["layers"] *= 2
    registry.manifests[TAG] = ("", json.dumps(manifest).encode())


def _layer(registry: StandInRegistry, field: str, value: object) -> None:
    manifest = json.loads(registry.manifests[TAG][1])
    manifest["layers"][0][field] = value
    registry.manifests[TAG] = ("", json.dumps(manifest).encode())


def _changed(registry: StandInRegistry, part: str, data: bytes | None) -> None:
    manifest = json.loads(registry.manifests[TAG][1])
    digest = (manifest["config"] if part == "config" else manifest["layers"][0])["digest"]
    if data is None:
        del registry.blobs[digest]
    else:
        registry.blobs[digest] = data


FAULTS: dict[str, tuple[Callable[[StandInRegistry], object], BuildFailure, bool, str]] = {
    "down": (lambda r: r.refuse.update({("GET", "/manifests/"): [503] * 9}), BuildFailure.REGISTRY, True, "answered 503"),
    "busy archive": (lambda r: r.refuse.update({("GET", "/blobs/"): [429] * 9}), BuildFailure.REGISTRY, True, "answered 429"),
    "denied": (lambda r: r.refuse.update({("GET", "/manifests/"): [403]}), BuildFailure.PERMISSION, False, "answered 403"),
    "login": (lambda r: setattr(r, "login", "ada:secret"), BuildFailure.PERMISSION, False, "answered 401"),
    "odd": (lambda r: r.refuse.update({("GET", "/manifests/"): [418]}), BuildFailure.REGISTRY, False, "answered 418"),
    "lost": (lambda r: setattr(r, "storage", f"{r.url}/v2/x/manifests"), BuildFailure.TAMPERED, False, "is missing"),
    "loop": (lambda r: r.refuse.update({("GET", "/blobs/"): [307] * 9}), BuildFailure.REGISTRY, False, "leads on and on"),
    "image": (_other_image, BuildFailure.TAMPERED, False, "its manifest names"),
    "layers": (_other_layer, BuildFailure.TAMPERED, False, "its manifest names"),
    "layer of another": (lambda r: _layer(r, "digest", OTHER), BuildFailure.TAMPERED, False, f"{OTHER} of 7 bytes in its manifest"),
    "layer of another size": (lambda r: _layer(r, "size", 8), BuildFailure.TAMPERED, False, "of 8 bytes in its manifest"),
    "led nowhere": (lambda r: setattr(r, "storage", "http://[::"), BuildFailure.REGISTRY, False, "an address that is none"),
    "no manifest": (lambda r: r.manifests.update({TAG: ("", b"[]")}), BuildFailure.TAMPERED, False, "is no entry of a build cache"),
    "no config": (lambda r: _changed(r, "config", None), BuildFailure.TAMPERED, False, "is missing"),
    "other config": (lambda r: _changed(r, "config", b"{}"), BuildFailure.TAMPERED, False, "has the digest"),
    "no archive": (lambda r: _changed(r, "layer", None), BuildFailure.TAMPERED, False, "is missing, and its entry names it"),
    "other archive": (lambda r: _changed(r, "layer", b"ARCHIVE"), BuildFailure.TAMPERED, False, "its entry says"),
    "short archive": (lambda r: _changed(r, "layer", b"arch"), BuildFailure.TAMPERED, False, "has 4 bytes"),
    "long archive": (lambda r: _changed(r, "layer", b"x" * 4_000_000), BuildFailure.TAMPERED, False, "more than the 7 bytes"),
}
"""Name → what goes wrong once an entry is there, its failure, whether another attempt may succeed, and a part of the message."""


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_has_its_cause(name: str, registry: StandInRegistry, tmp_path: Path) -> None:
    cache = cache_of(registry, tmp_path)
    put(cache, b"archive")
    disturb, failure, temporary, sentence = FAULTS[name]
    disturb(registry)
    kept = dict(registry.manifests)
    error = refusal(lambda: content(cache))
    assert (error.failure, error.is_temporary) == (failure, temporary)
    assert sentence in str(error)
    assert registry.url.removeprefix("http://") in str(error)
    assert registry.manifests == kept


def test_a_moment_without_registry_is_waited_for(registry: StandInRegistry, tmp_path: Path) -> None:
    registry.refuse = {
        ("GET", "/manifests/"): [503, 500],
        ("PUT", "/uploads/"): [502],
        ("PUT", "/manifests/"): [429],
        ("GET", "/blobs/"): [504],
    }
    cache = cache_of(registry, tmp_path)
    put(cache, b"archive")
    assert content(cache) == b"archive"
    assert not any(registry.refuse.values())


def test_a_registry_that_is_gone_stops_lists_and_writers(tmp_path: Path) -> None:
    with registry_stand_in.serving() as gone:
        cache = cache_of(gone, tmp_path)
    with pytest.raises(Unreachable, match="the registry does not answer"):
        cache.hashes()
    assert refusal(lambda: put(cache, b"archive")).is_temporary


@pytest.mark.parametrize("scheme", ["basic", "bearer"])
def test_a_login_is_met_and_never_leaves_the_registry(scheme: str, registry: StandInRegistry, tmp_path: Path) -> None:
    registry.login, registry.scheme = "ada:secret", scheme
    with registry_stand_in.serving() as storage:
        storage.blobs, registry.storage = registry.blobs, storage.url
        cache = cache_of(registry, tmp_path, user="ada", password="secret")
        put(cache, b"archive")
        assert content(cache) == b"archive"
        assert {path.partition("?")[0].rpartition("/")[0] for _, path, _ in storage.requests} == {"/storage"}
        assert {authorization for *_, authorization in storage.requests} == {""}
    assert cache.hashes() == {HASH}
    wrong = cache_of(registry, tmp_path, user="ada", password="hunter2")
    error = refusal(lambda: wrong.entry(HASH))
    assert error.failure is BuildFailure.PERMISSION
    assert "hunter2" not in str(error)
    with pytest.raises(Refused, match="answered 401"):
        wrong.hashes()


def test_a_redirect_within_the_registry_is_followed_with_the_login(registry: StandInRegistry, tmp_path: Path) -> None:
    registry.login, registry.storage = "ada:secret", registry.url
    cache = cache_of(registry, tmp_path, user="ada", password="secret")
    put(cache, b"archive")
    assert content(cache) == b"archive"
    sent = {authorization for _, path, authorization in registry.requests if path.startswith("/storage/")}
    assert sent == {f"Basic {base64.b64encode(b'ada:secret').decode()}"}


def client_of(url: str, user: str = "") -> RegistryClient:
    return RegistryClient(RegistryRepository(url=url, name="hpc/cache", username=user, password="secret"), QUICK)


def test_two_threads_log_in_at_once(registry: StandInRegistry) -> None:
    """The second request is refused for want of a login when the first has logged in."""
    numbers, both, logged_in = itertools.count(), threading.Event(), threading.Event()

    def before(_method: str, _path: str) -> None:
        number = next(numbers)
        if number == 0:
            assert both.wait(20)
        elif number == 1:
            both.set()
            assert logged_in.wait(20)
        else:
            logged_in.set()

    registry.login, registry.before = "ada:secret", before
    client = client_of(registry.url, "ada")
    with ThreadPoolExecutor(2) as beside:
        assert list(beside.map(client.manifest, ("one", "two"))) == [None, None]
    assert logged_in.is_set()


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInRegistry]:
    """The only way out of this machine; it answers to requests for other servers as a registry."""
    with registry_stand_in.serving() as server:
        for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.setenv("http_proxy", server.url)
        yield server


@pytest.mark.parametrize(
    ("host", "beside", "is_here"),
    [("127.0.0.1", "", True), ("127.0.0.1", "127.0.0.0/8", True), ("localhost", "", True), ("localhost.example.org", "", False)],
)
def test_a_registry_here_is_never_asked_by_a_proxy(
    host: str, beside: str, is_here: bool, registry: StandInRegistry, proxy: StandInRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", beside)
    client_of(registry.url.replace("127.0.0.1", host)).require_registry()
    assert (len(registry.requests), len(proxy.requests)) == ((1, 0) if is_here else (0, 1))


@pytest.mark.parametrize(
    ("url", "is_local", "is_confidential"),
    [
        ("http://localhost:5000", True, True),
        ("http://127.3.2.1/x", True, True),
        ("https://[::1]:5000", True, True),
        ("https://registry.example.org", False, True),
        ("http://registry.example.org", False, False),
        ("http://localhost.example.org", False, False),
        ("http://127.0.0.999", False, False),
        ("http://localhost@registry.example.org", False, False),
        ("http://[::", False, False),
        ("ftp://localhost", True, False),
        ("", False, False),
    ],
)
def test_where_a_login_may_go(url: str, is_local: bool, is_confidential: bool) -> None:
    assert (registry_login.is_local(url), registry_login.is_confidential(url)) == (is_local, is_confidential)


def test_a_login_goes_to_no_token_server_in_clear(registry: StandInRegistry, proxy: StandInRegistry) -> None:
    registry.login, registry.scheme, registry.realm = "ada:secret", "bearer", "http://auth.example.org/token"
    with pytest.raises(NotUnderstood, match=r"auth\.example\.org/token' is not reached by https"):
        client_of(registry.url, "ada").manifest("one")
    assert proxy.requests == []
    with pytest.raises(Refused, match="answered 401 to the request of a token"):
        client_of(registry.url).manifest("one")  # without a login there is nothing to lose
    assert [authorization for *_, authorization in proxy.requests] == [""]


def test_a_login_goes_to_no_other_registry_in_clear(proxy: StandInRegistry) -> None:
    proxy.login = "ada:secret"
    with pytest.raises(Refused, match="the login would cross the network in clear"):
        client_of("http://registry.example.org", "ada").manifest("one")
    assert {authorization for *_, authorization in proxy.requests} == {""}


UNWRITABLE: dict[str, tuple[dict[tuple[str, str], list[int]], BuildFailure, bool, str]] = {
    "no right": ({("POST", "/uploads/"): [403]}, BuildFailure.PERMISSION, False, "answered 403 to the begin of an upload"),
    "web server": ({("GET", "/v2/"): [404] * 9}, BuildFailure.REGISTRY, False, "answered 404 to the request of API version"),
    "read-only": ({("POST", "/uploads/"): [503] * 9}, BuildFailure.REGISTRY, True, "answered 503 to the begin of an upload"),
}
"""Name → answers of a registry that takes no package, the failure of a build, whether it is tried again, and its line."""


@pytest.mark.parametrize("name", UNWRITABLE)
def test_nothing_is_built_for_a_cache_that_does_not_take_it(name: str, registry: StandInRegistry, tmp_path: Path) -> None:
    refusals, failure, temporary, sentence = UNWRITABLE[name]
    registry.refuse = refusals
    result = built(tmp_path, cache_of(registry, tmp_path))
    assert (result.outcome, result.failure, result.retry) == (BuildOutcome.FAILED, failure, temporary)
    assert sentence in result.lines[0]
    assert registry.blobs == {}


def test_a_folder_that_nobody_can_make_takes_no_package(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    error = refusal(BuildCache(BuildCacheLocation(folder=str(tmp_path / "file/cache")), ROOT).require_writable)
    assert error.failure is BuildFailure.PERMISSION
    assert str(error) == f"{tmp_path}/file cannot be written, and the build cache lies there"


def test_a_cache_is_asked_once_for_the_right_to_write_and_not_for_packages_that_it_has(
    registry: StandInRegistry, tmp_path: Path
) -> None:
    cache = cache_of(registry, tmp_path)
    put(cache, b"archive", small_trees.hash_of("a"))
    registry.requests.clear()
    assert built(tmp_path, cache).outcome is BuildOutcome.CACHED
    assert {method for method, *_ in registry.requests} == {"GET"}
    for _ in range(2):
        cache.require_writable()
    assert [method for method, *_ in registry.requests].count("POST") == 1


def built(folder: Path, cache: BuildCache) -> PackageBuilt:
    """Return the result of a package for which there is no recipe, so that only the cache can have it."""
    stack = small_trees.stack(small_trees.package("a"))
    site = shell_builder.site_of(folder, stack, ShellBuilder({}))
    return package_builds.build_package(msgspec.structs.replace(site, cache=cache), stack.packages[0])


def test_two_thousand_entries_are_listed_in_pages(registry: StandInRegistry, tmp_path: Path) -> None:
    wanted = {f"{number:032}" for number in range(2000)}
    registry.manifests = {f"{PREFIX_FOLDER}-{hash_}": ("", b"") for hash_ in wanted}
    registry.manifests |= {"latest": ("", b""), f"{'0' * 8}-{HASH}": ("", b"")}
    assert cache_of(registry, tmp_path).hashes() == wanted
    assert len(registry.requests) == 4
    registry.page = 0  # a page without tags that names a next one
    assert cache_of(registry, tmp_path).hashes() == frozenset()


def test_another_server_is_no_empty_cache(registry: StandInRegistry, tmp_path: Path) -> None:
    """A web server answers 404 to everything, as a registry does for what is not there."""
    registry.refuse = {("GET", "/v2/"): [404] * 9}
    with pytest.raises(NotUnderstood, match="answered 404 to the request of API version"):
        cache_of(registry, tmp_path).hashes()


@pytest.mark.parametrize("body", [b"[]", b"\xff", b'{"tags": [1]}', b"<html>"])
def test_a_list_in_another_form_is_no_empty_cache(body: bytes, registry: StandInRegistry, tmp_path: Path) -> None:
    registry.bodies["/v2/hpc/cache/tags/list"] = body
    with pytest.raises(NotUnderstood, match="is no list of tags"):
        cache_of(registry, tmp_path).hashes()


def test_signatures_count_as_in_a_folder(registry: StandInRegistry, tmp_path: Path) -> None:
    key, public = key_pair(tmp_path, "ours")
    trusting = cache_of(registry, tmp_path, signers=(public,))
    put(cache_of(registry, tmp_path), b"archive")
    error = refusal(lambda: trusting.entry(HASH))
    assert (error.failure, "has no signature" in str(error)) == (BuildFailure.UNSIGNED, True)
    assert put(trusting, b"archive", "b" * 32, key).hash == "b" * 32
    assert content(trusting, "b" * 32) == b"archive"
