"""Stage slurm as data: its order, Slinky and SUNK, who takes part; and its script, run with stand-ins for Slurm's tools."""

import dataclasses
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from steps.contract.task import Verb, encode
from steps.runtime import gating
from steps.stages.shared import probe_checks
from steps.stages.slurm import probe as slurm
from steps.verbs import apply, job, judge, wait
from workflows import catalog
from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.machines import expand_groups
from workflows.stages import host_access, manifest_objects
from workflows.stages import slurm as stage
from workflows.stages.stage import Site, Stage

EXAMPLE = Path(stage.__file__).parents[1] / "examples" / "h200-16.yaml"
VERBS = {Verb.APPLY: apply.Arguments, Verb.WAIT: wait.Arguments, Verb.JOB: job.Arguments, Verb.JUDGE: judge.Arguments}
SUNK = {"kind": "sunk", "repo": "https://charts.example.org/sunk", "version": "7.3.0"}


def site(**over: Any) -> Site:
    spec = ClusterSpec.model_validate(yaml.load(EXAMPLE.read_text(), Loader=yaml.CSafeLoader) | over)
    machines = expand_groups(spec.hosts, spec.accelerator.per_node if spec.accelerator else 0)
    return Site(spec=spec, machines=machines, releases={release.id: release for release in catalog.resolve(spec, catalog.load())})


def test_slinky() -> None:
    built = stage.build(site())
    assert built is not None
    assert [step.name for step in built.steps] == [
        "apply",
        "charts",
        "configure",
        "control",
        "nodes",
        "placement",
        "functional",
        "scheduling",
        "drain",
        "judge",
    ]
    assert built.gates == (
        "slurm/charts",
        "slurm/control",
        "slurm/nodes",
        "slurm/placement",
        "slurm/functional",
        "slurm/scheduling",
        "slurm/drain",
    )
    control = next(step.task for step in built.steps if step.name == "control")
    assert control.expectations["parts"] == ["Controller", "RestApi", "LoginSet"]
    assert (control.expectations["nodes_desired"], control.expectations["spare"]) == (16, 1)
    nodes = next(step.task for step in built.steps if step.name == "nodes")
    assert nodes.expectations == {"gpus": 8, "states": True, "promised": True}


ACCOUNTING = {"slurm": {"kind": "slinky", "accounting": {"host": "mariadb.slurm.svc", "password": {"file": "./db_password"}}}}
DELIVERY = {"mode": "argo_cd", "argo_cd": {"repo": "https://git.example.org/a.git", "revision": "v1", "project": "p"}}


@pytest.mark.parametrize("over", [ACCOUNTING, ACCOUNTING | {"delivery": DELIVERY}])
def test_the_password_of_the_accounting_database_becomes_the_secret_that_the_chart_names(over: dict[str, Any]) -> None:
    planned = site(**over)
    built = stage.build(planned)
    assert built is not None
    (step,) = [step for step in built.steps if step.task.arguments.get("secrets")]
    (secret,) = msgspec.convert(step.task.arguments, apply.Arguments).secrets
    reference = planned.releases["slurm"].values["accounting"]["storageConfig"]["passwordKeyRef"]
    assert {"name": secret.name, "key": secret.key} == reference
    assert (secret.namespace, secret.file) == ("slurm", host_access.SLURM_ACCOUNTING)
    assert any("secrets" in rule.resources and "create" in rule.verbs and rule.namespaces == ("slurm",) for rule in step.rules)
    (file,) = [file for file in host_access.secret_files(planned.spec) if file.name == secret.file]
    assert file.path == "./db_password"


@pytest.mark.parametrize("over", [{}, {"slurm": SUNK}, ACCOUNTING, {"sharing": {"mode": "time_slicing", "replicas": 4}}])
def test_tasks_are_what_verbs_and_gates_take(over: dict[str, Any]) -> None:
    built = stage.build(site(**over))
    assert built is not None
    for step in built.steps:
        assert len(encode(step.task)) <= 8192
        arguments = msgspec.convert(json.loads(json.dumps(step.task.arguments)), VERBS[step.task.verb])
        if isinstance(arguments, wait.Arguments | job.Arguments):
            gating.find(arguments.gate).expect(step.task.expectations, ("gpu001",))
            assert gating.probe(arguments.gate)
        if isinstance(arguments, apply.Arguments) and arguments.gres_conf is None and arguments.login_sessions is None:
            gating.find(arguments.gate).expect(arguments.gate_expectations, ("gpu001",))


@pytest.mark.parametrize("over", [{"kind": "slinky"}, SUNK])
def test_a_topology_of_any_size_fits_into_the_tasks(over: dict[str, Any]) -> None:
    """Leaf switches are read from the fleet, since a task is small however many machines there are."""
    hosts = yaml.load(EXAMPLE.read_text(), Loader=yaml.CSafeLoader)["hosts"]
    hosts["gpu"] |= {"ranges": "gpu[0001-4000]", "addresses": {"start": "172.16.0.1"}, "topology": {"leaf": "leaf{block:8}"}}
    built = stage.build(site(hosts=hosts, slurm=over | {"topology": "tree"}))
    assert built is not None
    assert max(len(encode(step.task)) for step in built.steps) <= 8192
    (check,) = [step.task for step in built.steps if step.name == "scheduling"]
    leaves = {"gpu0001": "leaf1", "gpu0002": "leaf1", "gpu0009": "leaf2"}
    want = gating.find("slurm/scheduling").expect(check.expectations, ("gpu0001",), {}, leaves)
    assert want.topology == {"leaf1": "gpu[0001-0002]", "leaf2": "gpu0009"}


def test_slinky_reads_the_leaf_of_a_node_from_its_annotation() -> None:
    hosts = yaml.load(EXAMPLE.read_text(), Loader=yaml.CSafeLoader)["hosts"]
    hosts["gpu"] |= {"topology": {"leaf": "leaf{block:8}"}}
    built = stage.build(site(hosts=hosts, slurm={"kind": "slinky", "topology": "tree"}))
    assert built is not None
    (configure,) = [step for step in built.steps if step.name == "configure"]
    assert configure.task.arguments["leaf_annotation"] == {"key": "topology.slinky.slurm.net/spec", "prefix": "tree:"}
    assert ("nodes", "patch") in {
        (resource, verb) for rule in configure.rules for resource in rule.resources for verb in rule.verbs
    }
    assert any("annotate nodes with their leaf switch" in change.what for change in built.changes)


def test_sunk_runs_jobs_from_its_login_pod() -> None:
    built = stage.build(site(slurm=SUNK))
    assert built is not None
    names = [step.name for step in built.steps]
    assert names == [
        "apply",
        "charts",
        "configure",
        "gres",
        "control",
        "nodes",
        "placement",
        "functional",
        "scheduling",
        "drain",
        "pods",
        "sessions",
        "judge",
    ]
    for step in built.steps[-6:-3]:
        at = step.task.arguments.get("command") or step.task.arguments["round_trip"]
        assert (at["pod"], at["container"]) == ("slurm-login-0", "sshd")
        assert any("pods/exec" in rule.resources and rule.namespaces == ("tenant-slurm",) for rule in step.rules)
        assert not any({"create", "delete"} & set(rule.verbs) for rule in step.rules if "jobs" in rule.resources)
    assert built.steps[-6].task.expectations == {"gpus": 8, "accounting": True, "kernels": False}
    nodes = next(step.task for step in built.steps if step.name == "nodes")
    assert nodes.expectations == {"gpus": 8, "states": True, "promised": False}
    assert nodes.arguments["slurm_namespace"] == "tenant-slurm"
    assert nodes.arguments["operator"] == "sunk"
    groups = {group for step in built.steps for rule in step.rules if "nodesets" in rule.resources for group in rule.groups}
    assert groups == {"sunk.coreweave.com"}
    assert "gres.conf" in built.changes[-1].what


def sets_on_delete(built: Stage) -> list[str]:
    """Return the StatefulSets whose old pods gate slurm/control lets pass."""
    control = next(step.task for step in built.steps if step.name == "control")
    assert control.arguments["releases"] == control.expectations["releases"]
    return [name for release in control.expectations["releases"] for name in release.get("on_delete", ())]


def test_only_login_pods_that_a_later_stage_replaces_may_be_old() -> None:
    for section, names in ((SUNK, ["slurm-login"]), (SUNK | {"login": {"replicas": 0}}, []), ({"kind": "slinky"}, [])):
        built = stage.build(site(slurm=section))
        assert built is not None
        assert sets_on_delete(built) == names


def test_sunk_without_login_pods_runs_no_jobs_and_schedules_pods() -> None:
    built = stage.build(site(slurm=SUNK | {"login": {"replicas": 0}}))
    assert built is not None
    assert built.gates == ("slurm/charts", "slurm/control", "slurm/nodes", "slurm/placement", "slurm/pods")
    pods = next(step.task for step in built.steps if step.name == "pods")
    assert pods.arguments["after"] == ["nodes"]


def test_a_pod_for_sunks_scheduler_is_one_that_it_takes() -> None:
    """By https://github.com/coreweave/sunk-anywhere/blob/main/examples/04-validate-pod-scheduler.yaml."""
    built = stage.build(site(slurm=SUNK))
    assert built is not None
    scheduled, beside = next(step.task for step in built.steps if step.name == "pods").arguments["objects"]
    spec = scheduled["spec"]["template"]["spec"]
    assert (spec["schedulerName"], spec["terminationGracePeriodSeconds"]) == ("sunk", 20)
    assert set(spec["containers"][0]["resources"]["requests"]) == {"cpu", "memory"}
    assert {job["metadata"]["namespace"] for job in (scheduled, beside)} == {"tenant-slurm"}
    assert "schedulerName" not in beside["spec"]["template"]["spec"]


def test_no_slurm_no_stage() -> None:
    assert stage.build(site(slurm={"kind": "none"})) is None


def test_shared_gpus_are_not_counted() -> None:
    assert set(stage.gpus_of(site()).values()) == {8}
    assert set(stage.gpus_of(site(sharing={"mode": "time_slicing", "replicas": 4})).values()) == {0}


def with_gpus(planned: Site, **counts: int) -> Site:
    """The site whose inventory gives some machines another number of GPUs."""
    machines = (dataclasses.replace(machine, gpus=counts.get(machine.name, machine.gpus)) for machine in planned.machines)
    return dataclasses.replace(planned, machines=tuple(machines))


def test_a_second_group_keeps_its_own_number_of_gpus() -> None:
    hosts = yaml.load(EXAMPLE.read_text(), Loader=yaml.CSafeLoader)["hosts"]
    small = {"role": "agent", "ranges": "x[1-2]", "addresses": {"start": "10.10.2.1"}, "gpu": True}
    planned = site(hosts=hosts | {"small": small}, slurm={"kind": "slinky"})
    built = stage.build(with_gpus(planned, x1=4, x2=4))
    assert built is not None
    tasks = {step.name: step.task for step in built.steps}
    others = {"x1": 4, "x2": 4}
    assert tasks["nodes"].expectations == {"gpus": 8, "others": others, "states": True, "promised": True}
    assert tasks["functional"].expectations == {"gpus": 8, "others": others}


def test_one_node_set_has_the_number_of_its_smallest_machine() -> None:
    built = stage.build(with_gpus(site(), gpu001=4))
    assert built is not None
    nodes = next(step.task for step in built.steps if step.name == "nodes")
    assert nodes.expectations["gpus"] == 4
    assert "gpu001" not in nodes.expectations["installed"]
    assert len(nodes.expectations["installed"]) == 15


def test_accounting_is_required_where_the_spec_has_it() -> None:
    built = stage.build(site(**ACCOUNTING))
    assert built is not None
    tasks = {step.name: step.task for step in built.steps}
    assert tasks["control"].expectations["parts"] == ["Controller", "RestApi", "LoginSet", "Accounting"]
    assert tasks["control"].expectations["workloads"] == 4
    assert tasks["functional"].expectations["accounting"] is True
    pod = tasks["functional"].arguments["objects"][0]["spec"]["template"]["spec"]
    assert {"name": "ACCOUNTING", "value": "yes"} in pod["containers"][0]["env"]


def test_partitions_choose_the_machines() -> None:
    hosts = yaml.load(EXAMPLE.read_text(), Loader=yaml.CSafeLoader)["hosts"]
    hosts["other"] = {"role": "agent", "ranges": "x[1-2]", "addresses": {"start": "10.10.2.1"}, "gpu": True}
    assert stage.node_selector(site()) == "gpu"
    one = site(hosts=hosts, slurm={"kind": "slinky", "partitions": [{"name": "a", "groups": "gpu"}]})
    assert stage.node_selector(one) == "group-gpu"
    assert one.count("group-gpu") == len(stage.machines(one)) == 16
    assert stage.node_selector(site(hosts=hosts, slurm={"kind": "slinky"})) == "gpu"


# ---- the script ----------------------------------------------------------------------------------------------------------------

TOOLS = {
    "sackd": 'exec >/dev/null 2>&1\nwhile kill -0 "$PPID"; do sleep 0.1; done',  # ends with the script, as in its pod
    "install": "exit 0",
    "sinfo": """case "$*" in
  *'%T|%G|%N'*) echo 'idle|gpu:h200:8(S:0-1)|gpu[001-002]'; echo 'drained|gpu:h200:8(S:0-1)|gpu003';;
  *'%E|%N'*) echo 'ECC memory error|gpu003';;
  *'%R'*) echo train;;
  *'%N %T %G'*) printf 'gpu001 idle gpu:h200:8(S:0-1)\\ngpu002 idle gpu:h200:%s\\n' "${SECOND:-8}"
    printf 'cpu001 idle (null)\\ngpu003 drained gpu:8\\n';;
esac""",
    "sacctmgr": "printf 'h200|10.43.0.61\\nold|\\n'",
    "hostname": 'echo "${AT:-here}"',
    "nvidia-smi": 'for gpu in $(seq 0 $((GRES - 1))); do echo "GPU $gpu: NVIDIA H200 (UUID: GPU-$gpu)"; done',
    "srun": """while [ $# -gt 0 ]; do case "$1" in
  -w) nodes=$2; shift 2;; -p|-N|-n) shift 2;; --gres=gpu:*) export GRES=${1#--gres=gpu:}; shift;; *) break;; esac; done
for node in $(echo "$nodes" | tr , ' '); do
  if [ "$node" = gpu002 ] && [ -n "$REFUSED" ]; then
    echo 'srun: error: Task launch for 47.0 failed on node gpu002: Invalid job credential' >&2; bad=1
  else AT=$node "$@" || bad=1; fi
done
exit ${bad:-0}""",
}


ADD = """#!/bin/sh
[ -z "$NO_CUDA" ] && echo Test PASSED || echo no kernel image for $CUDA_VISIBLE_DEVICES
"""


def ran(folder: Path, program: str | None = ADD, **environment: str) -> dict[str, Any]:
    """The report of srun.sh with stand-ins for Slurm's tools."""
    tools = folder / "bin"
    tools.mkdir()
    for name, body in TOOLS.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    script = (
        manifest_objects.script("srun.sh").replace("/tmp/", f"{folder}/").replace("/dev/termination-log", str(folder / "report"))
    )
    script = script.replace("mkdir -p /etc/slurm /run/slurm", "mkdir -p").replace("/program", f"{folder}/program")
    if program is not None:
        (folder / "program").mkdir()
        (folder / "program/add").write_text(program)
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "NODE_NAME": "sv1", "SERVER": "s:6817", "GPUS": "8", "SECONDS_TO_RUN": "60"}
    subprocess.run(["/bin/sh", "-c", script], env=env | environment, check=True, capture_output=True, timeout=60)
    report: dict[str, Any] = json.loads((folder / "report").read_text())
    return report


def test_script_reports_what_the_gate_reads(tmp_path: Path) -> None:
    report = ran(tmp_path)
    assert report["exits"] == {"sinfo": 0, "hosts": 0, "gpus": 0}
    seen = slurm.read_srun(probe_checks.unpack_output(report), report["exits"])
    assert [(node.name, node.states, node.gpus) for node in seen.nodes][:2] == [("gpu001", ("idle",), 8), ("gpu002", ("idle",), 8)]
    assert seen.nodes[2].reason == "ECC memory error"
    assert seen.hosts == ("cpu001", "gpu001", "gpu002")
    assert seen.gpus == seen.passed == {"gpu001": 8, "gpu002": 8}
    assert seen.failed == {}
    assert seen.errors == ()


@pytest.mark.parametrize("program", ["", None])
def test_script_takes_no_empty_program_for_a_pass(tmp_path: Path, program: str | None) -> None:
    report = ran(tmp_path, program=program)
    seen = slurm.read_srun(probe_checks.unpack_output(report), report["exits"])
    assert (seen.gpus["gpu001"], seen.passed["gpu001"]) == (8, 0)
    assert seen.failed["gpu001"] == (
        "it prints nothing" if program == "" else "the check has no CUDA program, see its init container"
    )


def test_the_init_container_leaves_the_program_for_jobs(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "program").mkdir()
    tool = tmp_path / "bin/vectorAdd"
    tool.write_text(ADD)
    tool.chmod(0o755)
    script = manifest_objects.script("cuda_add.sh", "cuda_program.sh").replace("/program", f"{tmp_path}/program")
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    subprocess.run(["/bin/sh", "-c", script], env=env, check=True, capture_output=True, timeout=60)
    assert (tmp_path / "program/add").read_text() == ADD


def test_script_tells_why_no_kernel_ran(tmp_path: Path) -> None:
    report = ran(tmp_path, NO_CUDA="yes")
    seen = slurm.read_srun(probe_checks.unpack_output(report), report["exits"])
    assert (seen.gpus["gpu001"], seen.passed["gpu001"]) == (8, 0)
    assert seen.failed["gpu001"] == "no kernel image for GPU-7"


def test_script_asks_each_node_for_the_gpus_of_its_gres(tmp_path: Path) -> None:
    report = ran(tmp_path, SECOND="4,gpu:b200:2")
    assert slurm.read_srun(probe_checks.unpack_output(report), report["exits"]).gpus == {"gpu001": 8, "gpu002": 6}


def test_script_asks_slurmdbd_for_its_clusters(tmp_path: Path) -> None:
    report = ran(tmp_path, ACCOUNTING="yes")
    assert report["exits"]["accounting"] == 0
    seen = slurm.read_srun(probe_checks.unpack_output(report), report["exits"])
    assert seen.clusters == ("h200",)  # the other one has no controller


def test_script_tells_of_a_refused_node(tmp_path: Path) -> None:
    report = ran(tmp_path, REFUSED="yes")
    assert report["exits"]["hosts"] == 1
    assert report["exits"]["gpus"] != 0
    seen = slurm.read_srun(probe_checks.unpack_output(report), report["exits"])
    assert seen.hosts == ("cpu001", "gpu001")
    assert seen.gpus == {"gpu001": 8}
    assert seen.errors[0].cause == "Invalid job credential on node gpu002"
