"""The check scripts in a shell, with stand-ins for their tools: each leaves one small JSON report, whatever happens."""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from workflows.stages import manifest_objects

SMI = """case "$*" in *query-gpu*) printf 'GPU-a\\nGPU-b\\n';; -L) printf '{listing}';; esac"""
WHOLE = "GPU 0: NVIDIA H200 (UUID: GPU-a)\\nGPU 1: NVIDIA H200 (UUID: GPU-b)\\n"
SLICED = "GPU 0: NVIDIA H200 (UUID: GPU-a)\\n  MIG 1g.18gb Device 0: (UUID: MIG-x)\\n  MIG 1g.18gb Device 1: (UUID: MIG-y)\\n"
PERFTEST = """cat <<'END'
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 8388608    20000            387.91             387.28             0.003007
END"""


class Shell:
    """A folder with stand-in tools, and a file in place of the termination message."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.sys = folder / "sys"

    def tool(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def device(self, name: str, *, state: str = "4: ACTIVE", identity: str = "0x1021", link: str = "InfiniBand") -> None:
        port = self.sys / "class/infiniband" / name / "ports/1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
        (port / "link_layer").write_text(f"{link}\n")
        (port.parents[1] / "device").mkdir()
        (port.parents[1] / "device/device").write_text(f"{identity}\n")

    def run(self, *scripts: str, env: Mapping[str, str]) -> dict[str, Any]:
        log = self.folder / "termination-log"
        text = manifest_objects.script(*scripts).replace("/tmp/add", f"{self.folder}/add")
        text = text.replace("/dev/termination-log", str(log))
        full = {"PATH": f"{self.bin}:{os.environ['PATH']}", "SYSFS": str(self.sys), "NODE_NAME": "gpu001", **env}
        done = subprocess.run(["/bin/sh", "-c", text, "check"], env=full, capture_output=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        assert len(log.read_bytes()) <= 4096
        report: dict[str, Any] = json.loads(log.read_text())
        return report


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


QUERY = """case "$*" in
  *uuid,vbios_version,driver_version*) printf 'GPU-a, 96.00.74.00.0D, 580.126.20\\nGPU-b, [N/A], 580.126.20\\n';;
  -L) printf 'GPU 0: NVIDIA H200 (UUID: GPU-a)\\nGPU 1: NVIDIA H200 (UUID: GPU-b)\\n';;
  *) echo '| NVIDIA-SMI 580.126.20             Driver Version: 580.126.20     CUDA Version: 13.0     |';;
esac"""
METRICS = """echo '# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).'
echo 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",pci_bus_id="00000000:1B:00.0",device="nvidia0",Hostname="gpu001"} 0'
echo 'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",device="nvidia0"} 1'"""
OPEN_MODULE = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.20  Release Build\n"


def test_cuda_on_every_gpu(shell: Shell) -> None:
    shell.tool("nvidia-smi", SMI.format(listing=WHOLE))
    shell.tool("vectorAdd", "echo Test PASSED")
    report = shell.run("cuda_add.sh", "cuda_smoke.sh", env={})
    known = {"node": "gpu001", "uuids": ["GPU-a", "GPU-b"], "devices": 2, "passed": 2, "error": ""}
    nothing = {"vbios": [], "driver": "", "driver_flavour": "", "cuda": "", "exported": -1, "exporter_error": ""}
    assert report == known | nothing


def test_driver_and_firmware_of_every_gpu_and_what_its_exporter_serves(shell: Shell) -> None:
    shell.tool("nvidia-smi", QUERY)
    shell.tool("vectorAdd", "echo Test PASSED")
    shell.tool("curl", METRICS)
    (shell.folder / "proc/driver/nvidia").mkdir(parents=True)
    (shell.folder / "proc/driver/nvidia/version").write_text(OPEN_MODULE)
    env = {"EXPORTER": "nvidia-dcgm-exporter.gpu-operator.svc:9400", "PROC": str(shell.folder / "proc")}
    report = shell.run("cuda_add.sh", "cuda_smoke.sh", env=env)
    assert (report["uuids"], report["vbios"]) == (["GPU-a", "GPU-b"], ["96.00.74.00.0D", "[N/A]"])
    assert (report["driver"], report["driver_flavour"], report["cuda"]) == ("580.126.20", "open", "13.0")
    assert (report["passed"], report["exported"], report["exporter_error"]) == (2, 1, "")


def test_an_exporter_that_does_not_answer_is_asked_again_and_told(shell: Shell) -> None:
    shell.tool("nvidia-smi", QUERY)
    shell.tool("vectorAdd", "echo Test PASSED")
    shell.tool("curl", "echo curl: refused; exit 7")
    shell.tool("wget", "exit 4")
    shell.tool("bash", "exit 1")
    shell.tool("sleep", f"echo slept >> {shell.folder}/naps")
    report = shell.run("cuda_add.sh", "cuda_smoke.sh", env={"EXPORTER": "127.0.0.1:9400"})
    assert (report["exported"], report["exporter_error"]) == (-1, "curl: refused")
    assert len((shell.folder / "naps").read_text().splitlines()) == 12


def test_metrics_come_also_without_curl_and_wget(shell: Shell) -> None:
    shell.tool("nvidia-smi", QUERY)
    shell.tool("vectorAdd", "echo Test PASSED")
    for name in ("curl", "wget"):
        shell.tool(name, "exit 127")
    body = b'HTTP/1.0 200 OK\r\n\r\nDCGM_FI_DEV_GPU_UTIL{UUID="GPU-a"} 0\nDCGM_FI_DEV_GPU_UTIL{UUID="GPU-b"} 0\n'
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(body)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        report = shell.run("cuda_add.sh", "cuda_smoke.sh", env={"EXPORTER": f"127.0.0.1:{server.getsockname()[1]}"})
        thread.join()
    assert report["exported"] == 2


def test_cuda_on_every_mig_instance(shell: Shell) -> None:
    shell.tool("nvidia-smi", SMI.format(listing=SLICED))
    shell.tool("vectorAdd", 'case "$CUDA_VISIBLE_DEVICES" in MIG-*) echo Test PASSED;; *) exit 1;; esac')
    report = shell.run("cuda_add.sh", "cuda_smoke.sh", env={})
    assert (report["devices"], report["passed"]) == (2, 2)


def test_one_gpu_fails_with_an_awkward_message(shell: Shell) -> None:
    shell.tool("nvidia-smi", SMI.format(listing=WHOLE))
    shell.tool("vectorAdd", '[ "$CUDA_VISIBLE_DEVICES" = GPU-b ] || exit 0\nprintf \'bad "quote" \\\\ and\\nnew line\'; exit 1')
    report = shell.run("cuda_add.sh", "cuda_smoke.sh", env={})
    assert (report["devices"], report["passed"]) == (2, 1)
    assert report["error"].startswith("GPU-b: bad quote")


def test_no_driver_in_the_container(shell: Shell) -> None:
    report = shell.run("cuda_add.sh", "cuda_smoke.sh", env={})
    assert report["uuids"] == []
    assert "nvidia-smi" in report["error"]


HOLD = {"SECONDS_TO_HOLD": "0"}


@pytest.mark.parametrize(("listing", "devices"), [(WHOLE, ["GPU-a", "GPU-b"]), (SLICED, ["MIG-x", "MIG-y"])])
def test_a_sharer_runs_a_kernel_on_what_it_sees(shell: Shell, listing: str, devices: list[str]) -> None:
    shell.tool("nvidia-smi", SMI.format(listing=listing))
    shell.tool("vectorAdd", f'echo "$CUDA_VISIBLE_DEVICES" >> {shell.folder}/ran')
    report = shell.run("cuda_add.sh", "sharing_hold.sh", env=HOLD)
    assert (report["uuids"], report["passed"], report["error"]) == (devices, 2, "")
    assert (shell.folder / "ran").read_text().split() == devices
    assert report["begin"] <= report["end"]


def test_a_sharer_without_a_usable_device_says_why(shell: Shell) -> None:
    shell.tool("nvidia-smi", SMI.format(listing="GPU 0: NVIDIA H200 (UUID: GPU-a)\\n"))
    shell.tool("vectorAdd", 'echo "all CUDA-capable devices are busy or unavailable"; exit 1')
    report = shell.run("cuda_add.sh", "sharing_hold.sh", env=HOLD)
    assert (report["uuids"], report["passed"]) == (["GPU-a"], 0)
    assert report["error"] == "GPU-a: all CUDA-capable devices are busy or unavailable"


def test_a_sharer_without_vector_add_or_compiler_says_so(shell: Shell) -> None:
    shell.tool("nvidia-smi", SMI.format(listing=WHOLE))
    report = shell.run("cuda_add.sh", "sharing_hold.sh", env=HOLD)
    assert report["passed"] == 0
    assert "no vectorAdd in the image and nvcc:" in report["error"]


RING = {"COUNT": "3", "DEVICE_IDS": "1021 101e", "LINK": "InfiniBand", "RING": "ib-write-bw", "JOB_COMPLETION_INDEX": "2"}


def test_bandwidth_of_every_active_rail(shell: Shell) -> None:
    shell.device("mlx5_0")
    shell.device("mlx5_1", state="1: DOWN")
    shell.device("mlx5_2", identity="0x101d")
    shell.device("mlx5_3", link="Ethernet")
    shell.tool("ib_write_bw", PERFTEST)
    report = shell.run("ib_write_bw.sh", env=RING)
    assert (report["index"], report["peer"], report["error"]) == (2, 0, "")
    assert report["rails"] == [
        {"device": "mlx5_0", "rail": 0, "state": "ACTIVE", "gbit": 387.28, "error": ""},
        {"device": "mlx5_1", "rail": 1, "state": "DOWN", "gbit": 0, "error": ""},
    ]
    assert report["excluded"] == [{"device": "mlx5_3", "link": "Ethernet"}], "of the right kind, and in the wrong mode"
    rails = [{"device": "mlx5_0", "rail": 0, "gbit": 387.28}, {"device": "mlx5_1", "rail": 1, "gbit": 0}]
    assert report["further"] == [{"peer": 1, "rails": rails}], "two away, as nobody is half of a ring of three away"


@pytest.mark.parametrize(("count", "partners"), [(2, [0]), (3, [0, 1]), (4, [3, 0]), (16, [3, 10])])
def test_each_pod_measures_to_two_partners(shell: Shell, count: int, partners: list[int]) -> None:
    shell.device("mlx5_0")
    shell.tool("ib_write_bw", PERFTEST)
    index = 1 if count == 2 else 2
    report = shell.run("ib_write_bw.sh", env=RING | {"COUNT": str(count), "JOB_COMPLETION_INDEX": str(index)})
    assert [report["peer"], *(round_["peer"] for round_ in report["further"])] == partners


def test_rails_are_numbered_by_name_so_that_a_missing_one_shifts_no_other(shell: Shell) -> None:
    for name in ("mlx5_0", "mlx5_2", "mlx5_10"):
        shell.device(name)
    (shell.sys / "class/net/net1").mkdir(parents=True)
    (shell.sys / "class/net/net1/mtu").write_text("4092\n")
    shell.tool("ib_write_bw", f'echo "$@" >> {shell.folder}/calls\n{PERFTEST}')
    report = shell.run("ib_write_bw.sh", env=RING | {"NUMBERS": "name", "RAILS": "mlx5_0 mlx5_1 mlx5_2", "COUNT": "2"})
    assert [(rail["device"], rail["rail"]) for rail in report["rails"]] == [("mlx5_0", 0), ("mlx5_2", 2)]
    assert report["interfaces"] == [{"name": "net1", "mtu": 4092}]
    calls = (shell.folder / "calls").read_text()
    assert "-d mlx5_2 -p 18502 " in calls
    assert "mlx5_10" not in calls, "not one of the rails that the plan names"


COMPUTE = ("mlx5_0", "mlx5_3", "mlx5_4", "mlx5_11")


@pytest.mark.parametrize(
    ("names", "planned", "numbers"),
    [
        (("mlx5_0", "mlx5_1", "mlx5_3"), "", [0, 1, 3]),
        (COMPUTE, "", [0, 1, 2, 3]),
        (COMPUTE, " ".join(COMPUTE), [0, 1, 2, 3]),
        (("mlx5_0", "mlx5_4"), " ".join(COMPUTE), [0, 2]),
        (("ibp24s0", "ibp64s0"), "", [0, 1]),
    ],
    ids=["one_missing", "gaps_in_names", "planned", "one_planned_missing", "names_by_slot"],
)
@pytest.mark.parametrize("script", ["ib_write_bw.sh", "fabric_pair.sh"])
def test_each_rail_has_a_number_of_its_own_below_their_count(
    shell: Shell, script: str, names: tuple[str, ...], planned: str, numbers: list[int]
) -> None:
    """Machines have other NICs between their rails, and names by slot end in the same digit; a GPU has the number of its rail."""
    for name in names:
        shell.device(name)
    shell.tool("ib_write_bw", PERFTEST)
    env = (RING if script == "ib_write_bw.sh" else FABRIC) | {
        "COUNT": "2",
        "JOB_COMPLETION_INDEX": "1",
        "NICS": "4",
        "NUMBERS": "name",
    }
    report = shell.run(script, env=env | ({"RAILS": planned} if planned else {}))
    assert sorted((rail["device"], rail["rail"]) for rail in report["rails"]) == sorted(zip(names, numbers, strict=True))


def test_the_machine_has_an_mtu_for_each_rail_and_behind_each_interface_of_the_pod(shell: Shell) -> None:
    """A virtual function stands for its port, a macvlan for its parent; a whole device is in the pod. Representors are no ports."""
    machine = shell.folder / "machine"
    files = {
        "bus/pci/devices/0000:18:00.1/physfn/net/ens1/mtu": "9000",
        "bus/pci/devices/0000:18:00.1/physfn/net/ens0r/phys_port_name": "pf0vf3",
        "bus/pci/devices/0000:18:00.1/physfn/net/ens0r/mtu": "1500",
        "class/net/ens7/mtu": "4200",
        "class/net/ens7/ifindex": "7",
    }
    own = {
        "bus/pci/devices/0000:19:00.0/net/net2/mtu": "2044",
        "class/net/net1/mtu": "1500",
        "class/net/net1/ifindex": "3",
        "class/net/net1/iflink": "7",
        "class/net/net2/mtu": "2044",
        "class/net/net2/ifindex": "9",
        "class/net/net2/iflink": "9",
    }
    for folder, texts in ((machine, files), (shell.sys, own)):
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{text}\n")
    for name, slot in (("mlx5_0", "0000:18:00.1"), ("mlx5_1", "0000:19:00.0"), ("mlx5_2", "0000:20:00.0")):
        shell.device(name)
        device = shell.sys / f"class/infiniband/{name}/device"
        (device.parent / slot).mkdir()
        (device / "device").rename(device.parent / slot / "device")
        device.rmdir()
        device.symlink_to(slot)
    (shell.sys / "class/net/net2/device").symlink_to("../../infiniband/mlx5_1/0000:19:00.0")
    shell.tool("ib_write_bw", PERFTEST)
    report = shell.run("ib_write_bw.sh", env=RING | {"HOST_SYSFS": str(machine), "COUNT": "2"})
    assert [rail.get("mtu") for rail in report["rails"]] == [9000, 2044, None], "InfiniBand may have no interface"
    assert report["interfaces"] == [
        {"name": "net1", "mtu": 1500, "host": "ens7", "host_mtu": 4200},
        {"name": "net2", "mtu": 2044, "host": "net2", "host_mtu": 2044},
    ]


def test_the_address_of_a_port_is_reported_by_its_kind_of_link(shell: Shell) -> None:
    shell.tool("ib_write_bw", PERFTEST)
    guid, mapped = "fe80:0000:0000:0000:946d:ae03:0012:3456", "0000:0000:0000:0000:0000:ffff:0a0a:0105"
    for name, link in (("mlx5_0", "InfiniBand"), ("mlx5_1", "Ethernet")):
        shell.device(name, link=link)
        port = shell.sys / f"class/infiniband/{name}/ports/1"
        (port / "gids").mkdir(parents=True, exist_ok=True)
        (port / "gid_attrs/types").mkdir(parents=True, exist_ok=True)
        for index, gid in enumerate((guid, guid, mapped)):
            (port / f"gids/{index}").write_text(f"{gid}\n")
            (port / f"gid_attrs/types/{index}").write_text("RoCE v2\n" if index else "IB/RoCE v1\n")
    assert [rail["gid"] for rail in shell.run("ib_write_bw.sh", env=RING)["rails"]] == [guid]
    assert [rail["gid"] for rail in shell.run("ib_write_bw.sh", env=RING | {"LINK": "Ethernet"})["rails"]] == [mapped]


def test_a_rail_below_its_floor_is_measured_three_times(shell: Shell) -> None:
    shell.device("mlx5_0")
    shell.tool("ib_write_bw", f'echo "$@" >> {shell.folder}/calls\n{PERFTEST}')
    report = shell.run("ib_write_bw.sh", env=RING | {"FLOOR": "400", "COUNT": "2"})
    assert (report["rails"][0]["gbit"], report["rails"][0]["error"]) == (387.28, "")
    client_calls = [call for call in (shell.folder / "calls").read_text().splitlines() if call.endswith(".ib-write-bw")]
    assert len(client_calls) == 3


def test_a_peer_that_does_not_answer(shell: Shell) -> None:
    shell.device("mlx5_0")
    shell.tool("ib_write_bw", 'echo "Couldn\'t connect to ib-write-bw-0:18500"; exit 1')
    report = shell.run("ib_write_bw.sh", env=RING | {"WINDOW": "1"})
    assert report["rails"] == [
        {"device": "mlx5_0", "rail": 0, "state": "ACTIVE", "gbit": 0, "error": "Couldnt connect to ib-write-bw-0:18500"}
    ]


def test_no_device_of_the_wanted_kind(shell: Shell) -> None:
    shell.device("mlx5_0", identity="0x1017")
    report = shell.run("ib_write_bw.sh", env=RING)
    assert report["rails"] == []
    assert "no RDMA device" in report["error"]


def test_roce_takes_the_gid_of_an_ipv4_address(shell: Shell) -> None:
    shell.device("mlx5_0", link="Ethernet")
    port = shell.sys / "class/infiniband/mlx5_0/ports/1"
    (port / "gid_attrs/types").mkdir(parents=True)
    (port / "gids").mkdir()
    for number, (kind, gid) in enumerate(
        [("IB/RoCE v1", "fe80"), ("RoCE v2", "fe80"), ("RoCE v2", "0000:0000:0000:0000:0000:ffff:c0a8:0005")]
    ):
        (port / "gid_attrs/types" / str(number)).write_text(f"{kind}\n")
        (port / "gids" / str(number)).write_text(f"{gid}\n")
    shell.tool("ib_write_bw", f'echo "$@" >> {shell.folder}/calls\n{PERFTEST}')
    report = shell.run("ib_write_bw.sh", env=RING | {"LINK": "Ethernet", "JOB_COMPLETION_INDEX": "0"})
    assert report["rails"][0]["gbit"] == 387.28
    assert "-x 2 " in (shell.folder / "calls").read_text()


FABRIC = {
    "COUNT": "2",
    "JOB_COMPLETION_INDEX": "0",
    "JOB": "fabric-1",
    "SERVICE": "fabric",
    "DEVICE_IDS": "1021",
    "LINK": "InfiniBand",
}


def test_a_pair_measures_every_rail_with_the_other_pod(shell: Shell) -> None:
    for name in ("mlx5_0", "mlx5_1"):
        shell.device(name)
    shell.device("mlx5_9", identity="0x1017")
    shell.tool("ib_write_bw", f'echo "$@" >> {shell.folder}/calls\n{PERFTEST}')
    report = shell.run("fabric_pair.sh", env=FABRIC | {"NUMBERS": "name", "MEMORY": "cuda"})
    assert report["rails"] == [
        {"device": "mlx5_0", "rail": 0, "gbit": 387.28, "peer": 1, "error": ""},
        {"device": "mlx5_1", "rail": 1, "gbit": 387.28, "peer": 1, "error": ""},
    ]
    calls = (shell.folder / "calls").read_text().splitlines()
    assert len([call for call in calls if call.endswith("fabric-1-1.fabric")]) == 2
    assert len(calls) == 4, "each rail serves the other direction as well"
    assert all("--use_cuda=" in call for call in calls)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
def test_every_two_pods_of_a_group_meet_once_and_at_the_same_step(shell: Shell, count: int) -> None:
    shell.device("mlx5_0")
    shell.tool("ib_write_bw", f'echo "$@" >> {shell.folder}/calls\n{PERFTEST}')
    met: set[tuple[int, int, str]] = set()
    for index in range(count):
        (shell.folder / "calls").unlink(missing_ok=True)
        shell.run("fabric_pair.sh", env=FABRIC | {"COUNT": str(count), "JOB_COMPLETION_INDEX": str(index)})
        clients = [call.split() for call in (shell.folder / "calls").read_text().splitlines() if call.endswith(".fabric")]
        met |= {(index, int(call[-1].split("-")[2].split(".")[0]), call[call.index("-p") + 1]) for call in clients}
    assert len(met) == count * (count - 1)
    assert all((other, index, port) in met for index, other, port in met)


def test_in_a_large_group_a_pod_meets_as_many_others_as_it_is_told(shell: Shell) -> None:
    """All 9,999 others of a group over 10,000 nodes would take ten hours."""
    shell.device("mlx5_0")
    shell.tool("ib_write_bw", f'echo "$@" >> {shell.folder}/calls\n{PERFTEST}')
    shell.run("fabric_pair.sh", env=FABRIC | {"COUNT": "10000", "JOB_COMPLETION_INDEX": "17", "STEPS": "3"})
    met = {call.split()[-1] for call in (shell.folder / "calls").read_text().splitlines() if call.endswith(".fabric")}
    assert met == {"fabric-1-9982.fabric", "fabric-1-9983.fabric", "fabric-1-9984.fabric"}


def test_only_the_named_rails_are_tested_and_a_silent_peer_is_reported(shell: Shell) -> None:
    for name in ("mlx5_0", "mlx5_1"):
        shell.device(name)
    shell.tool("ib_write_bw", 'echo "Couldn\'t connect to fabric-1-1.fabric:18501"; exit 1')
    report = shell.run("fabric_pair.sh", env=FABRIC | {"TESTED": "1", "STEP": "1"})
    assert report["rails"] == [
        {"device": "mlx5_1", "rail": 1, "gbit": 0, "peer": 1, "error": "Couldnt connect to fabric-1-1.fabric:18501"}
    ]
