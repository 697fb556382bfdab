"""Real pods on the real kubelet run every verb from the step image, with the rendered pod spec; the target is a simulated cluster.

Home is the cluster with the real node, which also has a simulated node under change; the target is a second real API server, in
which the simulator plays all controllers. What publishes pushes to a Git server of the test, by HTTPS.
"""

import base64
import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from actors import pod_home, sources
from actors.cable import cable
from actors.pod_home import Object, apply_rendered, kept_alive, large_node, load_image, may_take_pods, render, volume
from actors.sources import Repository
from actors.step_pods import Ended, Pods
from kubelab import box
from kubelab.control_plane import ControlPlane
from kubelab.lab import Cluster
from kubelab.node import NAME

from steps.clients.environment import SIMULATOR, SIMULATOR_TOKEN
from steps.clients.store import Store
from steps.contract import delivery
from steps.contract.runs import approval, last_word
from steps.contract.task import Verb
from steps.contract.verdict import Status
from tests.unit.steps import chat
from workflows import examples
from workflows.engines.local.interventions import POD_DEADLINE
from workflows.engines.local.run_state import RunState
from workflows.plan.compiler import compile_plan
from workflows.rehearsal.rehearsal_run import RehearsalOptions
from workflows.rehearsal.simulated_cluster import ExistingServer, simulated_cluster, write_fleet
from workflows.spec import load

USER = 8737
RUN, PUBLISHING, TELLING = "by-pods", "by-publish", "by-announce"
VERBS = {verb.value for verb in Verb} - {"build", "localise"}
"""All verbs but `build`, which `test_image_pods` tests, and `localise`, which the last stage runs in `test_rehearse_on_argo`."""
STAGES = ("os_prep", "rke2", "base_services")
ANNOUNCE = "    announce: {webhook: {secret: {name: chat, key: url}}}\n"
SPEC = (
    examples.path("h200-16").read_text().replace("before: validation", "before: base_services")
    + ANNOUNCE
    + f"stages: [{', '.join(STAGES)}]\n"
)
TAG = "v1.0.0"
CANARY = "canary-7f3a"
UNDER_CHANGE = "busy001"

LOOK = """
import json, os, pathlib, stat
def write(path):
    try:
        pathlib.Path(path).write_text("x")
    except OSError as error:
        return error.strerror
    return "written"
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines())
secrets = {entry.name: (entry.read_text(), stat.S_IMODE(entry.stat().st_mode), entry.stat().st_uid)
           for entry in pathlib.Path("/bringup/secrets").iterdir() if not entry.name.startswith(".")}
places = ["/x", "/tmp/x", "/opt/bringup/steps/x", "/bringup/x", "/bringup/tasks/x", "/bringup/fleet/x", "/bringup/secrets/x",
          "/bringup/store/look", "/bringup/out/x"]
print(json.dumps({"ids": [os.getuid(), os.getgid()], "groups": os.getgroups(), "capabilities": status["CapEff"],
    "seccomp": status["Seccomp"], "no_new": status["NoNewPrivs"], "written": {place: write(place) for place in places},
    "secrets": secrets, "token": os.path.exists("/var/run/secrets/kubernetes.io")}))
"""


class Played(NamedTuple):
    """Everything that the tests look at."""

    pods: Pods
    run: RunState
    store: Path
    template: Object
    look: dict[str, Any]
    publication: Ended
    repository: Repository

    @property
    def every(self) -> list[Ended]:
        """The pods of the run, and the one that published."""
        return [*self.pods.ended, self.publication]


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run `bringup render` and return the folder of the rendered files."""
    return render(tmp_path_factory.mktemp("rendered"), SPEC)


@pytest.fixture(scope="module")
def home(cluster: Cluster, rendered: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A namespace that takes restricted pods alone, with all that pods name; yields the folder behind the store's volume."""
    digest = load_image(cluster.node, tmp_path_factory.mktemp("image"))
    print(f"step image {digest}")
    plane, store = cluster.plane, cluster.node.folder / "store"
    store.mkdir(mode=0o700)
    os.chown(store, USER, USER)
    plane.kubectl("create", "namespace", "bringup")
    plane.kubectl("label", "namespace", "bringup", "pod-security.kubernetes.io/enforce=restricted")
    apply_rendered(plane, rendered)
    pod_home.apply(plane, *volume(store), *pod_home.secrets(pod_home.template(rendered), CANARY), large_node(UNDER_CHANGE))
    with kept_alive(plane, UNDER_CHANGE):
        yield store
    plane.kubectl("delete", "namespace/bringup", f"node/{UNDER_CHANGE}", "pv/bringup-store", "--timeout=90s")


class Publication(NamedTuple):
    """A pod that publishes, which need not have ended, and the repository that it pushes to."""

    pods: Pods
    begun: str
    repository: Repository


@pytest.fixture(scope="module")
def publication(cluster: Cluster, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publication]:
    """The pod that publishes, of the same cluster delivered by Argo CD; a Git server takes its push."""
    folder, plane, login = tmp_path_factory.mktemp("published"), cluster.plane, f"{sources.USER}:{sources.PASSWORD}\n"
    with sources.serve(tmp_path_factory.mktemp("sources")) as server:
        repository = server.repository("apps")
        (folder / "password").write_text(login)
        argo = {"repo": repository.url, "revision": TAG, "project": "platform", "version": "2.14", "install": False}
        mode = {"mode": "argo_cd", "argo_cd": argo | {"credentials": {"file": "./password"}}}
        made = render(folder, SPEC + f"delivery: {json.dumps(mode)}\n")
        apply_rendered(plane, made)
        template = pod_home.template(made)
        pod_home.apply(plane, *pod_home.secrets(template, CANARY, git_credentials=login))
        trusted = home / sources.CERTIFICATE
        trusted.write_bytes(server.certificate.read_bytes())
        pods = Pods(plane, cluster.node, template, PUBLISHING, {"SSL_CERT_FILE": f"/bringup/store/{trusted.name}"})
        yield Publication(pods, pods.begin("base-services-publish", {}), repository)


class Told(NamedTuple):
    """Pods that announced an approval for real, and what the chat heard."""

    ended: list[Ended]
    got: list[dict[str, Any]]
    rendered: Path


@pytest.fixture(scope="module")
def told(cluster: Cluster, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """No rehearsal: two attempts of one run, then one of a run whose webhook refuses; the URL is a key of a Secret of home."""
    folder = tmp_path_factory.mktemp("told")
    made = render(folder, SPEC.replace("name: chat,", "name: chat-here,"))
    template = pod_home.template(made)
    with chat.serving(box.OUTSIDE) as webhook:
        pod_home.apply(cluster.plane, *pod_home.secrets(template, CANARY, **{approval.webhook_file("base_services"): webhook.url}))
        pods = [Pods(cluster.plane, cluster.node, template, run) for run in (TELLING, TELLING, f"{TELLING}-no")]
        ended = []
        for one in pods:
            webhook.answers = [403] if one.run != TELLING else [200]
            ended.append(one.start("base-services-announce", {}))
        yield Told(ended, webhook.got, made)


@pytest.fixture(scope="module")
def played(
    cluster: Cluster,
    home: Path,
    rendered: Path,
    publication: Publication,
    bare: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Played]:
    """The whole run, every step a pod, and one more pod that looks around in place of a step. The node first unpacks the image
    for the pod that publishes: the target starts meanwhile."""
    folder, template = tmp_path_factory.mktemp("target"), pod_home.template(rendered)
    fleet = write_fleet(folder, compile_plan(load(SPEC)))
    before, existing = bare.snapshot(), ExistingServer(kubeconfig=bare.kubeconfig)
    with ExitStack() as stack:
        target = stack.enter_context(
            simulated_cluster(folder / "cluster", fleet, RehearsalOptions(existing=existing).arguments(), existing)
        )
        laid = stack.enter_context(
            cable("127.0.0.1", urlsplit(target.url).port or 0, at=box.OUTSIDE)
        )  # the simulator is at loopback
        address = f"{box.OUTSIDE}:{laid.port}"
        pods = Pods(cluster.plane, cluster.node, template, RUN, {SIMULATOR: f"http://{address}", SIMULATOR_TOKEN: target.token})
        published = publication.pods.finish(publication.begun)  # pods that start before would each unpack the image
        looking = pods.begin("run-open", {}, "python3", "-c", LOOK)
        run = pods.play(lambda stage: _answer(home, stage))
        look = pods.finish(looking)
        yield Played(pods, run, home, template, json.loads(look.log), published, publication.repository)
    bare.restore(before)


def test_every_verb_ends_well_and_leaves_its_record(played: Played) -> None:
    for ended in played.every:
        print(f"{ended.verb:8} {ended.template:32} {ended.exit_code} {dict(ended.outputs)} {ended.message}")
    assert {ended.template: ended.exit_code for ended in played.every if ended.exit_code} == {}, _last_log(played)
    assert (played.run.phase, played.run.message) == ("Succeeded", "")
    assert {ended.verb for ended in played.every} == VERBS
    store = Store(played.store)
    for ended in played.pods.ended:
        stage, task = _task(ended)
        if ended.verb in ("report", "seal"):
            continue
        (record, *_) = store.records(RUN, stage, task)
        assert record.engine == "argo"
        assert last_word.read(ended.message) in [last_word.summary_of(one.verdict) for one in store.records(RUN, stage, task)]
        if record.verdict is not None:
            assert record.verdict.status in (Status.PASS, Status.SKIPPED), record.verdict
            assert ended.outputs.get("verdict", "pass") in ("pass", "skipped")
    sealed = json.loads((played.store / f"runs/{RUN}/seal.json").read_text())
    assert sealed["status"] == "Succeeded"
    assert len(sealed["files"]) > len(played.pods.ended)
    assert (played.store / f"runs/{RUN}/report/junit.xml").exists()


def test_a_waiting_approval_is_announced_from_a_pod(told: Told, home: Path) -> None:
    """Once for each run, with the webhook's URL in no argument, log or evidence; a refusal is what the pod itself says."""
    assert [(ended.exit_code, ended.outputs["verdict"]) for ended in told.ended] == [(0, "pass"), (0, "pass"), (65, "fail")]
    assert [one["run"] for one in told.got] == [TELLING, f"{TELLING}-no"]
    heard = told.got[0]
    assert (heard["stage"], heard["approvers"]) == ("base_services", ["ada@example.org", "grace@example.org"])
    how = f"bringup approve {TELLING} --as NAME --evidence {heard['evidence']} --engine argo --namespace bringup"
    assert heard["text"].endswith(how)
    kept = [path for run in (TELLING, f"{TELLING}-no") for path in (home / f"runs/{run}").rglob("*") if path.is_file()]
    assert len(kept) == 2 * len(told.ended)  # a record and a log of each
    shown = [path.read_text() for path in (*kept, *told.rendered.iterdir())]
    shown += [text for ended in told.ended for text in (ended.log, json.dumps(ended.pod), json.dumps(ended.runtime))]
    assert not [text for text in shown if chat.CANARY in text]


def test_the_tree_was_published_from_a_pod(played: Played) -> None:
    """By dulwich alone, whose scratch folder is the pod's own: the image has no git program, and its root cannot be written."""
    store, repository = Store(played.store), played.repository
    made = delivery.decode(store.read(delivery.key(PUBLISHING)) or b"{}")
    (record,) = store.records(PUBLISHING, *_task(played.publication))
    assert record.verdict is not None
    assert record.verdict.is_pass
    assert made.commit == repository.git("rev-parse", TAG) == repository.git("rev-parse", sources.BRANCH)
    assert repository.git("ls-tree", "-r", "--name-only", TAG).split() == record.observation["changed"]
    assert sources.PASSWORD not in played.publication.log


def test_what_containerd_ran_is_what_was_rendered(played: Played) -> None:
    for ended in played.every:
        process, linux = ended.runtime["process"], ended.runtime["linux"]
        assert (process["user"]["uid"], process["noNewPrivileges"], ended.runtime["root"]["readonly"]) == (USER, True, True)
        assert not any(process.get("capabilities", {}).values()), ended.template
        assert linux["resources"]["memory"]["limit"] == (3 if ended.verb == "play" else 1) << 30
        assert linux["resources"]["cpu"]["shares"] == 102
        assert linux["seccomp"]["defaultAction"] == "SCMP_ACT_ERRNO"
        mounts = {mount["destination"]: set(mount["options"]) for mount in ended.runtime["mounts"]}
        ours = {
            place: "ro" in options for place, options in mounts.items() if place.startswith("/bringup/") and place.count("/") == 2
        }
        asked = {mount["mountPath"] for mount in ended.pod["spec"]["containers"][0]["volumeMounts"]}
        secret = {"/bringup/secrets": True} if "/bringup/secrets" in asked else {}
        assert ours == secret | {"/bringup/tasks": True, "/bringup/fleet": True, "/bringup/store": False, "/bringup/out": False}
        assert not [place for place in mounts if "serviceaccount" in place]
        assert ended.pod["spec"]["serviceAccountName"] == f"bringup-{ended.verb}"


def test_a_step_is_nobody_special_and_writes_to_its_two_folders_alone(played: Played) -> None:
    look = played.look
    assert (look["ids"], USER in look["groups"], look["token"]) == ([USER, USER], True, False)
    assert (int(look["capabilities"], 16), look["no_new"], look["seccomp"]) == (0, "1", "2")
    written = {place for place, what in look["written"].items() if what == "written"}
    assert written == {"/bringup/store/look", "/bringup/out/x"}, look["written"]
    assert set(look["secrets"]) == {"known_hosts", "ssh_key"}
    assert {tuple(found) for found in look["secrets"].values()} == {(CANARY, 0o440, 0)}


def test_the_store_belongs_to_the_steps_and_keeps_no_secret(played: Played) -> None:
    files = [path for path in (played.store / "runs").rglob("*") if path.is_file()]
    assert {path.stat().st_uid for path in files} == {USER}
    kubeconfig = played.store / f"runs/{RUN}/secrets/kubeconfig"
    assert kubeconfig.stat().st_mode & 0o777 == 0o600
    open_to_all = [path for path in files if "secrets" not in path.parts]
    assert not [path for path in open_to_all if CANARY.encode() in path.read_bytes()]


def test_steps_stay_off_the_nodes_under_change(cluster: Cluster, played: Played) -> None:
    """By their affinity alone: without it the scheduler takes the other node, which is larger and could be had all the time."""
    assert {ended.pod["spec"]["nodeName"] for ended in played.every} == {NAME}
    assert played.pods.placed_without("affinity", "run-report", {"status": "Succeeded"}) == UNDER_CHANGE
    assert may_take_pods(cluster.plane, UNDER_CHANGE)


def test_the_embedded_engines_machine_says_what_runs_and_when(cluster: Cluster, played: Played) -> None:
    """Retries, several outputs, a fan-out with `when`, `depends` on a failure, a deadline, and an exit handler."""
    pods = Pods(cluster.plane, cluster.node, _small(played.template), "by-machine")
    run = pods.play(lambda stage: {})
    assert (run.phase, run.message) == ("Succeeded", "")
    paths = {path.removeprefix("by-machine."): node for path, node in run.nodes.items()}
    assert {path: node.phase for path, node in paths.items() if node.type in ("Pod", "Skipped")} == {
        "twice(0)": "Failed",
        "twice(1)": "Succeeded",
        "each(0:1)": "Succeeded",
        "each(1:2)": "Skipped",
        "each(2:3)": "Succeeded",
        "never": "Omitted",
        "slow": "Failed",
        "after": "Succeeded",
        "onExit.last": "Succeeded",
    }
    assert paths["slow"].message == POD_DEADLINE
    assert sorted(ended.log.split()[-1] for ended in pods.ended if ended.template == "say") == ["1", "3", "Succeeded", "seven"]
    codes = {ended.template: ended.exit_code for ended in pods.ended if ended.exit_code}
    assert codes == {"twice": 75, "slow": 128 + signal.SIGTERM}
    first, second = (_ran(ended) for ended in pods.ended if ended.template == "say" and ended.log.split()[-1] in "13")
    assert max(first[0], second[0]) <= min(first[1], second[1]), "one after another"


def test_no_step_asked_anything_of_home(cluster: Cluster, played: Played) -> None:
    """No step sends a request to home's API server, where it has no rights (see test_rights.py)."""
    ours = {f"system:serviceaccount:bringup:{ended.pod['spec']['serviceAccountName']}" for ended in played.every}
    assert len(ours) == len(VERBS)
    assert not [row for row in cluster.plane.audited() if row["user"]["username"] in ours]


def test_argos_containers_find_a_token_that_may_report_results_and_no_more(cluster: Cluster, played: Played) -> None:
    """Under the name by which Argo looks for it; Kubernetes has filled it in."""
    executor = played.template["spec"]["executor"]["serviceAccountName"]
    kept = cluster.plane.kubectl(
        "-n", "bringup", "get", "secret", f"{executor}.service-account-token", "-o", "jsonpath={.data.token}"
    )
    token = base64.b64decode(kept).decode()

    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "bringup"}}
    answer = cluster.plane.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review, token=token)
    rules = [rule for rule in answer["status"]["resourceRules"] if not rule["apiGroups"][0].endswith(".k8s.io")]
    assert [(rule["apiGroups"], rule["resources"], sorted(rule["verbs"])) for rule in rules] == [
        (["argoproj.io"], ["workflowtaskresults"], ["create", "patch"])
    ]


def _answer(store: Path, stage: str) -> dict[str, str]:
    """Return the answer of the rehearsal's approver: the digest of the stage before, as its evidence is now."""
    before = STAGES[STAGES.index(stage.replace("-", "_")) - 1]
    evidence = Store(store).evidence_digest(RUN, before)
    return {"decision": approval.PASS, "approver": approval.REHEARSAL, "evidence": evidence}


TWICE = """
import sys
with open("/bringup/out/many", "w") as many, open("/bringup/out/word", "w") as word:
    many.write("[1, 2, 3]"); word.write("seven\\n")
sys.exit(75 if sys.argv[1] == "0" else 0)
"""

SAY = """
import sys, threading
threading.Event().wait(5 if sys.argv[1].isdigit() else 0)  # longer than one of two pods may start after the other
print(sys.argv[1])
"""


def _small(template: Object) -> Object:
    """A pipeline of a few lines, with pods like those of a template."""
    (model,) = (one for one in template["spec"]["templates"] if one["name"] == "run-open")

    def pod(name: str, script: str, *arguments: str, **more: Any) -> Object:
        container = model["container"] | {"command": ["python3", "-u", "-c", script], "args": list(arguments)}
        return (
            {key: model[key] for key in ("serviceAccountName", "activeDeadlineSeconds")}
            | more
            | {"name": name, "container": container}
        )

    def outputs(**defaults: str) -> Object:
        rows = [{"name": name, "valueFrom": {"path": f"/bringup/out/{name}", "default": given}} for name, given in defaults.items()]
        return {"parameters": rows}

    def task(name: str, of: str, depends: str = "", word: str = "", **more: str) -> Object:
        given = {"arguments": {"parameters": [{"name": "word", "value": word}]}} if word else {}
        return {"name": name, "template": of, **({"depends": depends} if depends else {}), **given, **more}

    again = {"limit": 2, "retryPolicy": "Always", "expression": "asInt(lastRetry.exitCode) == 75", "backoff": {"duration": "1"}}
    many, word = (f"{{{{tasks.twice.outputs.parameters.{name}}}}}" for name in ("many", "word"))
    tasks = [
        task("twice", "twice"),
        task("each", "say", "twice.Succeeded", "{{item}}", withParam=many, when="{{item}} != 2"),
        task("never", "say", "twice.Failed", "never"),
        task("slow", "slow"),
        task("after", "say", "slow.Failed && twice.Succeeded", word),
    ]
    templates = [
        pod("twice", TWICE, "{{retries}}", outputs=outputs(many="[]", word="none"), retryStrategy=again),
        pod(
            "say",
            SAY,
            "{{inputs.parameters.word}}",
            inputs={"parameters": [{"name": "word"}]},
        ),
        pod("slow", "import signal; signal.pause()", outputs=outputs(word="none"), timeout="6s"),
        {"name": "main", "dag": {"tasks": tasks}},
        {"name": "end", "dag": {"tasks": [task("last", "say", word="{{workflow.status}}")]}},
    ]
    spec = template["spec"] | {"entrypoint": "main", "onExit": "end", "templates": templates}
    return template | {"spec": spec}


def _ran(ended: Ended) -> tuple[str, str]:
    """From when to when."""
    (status,) = ended.pod["status"]["containerStatuses"]
    return status["state"]["terminated"]["startedAt"], status["state"]["terminated"]["finishedAt"]


def _task(ended: Ended) -> tuple[str, str]:
    """Stage and task, as the task file is called."""
    arguments = ended.pod["spec"]["containers"][0]["args"]
    stage, task, _ = Path(arguments[arguments.index("--task") + 1]).name.split(".")
    return stage, task


def _last_log(played: Played) -> str:
    return next((ended.log for ended in played.every if ended.exit_code), "")
