"""Stage validation as data: order, pods, the MPIJob against its published schema; its scripts, run with stand-ins for the tools."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from steps.contract.node_tests.nccl import NcclWant
from steps.contract.task import Verb, encode
from steps.localise.contract import FabricTest
from steps.readers import fio_report, stream_table
from steps.runtime import check_manifests, fabric_jobs, gating
from steps.runtime.fabric_jobs import group_template
from steps.stages.shared import probe_checks
from steps.stages.validation import gate_nccl, probe, reader_nccl, reader_nccl_programs
from steps.verbs import apply, job, judge, localise, wait
from workflows import catalog
from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.machines import expand_groups
from workflows.stages import manifest_objects, validation
from workflows.stages.stage import Site, Stage

EXAMPLE = Path(validation.__file__).parents[1] / "examples" / "h200-16.yaml"
CRD = Path(os.environ.get("BRINGUP_TEST_DATA", Path(__file__).parents[4] / "shared")) / "crds/mpi-operator-v0.8.2/crds"
VERBS = {
    Verb.APPLY: apply.Arguments,
    Verb.WAIT: wait.Arguments,
    Verb.JOB: job.Arguments,
    Verb.JUDGE: judge.Arguments,
    Verb.LOCALISE: localise.Arguments,
}
NO_SLURM = {"slurm": {"kind": "none"}}
DRA = {"accelerator": {"product": "H200", "operator_mode": "gpu_cluster"}, "sharing": {"mode": "dra"}}
SRIOV = {"fabric": {"kind": "infiniband", "mode": "sriov", "ip_pool": {"subnet": "192.168.0.0/16"}}}


def site(**over: Any) -> Site:
    spec = ClusterSpec.model_validate(yaml.load(EXAMPLE.read_text(), Loader=yaml.CSafeLoader) | over)
    machines = expand_groups(spec.hosts, spec.accelerator.per_node if spec.accelerator else 0)
    return Site(spec=spec, machines=machines, releases={release.id: release for release in catalog.resolve(spec, catalog.load())})


def built(**over: Any) -> Stage:
    found = validation.build(site(**over))
    assert found is not None
    return found


def mpi_job(**over: Any) -> dict[str, Any]:
    step = next(step for step in built(**over).steps if step.name == "functional")
    found: dict[str, Any] = step.task.arguments["objects"][-1]
    return found


@pytest.mark.parametrize("over", [{}, NO_SLURM, DRA, SRIOV, SRIOV | NO_SLURM, {"fabric": {"kind": "none"}}])
def test_tasks_are_what_verbs_and_gates_take(over: dict[str, Any]) -> None:
    stage_of_site = built(**over)
    between = ["functional"] if over.get("fabric") == {"kind": "none"} else ["functional", "localise"]
    assert [step.name for step in stage_of_site.steps] == ["apply", "control", "nccl_intra", "dcgm", *between, "judge"]
    for step in stage_of_site.steps:
        assert len(encode(step.task)) <= 8192
        arguments = msgspec.convert(json.loads(json.dumps(step.task.arguments)), VERBS[step.task.verb])
        if isinstance(arguments, wait.Arguments | job.Arguments):
            gating.find(arguments.gate).expect(step.task.expectations, ("gpu001",))
            assert gating.probe(arguments.gate)
        if isinstance(arguments, apply.Arguments):
            gating.find(arguments.gate).expect(arguments.gate_expectations, ("gpu001",))


def test_checks_want_all_gpus_one_after_the_other() -> None:
    after = {step.name: (step.after, step.task.arguments.get("after")) for step in built().steps}
    assert after["nccl_intra"] == (("control",), None)
    assert after["dcgm"] == (("nccl_intra",), ["nccl_intra"])
    assert after["functional"] == (("dcgm",), ["nccl_intra", "dcgm"])


def test_groups_run_the_mpi_job_over_all_nodes_once_and_under_the_label_of_the_rounds() -> None:
    steps = {step.name: step.task.arguments for step in built().steps}
    assert (steps["localise"]["after"], steps["localise"]["group"]) == (["nccl_intra", "dcgm"], "functional")
    group = group_template(steps["functional"]["objects"], "fabric")
    assert group["metadata"]["name"] == "@name"
    assert "nccl-inter" not in json.dumps(group["metadata"])
    launcher = group["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]
    settings = {entry["name"]: entry.get("value") for entry in launcher["spec"]["containers"][0]["env"]}
    assert (settings["RUNS"], settings["FIRST"], settings["LAST"], settings["PROGRAMS"]) == ("1", "8G", "8G", "")
    assert launcher["metadata"]["labels"]["bringup/check"] == "fabric"


@pytest.mark.parametrize(
    ("over", "name", "kinds"),
    [
        ({}, "volcano", ["PodGroup", "MPIJob"]),
        ({"scheduler": {"gang": "kai"}}, "kai-scheduler", ["MPIJob"]),
        (NO_SLURM | DRA, None, ["ResourceClaimTemplate", "MPIJob"]),
    ],
)
def test_workers_start_as_a_gang(over: dict[str, Any], name: str | None, kinds: list[str]) -> None:
    step = next(step for step in built(**over).steps if step.name == "functional")
    objects = step.task.arguments["objects"]
    assert [manifest["kind"] for manifest in objects[1:]] == kinds
    workers = objects[-1]["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    assert workers["spec"].get("schedulerName") == name
    may = {resource for rule in step.rules for resource in rule.resources}
    assert ("podgroups" in may) == ("PodGroup" in kinds)
    if "PodGroup" in kinds:
        assert objects[1]["metadata"]["name"] == workers["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
        assert check_manifests.on_nodes(objects[1], ("gpu001", "gpu002"))["spec"]["minMember"] == 2
        group = group_template(objects, "fabric")["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
        assert "schedulerName" not in group["spec"]
        assert not group["metadata"].get("annotations")


def test_a_quick_acceptance_localises_only_what_failed() -> None:
    quick = {"validation": {"level": "quick", "nccl": {"inter_node_floor_gb_s": 350}}}
    assert "unless" not in next(step for step in built().steps if step.name == "localise").task.arguments
    steps = {step.name: step.task for step in built(**quick).steps}
    assert steps["localise"].arguments["unless"] == "functional"
    assert steps["dcgm"].expectations["level"] == 1
    assert not {"collectives", "scaling", "osu"} & steps["functional"].expectations.keys()


def test_the_level_decides_what_follows_all_reduce() -> None:
    full = {"validation": {"level": "full", "timeout": "10m", "nccl": {"inter_node_floor_gb_s": 350, "alltoall_floor_gb_s": 40}}}
    standard, whole = ({step.name: step.task for step in built(**over).steps}["functional"] for over in ({}, full))
    assert standard.expectations["collectives"] == {"all_gather": {"share": 0.5}, "alltoall": {"share": 0.45}}
    assert whole.expectations["collectives"]["alltoall"] == {"share": 0.45, "floor": 40}
    assert (standard.expectations["osu"], whole.expectations["osu"][1:]) == (["osu_latency"], ["osu_bw", "osu_allreduce"])
    # 3 runs each of 3 collectives, 3 points of the curve of 16 nodes, 3 OSU tests, each at least a minute
    assert (standard.deadline_seconds, whole.deadline_seconds) == (2700, 300 + 15 * 60)
    settings = {entry["name"]: entry.get("value") for entry in launcher_env(full)}
    assert (settings["SECONDS_A_RUN"], settings["RUNS"]) == ("60", "3")


def launcher_env(over: dict[str, Any]) -> list[dict[str, Any]]:
    launcher = mpi_job(**over)["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    env: list[dict[str, Any]] = launcher["env"]
    return env


def test_floors_come_from_product_and_spec() -> None:
    wants = {step.name: step.task.expectations.get("want", {}) for step in built().steps}
    assert wants["nccl_intra"] == {"runs": 3, "spread": 0.1, "floor": 431.0}
    assert wants["functional"] == {"runs": 3, "spread": 0.15, "floor": 350, "rdma": True, "gdr": True, "hcas": 8, "link": "IB"}


def test_nccl_uses_the_rails_that_the_plan_names_and_no_other_adapter() -> None:
    """Storage NICs can have the device ids of the fabric's: they are no rails, in NCCL's environment as in the gates."""
    rails = [f"mlx5_{number}" for number in range(8)]
    fabric = {"kind": "infiniband", "rails": rails}
    tasks = {step.name: step.task for step in built(fabric=fabric).steps}
    assert tasks["functional"].expectations["want"]["adapters"] == rails
    assert tasks["nccl_intra"].expectations["fabric"]["adapters"] == rails
    assert {"name": "NCCL_IB_HCA", "value": f"={','.join(rails)}"} in launcher_env({"fabric": fabric})
    assert not [entry for entry in launcher_env({}) if entry["name"] == "NCCL_IB_HCA"]


def test_nccl_adapters_have_the_link_layer_of_the_fabric() -> None:
    wants = {step.name: step.task.expectations.get("want", {}) for step in built(fabric={"kind": "roce"}).steps}
    assert wants["functional"]["link"] == "RoCE"


def test_host_facts_and_speed_follow_product_level_and_site() -> None:
    """The check pod reads the kernel log; floors of the site win over published ones; quick measures no speed."""
    own = {"validation": {"nccl": {"inter_node_floor_gb_s": 350}, "gpu_floors": {"gemm_tflops": 600, "adapters_gb_s": 300}}}
    tasks = {step.name: step.task for step in built(**own).steps}
    host = {"product": "NVIDIA-H200", "pcie_generation": 5, "pcie_width": 16, "links": 18, "adapters": True}
    assert tasks["dcgm"].expectations["host"] == host
    assert tasks["dcgm"].expectations["speed"] == {"gemm": 600, "host": 48.0, "between": 335.0}
    assert tasks["nccl_intra"].expectations["fabric"]["floor"] == 300
    quick = {"validation": {"level": "quick", "nccl": {"inter_node_floor_gb_s": 350}}}
    tasks = {step.name: step.task for step in built(**quick, **NO_SLURM).steps}
    assert tasks["dcgm"].expectations["host"] == host
    assert "speed" not in tasks["dcgm"].expectations
    assert "fabric" not in tasks["nccl_intra"].expectations
    (container,) = tasks["dcgm"].arguments["objects"][-1]["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"] == {"capabilities": {"add": ["SYSLOG"]}}


def test_a_slot_of_an_older_generation_is_written_in_the_spec_and_nvlink_c2c_is_not_judged() -> None:
    def host(**accelerator: Any) -> dict[str, Any]:
        tasks = {step.name: step.task for step in built(accelerator=accelerator).steps}
        return dict(tasks["dcgm"].expectations["host"])

    assert host(product="H200", pcie_generation=4)["pcie_generation"] == 4
    assert (host(product="GB200")["pcie_generation"], host(product="GB200")["pcie_width"]) == (0, 0)
    assert "links" not in host(product="L40S")


def test_mig_leaves_nccl_out() -> None:
    steps = built(sharing={"mode": "mig", "profile": "1g.18gb"}).steps
    assert [step.name for step in steps] == ["dcgm", "judge"]
    assert steps[0].task.expectations["level"] == 1


def test_no_accelerator_no_stage() -> None:
    hosts = {"all": {"role": "server", "ranges": "a[1-3]", "addresses": {"start": "10.0.0.1"}}}
    bare = site(accelerator=None, fabric={"kind": "none"}, hosts=hosts, slurm={"kind": "none"}, approvals=[])
    assert validation.build(bare) is None


def test_gpus_are_requested_or_taken() -> None:
    """Slurm's node pods hold the GPUs, so that nothing could be scheduled beside them."""
    container = {"name": "check", "image": "i"}
    asked = manifest_objects.gpu_pod(site(**NO_SLURM), container, "c", fabric=True)
    limits = asked["containers"][0]["resources"]["limits"]
    assert limits == {"rdma/rdma_shared_device_a": 1, "nvidia.com/gpu": 8}
    taken = manifest_objects.gpu_pod(site(), container, "c", fabric=True)
    assert taken["runtimeClassName"] == "nvidia"
    assert taken["containers"][0]["securityContext"] == {"privileged": True}
    assert taken["containers"][0]["resources"] == {"limits": {"rdma/rdma_shared_device_a": 1}}
    claimed = manifest_objects.gpu_pod(site(**DRA), container, "c")
    assert claimed["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": "c"}]
    assert "resources" not in manifest_objects.gpu_pod(site(**SRIOV), container, "c", fabric=True)["containers"][0]


@functools.cache
def published() -> Any:
    """Return the validator of the published schema of an MPIJob; to read it and to check it takes seconds."""
    definition = yaml.load(next(CRD.iterdir()).read_text(), Loader=yaml.CSafeLoader)
    version = next(version for version in definition["spec"]["versions"] if version["name"] == "v2beta1")
    schema = _closed(version["schema"]["openAPIV3Schema"])
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema)


@pytest.mark.skipif(not CRD.is_dir(), reason="published CRDs are not here ($BRINGUP_TEST_DATA)")
@pytest.mark.parametrize("over", [{}, NO_SLURM, DRA, SRIOV | NO_SLURM])
def test_mpi_job_fits_the_published_schema(over: dict[str, Any]) -> None:
    filled = check_manifests.on_nodes(mpi_job(**over), ("gpu001", "gpu002"))
    published().validate(filled)
    assert filled["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 2


def _closed(schema: Any) -> Any:
    """The schema with unknown fields refused, as strict field validation does."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema and schema["properties"]:
        metadata = set(schema["properties"]) == {"apiVersion", "kind", "metadata", "spec", "status"}
        closed["additionalProperties"] = metadata
    return {"anyOf": [{"type": "integer"}, {"type": "string"}]} if schema.get("x-kubernetes-int-or-string") else closed


def test_a_large_group_meets_in_parts_that_have_all_leaves() -> None:
    """Pods of a group's Job carry the names of all its nodes: with 10,000 names each, 10,000 pods would be a gigabyte."""
    nodes = tuple(f"gpu{number:05d}" for number in range(1200))
    parts = [*fabric_jobs.parts(FabricTest(id="1.0", kind="group", nodes=nodes))]
    assert sorted(node for part in parts for node in part.nodes) == sorted(nodes)
    assert [(part.id, len(part.nodes)) for part in parts] == [("1.0", 400)] * 3
    assert all({nodes.index(node) // 16 for node in part.nodes} == set(range(75)) for part in parts)


def test_workers_stand_on_exactly_the_nodes_under_test() -> None:
    worker = check_manifests.on_nodes(mpi_job(), ("gpu001", "gpu002"))["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    term = worker["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]
    assert term["matchExpressions"][0]["values"] == ["gpu001", "gpu002"]
    apart = worker["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    assert apart["labelSelector"]["matchLabels"] == {
        "training.kubeflow.org/job-name": "nccl-all-reduce",
        "training.kubeflow.org/job-role": "worker",
    }


# ---- the scripts ---------------------------------------------------------------------------------------------------------------

TABLE = """# nccl-tests version 2.17.8 nccl-headers=22602 nccl-library=22602
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8589934592 maxBytes 8589934592 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1
#  Rank  0 Group  0 Pid   10 on  node-0 device  0 [0000:0f:00] NVIDIA H200
#  Rank  1 Group  0 Pid   11 on  node-1 device  0 [0000:0f:00] NVIDIA H200
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
  8589934592    2147483648     float     sum      -1  32100.7  267.59  468.29       0  32102.3  267.58  468.27       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 468.28
# Collective test concluded: all_reduce_perf
"""
INFO = """node-0:10:20 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.42.0.9<0>
node-0:10:20 [0] NCCL INFO Using network IB
node-0:10:20 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
node-0:10:20 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA
node-0:10:20 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1
"""
DIAG = json.dumps(
    {
        "DCGM Diagnostic": {
            "test_categories": [
                {
                    "category": "Hardware",
                    "tests": [
                        {
                            "name": "memory",
                            "results": [{"entity_group": "GPU", "entity_id": gpu, "status": "Pass"} for gpu in range(8)],
                        }
                    ],
                }
            ]
        },
        "metadata": {"version": "4.6.0"},
    },
    indent=2,
)


def ran(folder: Path, script: str, tools: dict[str, str], **environment: str) -> tuple[dict[str, Any], str]:
    """Report and output of a script with stand-ins for its tools."""
    place = folder / "bin"
    place.mkdir()
    for name, body in tools.items():
        (place / name).write_text(f"#!/bin/sh\n{body}\n")
        (place / name).chmod(0o755)
    for name, text in {"table": TABLE, "info": INFO, "diag": DIAG}.items():
        (folder / name).write_text(text)
    text = manifest_objects.script(script).replace("/tmp/", f"{folder}/").replace("/dev/termination-log", str(folder / "report"))
    text = text.replace("/etc/mpi/hostfile", str(folder / "hostfile"))
    hosts = range(int(environment.get("HOSTS", "2")))
    (folder / "hostfile").write_text("".join(f"w-{number}.w slots=8\n" for number in hosts))
    env = {"PATH": f"{place}:{os.environ['PATH']}", "NODE_NAME": "gpu001", "AT": str(folder), **environment}
    done = subprocess.run(["/bin/sh", "-c", text], env=env, check=True, capture_output=True, text=True, timeout=60)
    return json.loads((folder / "report").read_text()), done.stdout


SIZES = {"FIRST": "8G", "LAST": "8G", "RUNS": "3", "SECONDS_A_RUN": "20"}


def test_intra_script(tmp_path: Path) -> None:
    tools = {"nvidia-smi": "echo 'GPU 0: x'; echo 'GPU 1: x'", "all_reduce_perf": 'echo "$@" >>$AT/called; cat $AT/table'}
    report, _ = ran(tmp_path, "nccl_intra.sh", tools, **SIZES)
    assert report["node"] == "gpu001"
    assert report["exits"] == [0, 0, 0]
    assert (tmp_path / "called").read_text().splitlines() == ["-b 8G -e 8G -f 2 -g 2 -c 1"] * 3
    assert len((tmp_path / "report").read_text()) <= 4096
    log = reader_nccl.read(probe_checks.unpack_output(report))
    assert gate_nccl.problem(log, NcclWant(floor=431.0, runs=3, spread=0.1, ranks=2)) is None


def test_intra_script_tells_of_a_hang(tmp_path: Path) -> None:
    tools = {"nvidia-smi": "echo 'GPU 0: x'", "all_reduce_perf": "head -4 $AT/table; exec sleep 30"}
    report, _ = ran(tmp_path, "nccl_intra.sh", tools, **SIZES | {"RUNS": "1", "SECONDS_A_RUN": "1"})
    assert report["exits"] == [124]
    assert gate_nccl.problem(reader_nccl.read(probe_checks.unpack_output(report)), NcclWant()) is not None


def test_inter_script(tmp_path: Path) -> None:
    mpirun = """echo "$@" >>$AT/called
case "$*" in *NCCL_DEBUG=INFO*) cat $AT/info;; esac
cat $AT/table"""
    report, output = ran(tmp_path, "nccl_inter.sh", {"mpirun": mpirun, "all_reduce_perf": "exit 1"}, PER_NODE="8", **SIZES)
    assert report["exits"] == [0, 0, 0]
    called = (tmp_path / "called").read_text().splitlines()
    assert len(called) == 3
    assert "-np 16 --map-by ppr:8:node" in called[0]
    assert ["NCCL_DEBUG=INFO" in line for line in called] == [True, False, False]
    assert "via P2P" not in output
    assert "Trees" not in output
    log = reader_nccl.read(output)
    assert gate_nccl.problem(log, NcclWant(floor=460.0, runs=3, ranks=2, hosts=2, rdma=True, gdr=True)) is None
    assert log.transport.gdr_channels == 1


OSU = """# OSU MPI Latency Test v7.2
# Size          Latency (us)
1                       1.90
4194304                95.20
"""


def test_inter_script_runs_programs_between_marks(tmp_path: Path) -> None:
    """Two workers have no smaller scaling curve; a program that the image lacks is reported."""
    mpirun = """echo "$@" >>$AT/called
case "$*" in
  *osu_latency*) printf '%s' "$OSU";;
  *alltoall*) cat $AT/info; exit 3;;
  *) cat $AT/table;;
esac"""
    tools = {
        "mpirun": mpirun,
        "all_reduce_perf": "",
        "alltoall_perf": "",
        "osu_latency": "",
        "ompi_info": "echo 'MCA pml: ucx (v5)'",
    }
    programs = {"PROGRAMS": "scaling all_gather alltoall osu_latency", "OSU": OSU, "RUNS": "1"}
    report, output = ran(tmp_path, "nccl_inter.sh", tools, PER_NODE="8", **SIZES | programs)
    assert report["exits"] == [0]
    launcher = reader_nccl_programs.read(output)
    assert len(reader_nccl.read(launcher.main).runs) == 1
    assert [(part.name, part.nodes, part.exits, part.absent) for part in launcher.programs] == [
        ("alltoall", 2, (3,), False),
        ("osu_latency", 2, (0,), False),
        ("all_gather", 0, (), True),
    ]
    assert [(row.size, row.value) for row in launcher.programs[1].tables[0].rows] == [(1, 1.9), (4194304, 95.2)]
    called = (tmp_path / "called").read_text().splitlines()
    assert f"--hostfile {tmp_path}/hosts -np 16" in called[1]
    assert "-np 2 --map-by ppr:1:node --bind-to none --mca pml ucx" in called[2]
    assert (tmp_path / "hosts").read_text() == "w-0.w slots=8\nw-1.w slots=8\n"


def test_inter_script_hands_the_planned_adapters_to_every_rank(tmp_path: Path) -> None:
    """Workers get the launcher's variables by mpirun alone."""
    tools = {"mpirun": 'echo "$@" >>$AT/called; cat $AT/table', "all_reduce_perf": ""}
    ran(tmp_path, "nccl_inter.sh", tools, PER_NODE="8", NCCL_IB_HCA="=mlx5_0,mlx5_1", **SIZES | {"RUNS": "1"})
    assert " -x NCCL_IB_HCA " in (tmp_path / "called").read_text()


def test_inter_script_measures_the_scaling_curve_below_all_nodes(tmp_path: Path) -> None:
    tools = {"mpirun": "cat $AT/table", "all_reduce_perf": ""}
    more = {"PROGRAMS": "scaling", "RUNS": "1", "HOSTS": "5"}
    _, output = ran(tmp_path, "nccl_inter.sh", tools, PER_NODE="8", **SIZES | more)
    assert [(part.name, part.nodes) for part in reader_nccl_programs.read(output).programs] == [
        ("all_reduce", 2),
        ("all_reduce", 4),
    ]


def test_inter_script_tells_exit_codes(tmp_path: Path) -> None:
    report, output = ran(tmp_path, "nccl_inter.sh", {"mpirun": "echo no; exit 5", "all_reduce_perf": ""}, PER_NODE="8", **SIZES)
    assert report["exits"] == [5, 5, 5]
    assert output == "no\nno\nno\n"


FIO = """fio: this platform does not support process shared mutexes
{"fio version": "fio-3.36", "jobs": [
 {"jobname": "seq_write", "error": 0, "read": {"bw_bytes": 0}, "write": {"bw": 2929687, "bw_bytes": 3000000000, "iops": 2861.0}},
 {"jobname": "seq_read", "error": 0, "read": {"bw": 1953125, "iops": 1907.3}, "write": {"bw": 0}}]}
"""
STREAM = """Function    Best Rate MB/s  Avg time     Min time     Max time
Copy:          640123.4     0.025000     0.024996     0.025010
Triad:         655360.5     0.036622     0.036621     0.036630
Solution Validates: avg error less than 1.000000e-13 on all three arrays
"""


def test_benchmarks_script(tmp_path: Path) -> None:
    tools = {"fio": 'echo "$@" >>$AT/called; printf "%s" "$FIO"', "stream_c": 'printf "%s" "$STREAM"; exit 3'}
    settings = {"SIZE": "1G", "SECONDS_A_TEST": "1", "SECONDS_A_RUN": "20", "FIO": FIO, "STREAM": STREAM}
    report, output = ran(tmp_path, "node_benchmarks.sh", tools, FOLDER=str(tmp_path), **settings)
    assert (report["fio"], report["stream"], output) == (0, 3, probe_checks.unpack_output(report))
    assert f"--directory={tmp_path}/bringup.gpu001" in (tmp_path / "called").read_text()
    assert not (tmp_path / "bringup.gpu001").exists()
    storage, _, memory = output.partition(probe.STREAM_MARK)
    fio, table = fio_report.read(storage), stream_table.read(memory)
    assert fio is not None
    assert [(job.name, job.write_mb_s or job.read_mb_s) for job in fio.jobs] == [("seq_write", 3000.0), ("seq_read", 2000.0)]
    assert table == stream_table.StreamTable(rates={"Copy": 640123.4, "Triad": 655360.5}, valid=True)
    assert (fio_report.read(storage[:-9]), stream_table.read("Triad: fast"), fio_report.read("}{")) == (None, None, None)


def test_benchmarks_script_that_is_ended_leaves_nothing_on_the_storage(tmp_path: Path) -> None:
    (tmp_path / "bringup.gpu001").mkdir()
    (tmp_path / "bringup.gpu001/data").write_text("of a pod that was killed")
    # the shell that runs the script is the parent of timeout, which is that of fio; mount and file exist when TERM comes
    fio = (
        "ls $AT/bringup.gpu001 >$AT/called; touch $AT/bringup.gpu001/data; read -r _ _ _ shell _ </proc/$PPID/stat; "
        "kill -TERM $shell; exec sleep 30"
    )
    with pytest.raises(subprocess.CalledProcessError) as ended:
        ran(tmp_path, "node_benchmarks.sh", {"fio": fio}, FOLDER=str(tmp_path), SIZE="1G", SECONDS_A_TEST="1", SECONDS_A_RUN="20")
    assert ended.value.returncode == 143
    assert (tmp_path / "called").read_text() == ""
    assert not (tmp_path / "bringup.gpu001").exists()


def test_benchmarks_script_tells_what_the_image_lacks(tmp_path: Path) -> None:
    report, _ = ran(tmp_path, "node_benchmarks.sh", {}, FOLDER="", SECONDS_A_RUN="20")
    assert (report["fio"], report["stream"]) == (127, 127)


TORCH = """class Part:
    def __getattr__(self, name):
        known = {"item": float("nan"), "numel": 1 << 28, "get_rank": 0, "get_world_size": 16}
        return (lambda: known[name]) if name in known else Part()
    def __call__(self, *_, **__): return Part()
    __getitem__ = __sub__ = __call__
def __getattr__(name): return Part()
__version__ = "2.9.0"
import sys
sys.modules["torch.distributed"] = Part()
"""
"""Stand-in for torch, whose loss is NaN at every step."""


def test_training_script_counts_channels_and_reports_a_loss_that_is_no_number(tmp_path: Path) -> None:
    torchrun = """echo "$@" >>$AT/called
printf 'via NET/IB/0/GDRDMA\nvia NET/IB/1\nvia NET/Socket/0\n' >$AT/nccl.host.1
printf '{"ranks":16,"busbw":371.5}' >$AT/result
exit 1"""
    settings = {"JOB": "training", "SERVICE": "training", "JOB_COMPLETION_INDEX": "1", "SECONDS_A_RUN": "20"}
    report, _ = ran(tmp_path, "torch_training.sh", {"torchrun": torchrun}, **settings)
    assert (report["exit"], report["result"]) == (1, {"ranks": 16, "busbw": 371.5})
    assert report["channels"] == {"gdr": 1, "rdma": 2, "socket": 1}
    assert "--node-rank 1 --master-addr training-0.training" in (tmp_path / "called").read_text()
    (tmp_path / "torch.py").write_text(TORCH)
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env={"LOCAL_RANK": "0"}, check=True, timeout=60)
    result = msgspec.json.decode((tmp_path / "result").read_bytes())
    assert (result["ranks"], result["first_loss"], result["last_loss"]) == (16, None, None)


WORKLOADS = {
    "validation": {
        "level": "full",
        "nccl": {"inter_node_floor_gb_s": 350},
        "benchmarks": {"image": "bench:1", "storage": {"storage_class": "shared", "size": "8G", "read_floor_mb_s": 900}},
        "training": {"image": "torch:1"},
    }
}


@pytest.mark.parametrize("over", [{}, NO_SLURM, DRA, SRIOV])
def test_workloads_of_level_full_are_what_verbs_and_gates_take(over: dict[str, Any]) -> None:
    stage_of_site = built(**over, **WORKLOADS)
    assert [step.name for step in stage_of_site.steps][-4:] == ["localise", "benchmarks", "training", "judge"]
    for step in stage_of_site.steps[-3:-1]:
        assert len(encode(step.task)) <= 8192
        assert msgspec.convert(json.loads(json.dumps(step.task.arguments)), job.Arguments).gate in stage_of_site.gates
        gating.find(step.task.arguments["gate"]).expect(step.task.expectations, ("gpu001",))
    steps = {step.name: step.task for step in stage_of_site.steps}
    assert steps["benchmarks"].expectations == {"storage": True, "floors": {"seq_read": 900}}
    pods = {name: steps[name].arguments["objects"][-1]["spec"] for name in ("benchmarks", "training")}
    claim = pods["benchmarks"]["template"]["spec"]["volumes"][0]["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("shared", "16Gi")
    assert (pods["training"]["completions"], pods["training"]["template"]["spec"]["subdomain"]) == (2, "training")
