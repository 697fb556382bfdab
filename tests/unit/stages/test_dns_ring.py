"""Scripts `dns_ring.sh` and `host_probe.sh` in a shell, with stand-ins for busybox's tools: what a pod tells of a dead way."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from workflows.stages import manifest_objects

WGET = r"""#!/bin/sh
# A stand-in for busybox's wget: $WEB has a file for each URL that answers; others are refused, or time out where silent is there.
for word in "$@"; do [ "$last" != -O ] || out=$word; last=$word; done
name=$(echo "$last" | tr -c 'A-Za-z0-9.\n-' _)
case "$*" in *"Host: "*) name=ingress_$name ;; esac
if [ -e "$WEB/$name" ]; then cat "$WEB/$name" > "$out"; exit 0; fi
[ ! -e "$WEB/silent" ] || { echo "wget: download timed out" >&2; exit 1; }
echo "wget: can't connect to remote host: Connection refused" >&2
exit 1
"""
NSLOOKUP = r"""#!/bin/sh
# A stand-in for busybox's nslookup: dns has a file with the address of each name.
asked=${1%.}
[ -e "$WEB/../dns/$asked" ] || { echo ";; connection timed out; no servers could be reached" >&2; exit 1; }
printf 'Server:\t10.43.0.10\nAddress:\t10.43.0.10:53\n\nName:\t%s\nAddress: %s\n' "$1" "$(cat "$WEB/../dns/$asked")"
"""
API = "kubernetes.default.svc.cluster.local"
GOOD = {
    "http___10.43.7.7_cgi-bin_name": "gpu002",
    "http___vip_cgi-bin_name": "gpu003",
    "http___dns-1.dns_8080_cgi-bin_name": "gpu002",
    "http___dns-1.dns_8080_large": "x" * 65536,
    "http___dns-1.dns_8080_cgi-bin_got": "gpu002",
    "http___dns-2.dns_8080_cgi-bin_name": "gpu003",
}
INGRESS = {"INGRESS_HOST": "ring.internal", "HOST_IP": "10.0.0.1", "INGRESS_AT": "10.0.0.8 10.0.0.9"}


class Pod:
    """A folder in place of the pod's file system, with tools, names and addresses that answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("bin", "web", "dns", "tmp"):
            (folder / name).mkdir()
        for name, text in (("wget", WGET), ("nslookup", NSLOOKUP), ("httpd", "#!/bin/sh\n"), ("sleep", "#!/bin/sh\n")):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        self.answers(GOOD)
        (folder / "dns" / API).write_text("10.43.0.1")

    def answers(self, urls: dict[str, str]) -> None:
        for name, node in urls.items():
            (self.folder / "web" / name).write_text(node)

    def silence(self, *names: str) -> None:
        for name in names:
            (self.folder / "web" / name).unlink()
        (self.folder / "web/silent").touch()

    def asked(self) -> None:
        (self.folder / "tmp/asked").touch()

    def run(self, seconds: int = 1, domain: str = "cluster.local", /, **more: str) -> dict[str, Any]:
        text = manifest_objects.script("dns_ring.sh").replace("/tmp/", f"{self.folder}/tmp/")
        text = text.replace("/dev/termination-log", f"{self.folder}/log").replace("/etc/resolv.conf", f"{self.folder}/resolv.conf")
        (self.folder / "resolv.conf").write_text(
            f"search bringup-check.svc.{domain} svc.{domain} {domain} example.org\nnameserver 10.43.0.10\n"
        )
        environment = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "WEB": f"{self.folder}/web",
            "JOB_COMPLETION_INDEX": "0",
            "COUNT": "3",
            "NODE_NAME": "gpu001",
            "SECONDS_TO_WAIT": str(seconds),
            "KUBERNETES_SERVICE_HOST": "10.43.0.1",
            "VIP_SERVICE_HOST": "10.43.7.7",
            **more,
        }
        done = subprocess.run(["/bin/sh", "-c", text], env=environment, capture_output=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads((self.folder / "log").read_text())
        return report


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_everything_answers(pod: Pod) -> None:
    pod.asked()
    assert pod.run(60) == {
        "node": "gpu001",
        "resolved": "10.43.0.1",
        "service": "10.43.0.1",
        "vip": "gpu002",
        "named": "gpu003",
        "next": 1,
        "peer": "gpu002",
        "before": "gpu003",
        "reached": True,
        "large": True,
        "outside": {},
        "caught": "",
        "ingress": "",
        "own": False,
        "error": "",
    }


def test_a_pod_that_nobody_asks_waits_and_has_nothing_to_complain_of(pod: Pod) -> None:
    assert pod.run()["error"] == ""


def test_a_service_without_rules(pod: Pod) -> None:
    pod.silence("http___10.43.7.7_cgi-bin_name")
    report = pod.run()
    assert (report["vip"], report["named"], report["peer"]) == ("", "gpu003", "gpu002")
    assert report["error"] == "wget: download timed out"


@pytest.mark.parametrize("came", [0, 1400])
def test_packets_of_full_size_that_are_lost_on_the_way(pod: Pod, came: int) -> None:
    pod.asked()
    pod.silence("http___dns-1.dns_8080_large")
    pod.answers({"http___dns-1.dns_8080_large": "x" * came} if came else {})
    report = pod.run()
    assert (report["peer"], report["reached"], report["large"]) == ("gpu002", True, False)
    assert report["error"] == ("" if came else "wget: download timed out")
    assert "thanked" not in {path.name for path in (pod.folder / "tmp").iterdir()}, "its neighbour must not end yet"


def test_a_neighbour_that_ends_with_the_last_packet_was_reached_all_the_same(pod: Pod) -> None:
    pod.asked()
    pod.silence("http___dns-1.dns_8080_cgi-bin_got")
    assert [pod.run(60)[key] for key in ("large", "error")] == [True, ""]


def test_names_that_are_not_resolved(pod: Pod) -> None:
    (pod.folder / "dns" / API).unlink()
    pod.silence(*(name for name in GOOD if "10.43.7.7" not in name))
    report = pod.run()
    assert (report["resolved"], report["vip"], report["named"], report["reached"]) == ("", "gpu002", "", False)


def test_a_cluster_may_have_a_domain_of_its_own(pod: Pod) -> None:
    pod.asked()
    (pod.folder / "dns" / API).rename(pod.folder / "dns/kubernetes.default.svc.k8s.example.org")
    (pod.folder / "dns/vip.bringup-check.svc.k8s.example.org").write_text("10.43.7.7")
    report = pod.run(60, "k8s.example.org", VIP_SERVICE_HOST="")
    assert [report[key] for key in ("resolved", "vip", "error")] == ["10.43.0.1", "gpu002", ""]


def test_the_address_of_the_service_comes_from_dns_where_the_kubelet_did_not_tell_it(pod: Pod) -> None:
    pod.asked()
    (pod.folder / "dns/vip.bringup-check.svc.cluster.local").write_text("10.43.7.7")
    assert pod.run(60, VIP_SERVICE_HOST="")["vip"] == "gpu002"


def test_an_address_of_ip_version_six_is_put_into_brackets(pod: Pod) -> None:
    pod.asked()
    pod.answers({"http____fd00_7__cgi-bin_name": "gpu003"})
    assert pod.run(60, VIP_SERVICE_HOST="fd00:7")["vip"] == "gpu003"


def test_the_ingress_controller_of_this_node_comes_first(pod: Pod) -> None:
    pod.asked()
    pod.answers({f"ingress_http___10.0.0.{number}_cgi-bin_name": f"gpu00{number}" for number in (1, 8)})
    assert [pod.run(60, **INGRESS)[key] for key in ("ingress", "own", "error")] == ["gpu001", True, ""]


def test_where_nothing_listens_another_nodes_controller_is_asked(pod: Pod) -> None:
    pod.asked()
    pod.answers({"ingress_http___10.0.0.9_cgi-bin_name": "gpu009"})
    assert [pod.run(60, **INGRESS)[key] for key in ("ingress", "own", "error")] == ["gpu009", False, ""]


def test_a_controller_that_times_out_is_not_replaced_by_another(pod: Pod) -> None:
    pod.answers({"ingress_http___10.0.0.9_cgi-bin_name": "gpu009"})
    pod.silence()
    report = pod.run(1, **INGRESS)
    assert (report["ingress"], report["own"], report["error"]) == ("", False, "wget: download timed out")


def test_a_page_of_somebody_else_stays_a_short_word(pod: Pod) -> None:
    pod.asked()
    pod.answers({"ingress_http___10.0.0.1_cgi-bin_name": '<html>"It works!"\n' + "x" * 5000})
    assert len(pod.run(60, **INGRESS)["ingress"]) == 63


def test_one_node_has_no_other_to_ask(pod: Pod) -> None:
    report = pod.run(60, COUNT="1")
    assert (report["peer"], report["before"], report["reached"], report["vip"], report["error"]) == ("", "", False, "gpu002", "")


OUTSIDE = {"OUTSIDE": "charts.example.com git.example.com"}


def test_outside_names_are_told_with_their_addresses(pod: Pod) -> None:
    pod.asked()
    for name in OUTSIDE["OUTSIDE"].split():
        (pod.folder / "dns" / name).write_text("198.51.100.7")
    report = pod.run(60, **OUTSIDE)
    assert report["outside"] == {"charts.example.com": "198.51.100.7", "git.example.com": "198.51.100.7"}
    assert (report["caught"], report["error"]) == ("", "")


def test_an_outside_name_without_an_answer_is_told_with_the_error(pod: Pod) -> None:
    pod.asked()
    (pod.folder / "dns/git.example.com").write_text("198.51.100.7")
    report = pod.run(1, **OUTSIDE)
    assert report["outside"] == {"charts.example.com": "", "git.example.com": "198.51.100.7"}
    assert "connection timed out" in report["error"]


def test_a_search_domain_that_answers_for_an_outside_name_is_told(pod: Pod) -> None:
    pod.asked()
    for name in ("charts.example.com", "git.example.com", "git.example.com.example.org"):
        (pod.folder / "dns" / name).write_text("198.51.100.7")
    assert pod.run(60, **OUTSIDE)["caught"] == "example.org"


def test_domains_of_the_cluster_are_not_asked_for_outside_names(pod: Pod) -> None:
    pod.asked()
    for name in ("charts.example.com", "charts.example.com.cluster.local", "charts.example.com.svc.cluster.local"):
        (pod.folder / "dns" / name).write_text("198.51.100.7")
    assert pod.run(60, OUTSIDE="charts.example.com")["caught"] == ""


class HostPod(Pod):
    """A folder for check `host`, whose script asks in the network of a server."""

    def probe(self, *servers: str, seconds: int = 1, **more: str) -> dict[str, Any]:
        text = manifest_objects.script("host_probe.sh").replace("/tmp/", f"{self.folder}/tmp/")
        text = text.replace("/dev/termination-log", f"{self.folder}/log").replace("/etc/resolv.conf", f"{self.folder}/resolv.conf")
        (self.folder / "resolv.conf").write_text("search example.org\n" + "".join(f"nameserver {server}\n" for server in servers))
        environment = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "WEB": f"{self.folder}/web",
            "NODE_NAME": "sv1",
            "SECONDS_TO_WAIT": str(seconds),
            "OUTSIDE": "charts.example.com",
            "ANSWER_SERVICE_HOST": "10.43.8.8",
            **more,
        }
        subprocess.run(["/bin/sh", "-c", text], env=environment, capture_output=True, check=True, timeout=60)
        report: dict[str, Any] = json.loads((self.folder / "log").read_text())
        return report


@pytest.fixture
def host(tmp_path: Path) -> HostPod:
    return HostPod(tmp_path)


SERVICE = "http___10.43.8.8_cgi-bin_name"


def test_a_server_tells_its_dns_servers_and_who_answers(host: HostPod) -> None:
    (host.folder / "dns/charts.example.com").write_text("198.51.100.7")
    host.answers({SERVICE: "gpu002"})
    assert host.probe("10.0.0.53", "fe80::1%eth0") == {
        "node": "sv1",
        "upstreams": [
            {"server": "10.0.0.53", "answer": "198.51.100.7"},
            {"server": "fe80::1%e0", "answer": "198.51.100.7"},
        ],
        "answered": ["gpu002"],
        "unanswered": 0,
        "error": "",
    }


def test_dns_servers_without_an_answer_and_a_service_that_is_cut_off_are_told(host: HostPod) -> None:
    (host.folder / "web/silent").touch()
    report = host.probe("8.8.8.8")
    assert report["upstreams"] == [{"server": "8.8.8.8", "answer": ""}]
    assert (report["answered"], report["error"]) == ([], "wget: download timed out")
    assert report["unanswered"] >= 1


def test_only_another_node_proves_the_way_unless_there_is_none(host: HostPod) -> None:
    host.answers({SERVICE: "sv1"})
    assert host.probe("10.0.0.53")["answered"] == ["sv1"]
    alone = host.probe("10.0.0.53", seconds=60, ALONE="true")
    assert (alone["answered"], alone["error"]) == (["sv1"], "")


def test_a_site_without_outside_names_asks_no_dns_server(host: HostPod) -> None:
    host.answers({SERVICE: "gpu002"})
    assert host.probe("10.0.0.53", OUTSIDE="")["upstreams"] == [{"server": "10.0.0.53", "answer": ""}]
