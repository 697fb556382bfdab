"""`bringup image build` before anything is built: where it may publish to, and which builds a newer one ends."""

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from steps.clients.store import Store
from steps.contract.runs.evidence import key
from tests.unit import small_image
from tests.unit.cli.conftest import COMMAND, PATIENCE, until
from tests.unit.served import served
from workflows.app.images import shipped_recipes
from workflows.app.runs import build_retries
from workflows.nodeimage import recipe_chain, recipe_files, recipe_resolution
from workflows.nodeimage.image_spec import load_image
from workflows.spec.starter import image as first_spec
from workflows.stages import IMAGE_ORDER

Write = Callable[..., str]


@pytest.fixture
def mute() -> Iterator[str]:
    """URL of a mirror that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/debian"


@pytest.fixture
def write(machine: Any) -> Write:
    """Writes an image spec of that name, and gives its file's."""
    (machine.folder / "published").mkdir()

    def made(name: str, mirror: str, **publish: Any) -> str:
        told = {"root": str(machine.folder / "published"), "url": "http://boot.example.org/images", **publish}
        spec = {"apiVersion": "bringup/v1", "kind": "Image", "name": name, "owner": "hpc", "revision": "1", "recipe": "base"}
        (machine.folder / f"{name}.yaml").write_text(yaml.safe_dump({**spec, "mirror": mirror, "publish": told}))
        return f"{name}.yaml"

    return made


def test_a_newer_build_ends_those_of_this_image_and_no_other(machine: Any, write: Write, mute: str) -> None:
    other = machine.start("image", "build", write("lab-gpu", mute), "--until", "image_lock")
    other.say("run lab-gpu-")
    older = machine.start("image", "build", write("lab", mute), "--until", "image_lock")
    older.say("run lab-")
    until(lambda: len(machine.processes()) >= 4, "both to fetch packages")  # commands, and a step of each
    newer = machine.start("image", "build", "lab.yaml", "--supersede", "--until", "image_lock")
    newer.say("is superseded, and is being cancelled")
    ended = older.end()
    assert (ended.code, "(a newer build)" in ended.text) == (65, True), ended.text
    assert other.process.poll() is None, "a name that begins alike is another image"
    machine.call("cancel", "--now")
    for one in (newer, other):
        one.process.kill()


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[str]]]:
    """URL of an HTTP proxy before mirrors that have nothing, and what it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            return

        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, served(server):
        yield f"http://127.0.0.1:{server.server_port}", asked


@pytest.mark.parametrize("said", ["spec", "environment"])
def test_packages_come_by_the_proxy_that_is_named(machine: Any, write: Write, proxy: tuple[str, list[str]], said: str) -> None:
    url, asked = proxy
    path = machine.folder / write("lab", "http://mirror.example/debian")
    plain: dict[str, str | None] = dict.fromkeys(("HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"))
    if said == "spec":
        path.write_text(f"{path.read_text()}proxy: {{http: {url}}}\n")
    named = url if said == "environment" else "http://127.0.0.1:1"
    done = machine.call("image", "build", "lab.yaml", "--until", "image_lock", **plain, http_proxy=named)
    assert done.code == 65, "the mirror is there, behind the proxy, and has none of them: " + done.text
    assert "mirror.example answers 404" in done.text
    assert any(one.startswith("http://mirror.example/debian/pool/") for one in asked), asked[:3]


@pytest.mark.parametrize(
    ("own", "named", "told"),
    [
        ("", "lab.yaml", "add lock: base.lock.json to lab.yaml, then bringup image lock lab.yaml, and build again"),
        ("base.lock.json", "lab.yaml", "lock anew: bringup image lock lab.yaml, and build again"),
        ("", "base", "bringup init --image base, then bringup image lock image.yaml, and build again"),
    ],
    ids=["shipped lock", "own lock", "shipped recipe"],
)
def test_what_mirrors_dropped_is_told_with_the_commands_that_mend_it(
    machine: Any, write: Write, proxy: tuple[str, list[str]], own: str, named: str, told: str
) -> None:
    path = machine.folder / write("lab", "http://mirror.example/debian")
    if own:
        path.write_text(f"{path.read_text()}lock: {own}\n")
        (machine.folder / own).write_bytes((recipe_files.RECIPES / "base.lock.json").read_bytes())
    plain: dict[str, str | None] = dict.fromkeys(("HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"))
    done = machine.call("image", "build", named, "--until", "image_lock", **plain, http_proxy=proxy[0])
    said = " ".join(done.text.split())
    assert (done.code, "answers 404" in said) == (65, True), done.text
    assert told in said


def test_a_build_that_could_not_start_ends_none(machine: Any, write: Write, mute: str) -> None:
    older = machine.start("image", "build", write("lab", mute), "--until", "image_lock")
    older.say("run lab-")
    spec = (machine.folder / "lab.yaml").read_text()
    (machine.folder / "lab.yaml").write_text(f"{spec}secrets: {{license: {{file: ./lost}}}}\n")
    newer = machine.call("image", "build", "lab.yaml", "--supersede")
    assert (newer.code, "secret license" in newer.err) == (64, True), newer.err
    assert "is superseded" not in newer.out
    assert older.process.poll() is None
    older.process.kill()


@pytest.mark.parametrize(
    ("publish", "words", "sentence"),
    [
        ({"root": "/no/such/folder"}, (), "publish.root /no/such/folder is no folder of this machine"),
        (
            {},
            ("--engine", "argo", "--builder-image", "registry.example.org/builder:1"),
            "pods have none of it\nhint: add publish.ssh",
        ),
        ({"url": "https://boot.example.org/images"}, (), "publish.url"),
    ],
    ids=["no folder", "argo", "https"],
)
def test_what_could_not_be_published_is_said_before_anything_is_built(
    machine: Any, write: Write, publish: dict[str, Any], words: tuple[str, ...], sentence: str
) -> None:
    done = machine.call("image", "build", write("lab", "http://127.0.0.1:9/debian", **publish), *words)
    assert done.code == 64
    assert sentence in done.err
    assert machine.runs == []


WITHOUT_RIGHTS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
"""Root may write everywhere but so."""


def test_a_tree_that_may_not_be_written_is_refused_before_anything_is_built(machine: Any, write: Write) -> None:
    command = [*WITHOUT_RIGHTS, str(COMMAND), "image", "build", write("lab", "http://127.0.0.1:9/debian")]
    (machine.folder / "published").chmod(0o555)
    own = machine.environment({})
    done = subprocess.run(command, cwd=machine.folder, env=own, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 64
    assert f"this user may not write to publish.root {machine.folder / 'published'}" in done.stderr
    assert machine.runs == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give its rights away")
def test_who_may_not_mount_is_told_before_packages_are_fetched(machine: Any, write: Write) -> None:
    command = ["setpriv", "--bounding-set=-sys_admin", str(COMMAND), "image", "build", write("lab", "http://127.0.0.1:9/debian")]
    own = machine.environment({})
    done = subprocess.run(command, cwd=machine.folder, env=own, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 64, done.stderr
    assert "this root may not mount (no capability SYS_ADMIN)" in done.stderr
    assert "hint: give the container SYS_ADMIN" in done.stderr
    assert machine.runs == []


def test_a_hint_names_the_very_spec(machine: Any, write: Write) -> None:
    path = machine.folder / write("lab", "http://127.0.0.1:9/debian")
    path.write_text(f"{path.read_text()}lock: lab.lock.json\n")
    done = machine.call("image", "build", "lab.yaml")
    assert done.code == 64
    assert "hint: make it: bringup image lock lab.yaml\n" in done.err


def test_the_first_spec_lacks_nothing_but_its_lock(machine: Any) -> None:
    done = machine.call("init", "--image")
    assert done.code == 0, done.err
    assert done.out.startswith("wrote image.yaml and image.schema.json; edit publish, then: bringup image lock image.yaml, and ")
    assert done.out.endswith("bringup image build image.yaml\n")
    checked = machine.call("validate", "image.yaml")
    assert (checked.code, "fix    make it: bringup image lock image.yaml" in checked.out) == (64, True), checked.text
    assert "image.yaml: not usable, 1 error, 0 warnings" in checked.out
    again = machine.call("init", "--image", "base")
    assert (again.code, "image.yaml exists" in again.err) == (64, True)
    other = machine.call("init", "--image", "other.yaml", "--force")
    assert (other.code, (machine.folder / "other.yaml").is_file()) == (0, True)
    gpu = machine.call("init", "--image", "gpu", "--force")
    assert "then: bringup image lock image.yaml" in gpu.out


@pytest.mark.parametrize("recipe", ["base", "compute", "gpu"])
def test_the_first_spec_is_for_racked_machines_and_wants_its_lock_first(machine: Any, recipe: str) -> None:
    assert machine.call("init", "--image", recipe).code == 0
    spec = load_image(machine.folder / "image.yaml")
    assert recipe_chain.read(recipe, machine.folder, spec.variables).foundation.kernel == "linux-image-amd64"
    assert not (machine.folder / f"{recipe}.lock.json").exists(), "the shipped one has another kernel"
    unlocked = machine.call("image", "build", "image.yaml")
    assert (unlocked.code, "bringup image lock image.yaml" in unlocked.err) == (64, True), unlocked.err


def test_the_first_spec_of_a_recipe_says_which_values_it_wants(machine: Any) -> None:
    done = machine.call("init", "--image", "site")
    assert "edit publish and give variables a value for time_server and admin_key, then: bringup image lock" in done.out, done.text
    lacks = machine.call("validate", "image.yaml")
    assert (lacks.code, "site.yaml has 2 errors" in lacks.text) == (64, True), lacks.text
    assert "layers" not in lacks.text, "a value that is not there is one error, and none of the place that wants it"
    spec = machine.folder / "image.yaml"
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC0 ada@example.org"
    spec.write_text(spec.read_text().replace("variables: {", f"variables: {{time_server: ntp.example.org, admin_key: {key}, "))
    assert "image.yaml: not usable, 1 error" in machine.call("validate", "image.yaml").out, "its lock alone"


@pytest.mark.parametrize("recipe", ["base", "compute"])
def test_a_recipe_that_is_built_by_its_name_has_the_kernel_of_its_lock(recipe: str) -> None:
    spec = load_image(first_spec(recipe, own_lock=False))
    assert (spec.lock, spec.variables) == (None, {})
    request = recipe_resolution.spec_request(spec, recipe_files.RECIPES)
    assert recipe_resolution.resolve(request).recipe.kernel.endswith("-cloud-amd64")


def test_the_first_spec_gives_test_machines_memory_for_what_the_recipe_may_weigh(machine: Any) -> None:
    found = {}
    for name in ("base", "compute", "gpu"):
        assert machine.call("init", "--image", name, "--force").code == 0
        found[name] = load_image(machine.folder / "image.yaml").boot
        budget = recipe_chain.read(name, machine.folder, {}).top.spec.budget.squashfs_mib
        assert budget is not None
        assert found[name].memory_mib >= budget + 2048
    assert (found["base"].memory_mib, found["compute"].memory_mib, found["gpu"].memory_mib) == (3072, 3072, 8192)
    assert found["gpu"].timeout > found["compute"].timeout
    assert machine.call("init", "--image", "--servers", "x").code == 64
    near = machine.call("init", "--image", "comput")
    assert (near.code, "did you mean compute?" in near.err, (machine.folder / "comput").exists()) == (64, True, False)
    assert "recipes are base, compute, gpu, site" in machine.call("init", "--image", "zzzzz").err


@pytest.mark.parametrize("words", [("image", "build"), ("image", "lock")])
def test_what_is_no_image_spec_is_one_error(machine: Any, words: tuple[str, str]) -> None:
    (machine.folder / "folder.yaml").mkdir()
    for name, data in {"empty": b"", "binary": b"\xff\xfe\x00", "cluster": b"kind: Cluster\n", "bad": b"a: [\n"}.items():
        (machine.folder / f"{name}.yaml").write_bytes(data)
    for name in ("empty", "binary", "cluster", "bad", "folder"):
        done = machine.call(*words, f"{name}.yaml")
        assert (done.code, "has 1 error\n" in done.err) == (64, True), done.err
    (machine.folder / "recipe.yaml").write_text("apiVersion: bringup/v1\nkind: ImageRecipe\nname: x\n")
    done = machine.call("image", "build", "recipe.yaml")
    assert "name it as `recipe: recipe.yaml`" in done.err


def test_a_shipped_recipe_is_built_by_its_name_to_the_end_of_its_tests(machine: Any) -> None:
    for words, said in (
        (("nosuch",), "'nosuch' is neither a file nor a shipped recipe (base, compute, gpu, site)"),
        (("nosuch",), "write one with `bringup init --image`"),
        (("base", "--until", "image_publish"), "recipe base has no place to be published to: bringup init --image base writes"),
        (("base", "--until", "image_status"), "recipe base has no place to be published to"),
        (("base", "--until", "foo"), f"an image has no such stage; stages are {', '.join(IMAGE_ORDER)}"),
        (("base", "--until", "image_layer"), "did you mean image_layers?"),
        (("gpu",), "recipe gpu comes without a lock\nhint: a spec has one of its own: bringup init --image gpu\n"),
    ):
        done = machine.call("image", "build", *words)
        assert (done.code, said in done.err) == (64, True), done.err
    assert machine.runs == []
    run = machine.start("image", "build", "base")
    run.say(" stages, plan sha256:")
    run.send(signal.SIGINT)
    assert run.end().code in (65, 130)  # the engine had begun, or not yet


TOLD = {"image_status": "", "image_lock": "", "image_layers": "", "image_assemble": "image ", "image_boot": "image "}


@pytest.mark.parametrize(("until", "told"), TOLD.items())
def test_where_an_image_lies_is_said_where_this_run_packed_it(until: str, told: str) -> None:
    lines = shipped_recipes.unpublished(small_image.recipe(), until, shipped=False)
    assert "".join(lines)[:6] == told


@pytest.mark.parametrize(
    ("records", "temporary"),
    [
        ({"archive": ("inconclusive", "no answer")}, True),
        ({"archive": ("inconclusive", "no answer"), "judge": ("inconclusive", "")}, True),
        ({"archive": ("inconclusive", "")}, False),
        ({"archive": ("fail", "")}, False),
        ({"archive": ("inconclusive", "no answer"), "other": ("fail", "refused")}, False),
        ({"archive": ("pass", "")}, False),
    ],
)
def test_what_may_pass_when_it_is_tried_again(
    records: dict[str, tuple[str, str]], temporary: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRINGUP_HOME", str(tmp_path))
    store = Store(tmp_path / "store")
    for task, (status, error) in records.items():
        told = {"status": status, "gate": "g/g", "reason": "so", "failure_class": None if status == "pass" else "runtime"}
        times = {"started": 1.0, "finished": 2.0, "attempt": 1, "shard": 0}
        names = {"run": "r", "stage": "image_lock", "task": task, "verb": "build", "input_digest": "d", "engine": "local"}
        record = {**names, **times, "verdict": told, "error": error}
        store.write(key("r", "image_lock", task, 0, 1), msgspec.json.encode(record))
    assert build_retries.may_pass("r") is temporary


def test_an_image_of_builders_means_nothing_here(machine: Any, write: Write) -> None:
    done = machine.call("image", "build", write("lab", "http://127.0.0.1:9/debian"), "--builder-image", "builder:1")
    assert done.code == 64
    assert "the local engine takes no --builder-image" in done.err
