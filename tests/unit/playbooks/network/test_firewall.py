"""A firewall that stays lets in what the cluster needs, through stand-ins for firewall-cmd, ufw and iptables; the real ones:
`tests/hosts/test_firewall.py`."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.nodeprofile import firewall, firewall_backends

from tests.unit.playbooks.machine import Machine

WANTED = {
    "api": ["6443/tcp", "9345/tcp"],
    "servers": ["2379-2381/tcp"],
    "nodes": ["10250/tcp", "30000-32767/tcp", "8472/udp"],
    "pods": ["10.42.0.0/16", "10.43.0.0/16"],
    "networks": [],
}
NARROW = WANTED | {"networks": ["10.10.0.0/16"]}
ADDRESS = "10.10.0.11"
LINKS = '[{"ifname": "eth0", "addr_info": [{"local": "10.10.0.11"}]}, {"ifname": "eth1", "addr_info": [{"local": "192.0.2.7"}]}]'
RULE = 'rule family="ipv4" source address="10.10.0.0/16" port port="8472" protocol="udp" accept'


class Zones:
    """A stand-in for firewalld: zones of the running and the kept configuration, printed and changed as firewall-cmd does."""

    def __init__(self, **zones: dict[str, list[str]]) -> None:
        first = {"public": {"interfaces": ["eth0"]}, "trusted": {"target": ["ACCEPT"]}} | zones
        self.now, self.kept = ({name: {key: [*said] for key, said in zone.items()} for name, zone in first.items()} for _ in "ab")

    def answer(self, command: tuple[str, ...]) -> tuple[int, str, str]:
        zones = self.kept if "--permanent" in command else self.now
        if "--list-all-zones" in command:
            return 0, "\n".join(self._shown(name, zone) for name, zone in zones.items()), ""
        if "--get-default-zone" in command:
            return 0, "public\n", ""
        options = dict.fromkeys(word for word in command if word.startswith("--add-"))
        name = next(word.partition("=")[2] for word in command if word.startswith("--zone="))
        said = [self._added(zones, name, *option.removeprefix("--add-").split("=", 1)) for option in options]
        errors = [line for line in said if line]
        refused = len(errors) == len(said)
        return (26 if refused else 0), "success\n", "".join(f"{'Error' if refused else 'Warning'}: {line}\n" for line in errors)

    def _added(self, zones: dict[str, dict[str, list[str]]], name: str, option: str, value: str) -> str:
        key = {"port": "ports", "source": "sources", "rich-rule": "rich rules"}[option]
        for other, zone in zones.items():
            if option == "source" and other != name and value in zone.get(key, []):
                return f"ZONE_CONFLICT: '{value}' already bound to a zone"
        zones[name].setdefault(key, []).append(value)
        return ""

    def _shown(self, name: str, zone: dict[str, list[str]]) -> str:
        active = " (active)" if zone.get("interfaces") else ""
        rules = "".join(f"\n\t{rule}" for rule in zone.get("rich rules", []))
        rows = [f"  target: {' '.join(zone.get('target', ['default']))}", "  icmp-block-inversion: no"]
        rows += [f"  {key}: {' '.join(zone.get(key, []))}" for key in ("interfaces", "sources", "services", "ports", "protocols")]
        forwarded = "  forward-ports: \n\tport=80:proto=tcp:toport=8080:toaddr="
        return "\n".join([name + active, *rows, "  forward: yes", forwarded, "  icmp-blocks: ", f"  rich rules: {rules}", ""])


class Chains:
    """A stand-in for ufw and its chains: rules in a file as ufw writes them, and in the kernel as iptables lists them."""

    def __init__(self, root: Path) -> None:
        self.file, self.kernel = root / "etc/ufw/user.rules", ["-N ufw-user-input"]
        self.file.parent.mkdir(parents=True)
        self.file.write_text(
            "*filter\n### tuple ### allow tcp 22 0.0.0.0/0 any 0.0.0.0/0 in\n-A ufw-user-input -p tcp --dport 22 -j ACCEPT\n"
        )
        (root / "etc/ufw/ufw.conf").write_text("# comment\nENABLED=yes\nLOGLEVEL=low\n")
        self.reloads = 0

    def ufw(self, command: tuple[str, ...]) -> tuple[int, str, str]:
        if command[1:] == ("reload",):
            self.reloads += 1
            self.kernel = self._lines()
            return 0, "", ""
        assert command[-2:] == ("comment", firewall_backends.OURS)
        with self.file.open("a") as out:
            out.write(self._rule([*command[1:-2]]) + "\n")
        self.kernel = self._lines()
        return 0, "Rule added\n", ""

    def iptables(self, command: tuple[str, ...]) -> tuple[int, str, str]:
        lines = [line for line in self.kernel if f" {command[-1]} " in f"{line} "]
        return (0, "\n".join(lines), "") if self.kernel else (1, "", "iptables: No chain/target/match by that name.")

    def _rule(self, words: list[str]) -> str:
        chain = "forward" if words[0] == "route" else "input"
        words = words[words[0] == "route" :][1:]
        if len(words) == 1:
            port, _, kind = words[0].partition("/")
            source, to = "", ""
        else:
            said = dict(zip(words[::2], words[1::2], strict=True))
            port, kind, source, to = (said.get(key, "") for key in ("port", "proto", "from", "to"))
        row = ["-A", f"ufw-user-{chain}", *["-p", kind] * bool(kind)]
        row += ["-m", "multiport", "--dports", port] if ":" in port else ["--dport", port] if port else []
        row += ["-s", source] * bool(source) + ["-d", to] * (to not in ("", "any"))
        return " ".join([*row, "-j", "ACCEPT"])

    def _lines(self) -> list[str]:
        """As iptables lists them: with the names of matches, and sources first."""
        found = ["-N ufw-user-input", "-N ufw-user-forward"]
        for line in self.file.read_text().splitlines():
            if line.startswith("-A "):
                words = line.split()
                at = words.index("-s") if "-s" in words else 0
                source = [*words[at : at + 2]] if at else []
                rest = [*words[2:at], *words[at + 2 :]] if at else words[2:]
                row = " ".join([*words[:2], *source, *rest])
                found.append(
                    row.replace("-p tcp --dport", "-p tcp -m tcp --dport").replace("-p udp --dport", "-p udp -m udp --dport")
                )
        return found


def systemd(**units: str) -> Callable[[tuple[str, ...]], tuple[int, str, str]]:
    """A stand-in for systemctl: `firewalld="active enabled"`."""

    def answer(command: tuple[str, ...]) -> tuple[int, str, str]:
        names = [word.removesuffix(".service") for word in command if word.endswith(".service")]
        states = [units.get(name.replace("-", "_"), "inactive disabled").split() for name in names]
        return (
            0,
            "\n".join(
                f"Id={name}\nActiveState={state}\nUnitFileState={kept}\n" for name, (state, kept) in zip(names, states, strict=True)
            ),
            "",
        )

    return answer


def machine(root: Path, **units: str) -> Machine:
    (root / "run/systemd/system").mkdir(parents=True)
    return Machine({"systemctl": systemd(**units), "ip": lambda _: (0, LINKS, "")}, root=root)


def with_firewalld(root: Path, zones: Zones) -> Machine:
    node = machine(root, firewalld="active enabled")
    node.tools["firewall-cmd"] = zones.answer
    return node


def with_ufw(root: Path) -> tuple[Machine, Chains]:
    node, chains = machine(root, ufw="active enabled"), Chains(root)
    node.tools |= {"ufw": chains.ufw, "iptables": chains.iptables}
    return node, chains


def settled(node: Machine, wanted: dict[str, list[str]] = WANTED, *, server: bool = True) -> dict[str, Any]:
    (row,) = firewall.firewall(node, wanted, server, ADDRESS, str(node.root))
    return dict(row)


def changes(node: Machine) -> list[str]:
    """Return the commands that changed something, as shell lines, without those that only asked."""
    asked = ("--list-all-zones", "--get-default-zone", "-S", "show", "address")
    return [shlex.join(command) for command in node.said if not set(command) & set(asked)]


def test_the_zone_of_this_machines_interface_is_opened_now_and_for_the_next_boot_and_no_reload_is_made(tmp_path: Path) -> None:
    zones = Zones(external={"interfaces": ["eth1"]})
    node = with_firewalld(tmp_path, zones)
    row = settled(node)
    assert row["status"] == "changed", row
    assert row["before"].startswith(
        "firewalld.service lacks 10250/tcp, 30000-32767/tcp, 8472/udp, 2379-2381/tcp, 6443/tcp, 9345/tcp"
    )
    assert row["after"] == row["want"]
    for config in (zones.now, zones.kept):
        assert config["public"]["ports"] == [*WANTED["nodes"], *WANTED["servers"], *WANTED["api"]]
        assert config["trusted"]["sources"] == WANTED["pods"]
        assert config["external"] == {"interfaces": ["eth1"]}
    assert len(changes(node)) == 4, "a call for each kind, zone and configuration"
    assert not any("reload" in line for line in changes(node)), "it would take away what Canal has in iptables"
    assert node.diffs == [
        {"before_header": "firewall", "after_header": "firewall", "before": row["before"] + "\n", "after": row["want"] + "\n"}
    ]
    assert settled(node)["status"] == "ok"
    assert len(changes(node)) == 4


def test_an_agent_opens_no_port_of_servers_and_networks_of_machines_narrow_all_but_the_api(tmp_path: Path) -> None:
    agent = Zones()
    assert settled(with_firewalld(tmp_path / "agent", agent), NARROW, server=False)["status"] == "changed"
    assert agent.now["public"].get("ports") is None
    assert RULE in agent.kept["public"]["rich rules"]
    assert not any('"6443"' in rule or "2379" in rule for rule in agent.kept["public"]["rich rules"])
    server = Zones()
    node = with_firewalld(tmp_path / "server", server)
    row = settled(node, NARROW)
    assert row["want"].startswith(
        "lets in 10250/tcp, 30000-32767/tcp, 8472/udp, 2379-2381/tcp from 10.10.0.0/16; 6443/tcp, 9345/tcp; all from 10.42"
    )
    assert server.now["public"]["ports"] == WANTED["api"]
    assert settled(node, NARROW)["status"] == "ok"


def test_what_only_one_of_the_two_configurations_has_is_added_to_the_other(tmp_path: Path) -> None:
    zones = Zones()
    node = with_firewalld(tmp_path, zones)
    settled(node)
    zones.kept["public"]["ports"].remove("8472/udp")
    zones.now["trusted"]["sources"] = []
    row = settled(node)
    assert (row["status"], row["before"]) == (
        "changed",
        "firewalld.service lacks 8472/udp; all from 10.42.0.0/16; all from 10.43.0.0/16",
    )
    assert "8472/udp" in zones.kept["public"]["ports"]
    assert zones.now["trusted"]["sources"] == WANTED["pods"]


def test_what_a_site_has_opened_already_is_enough(tmp_path: Path) -> None:
    zones = Zones(
        public={"interfaces": ["eth0"], "ports": ["6443/tcp", "9345/tcp", "2379-2400/tcp", "10000-40000/tcp", "8472/udp"]},
        pods={"target": ["ACCEPT"], "sources": ["10.40.0.0/13", "aa:bb:cc:dd:ee:ff", "ipset:office"]},
    )
    node = with_firewalld(tmp_path, zones)
    assert settled(node)["status"] == "ok"
    assert changes(node) == []


def test_a_zone_whose_sources_machines_are_among_is_opened_too_and_one_of_other_sources_is_not(tmp_path: Path) -> None:
    zones = Zones(internal={"sources": ["10.10.0.0/24"]}, office={"sources": ["192.0.2.0/24", "ipset:office"]})
    settled(with_firewalld(tmp_path, zones))
    assert "8472/udp" in zones.now["internal"]["ports"]
    assert "8472/udp" in zones.now["public"]["ports"]
    assert "ports" not in zones.now["office"]


def test_a_machine_reached_by_another_address_opens_the_zone_of_its_default_route_else_the_default_zone(tmp_path: Path) -> None:
    routed = Zones(external={"interfaces": ["eth1"]}, public={})
    node = with_firewalld(tmp_path / "routed", routed)
    (tmp_path / "routed/proc/net").mkdir(parents=True)
    (tmp_path / "routed/proc/net/route").write_text("Iface Destination\neth1 00000000 0102A8C0 0003 0 0 0 00000000 0 0 0\n")
    (row,) = firewall.firewall(node, WANTED, False, "127.0.0.1", str(node.root))
    assert (row["status"], "8472/udp" in routed.now["external"]["ports"], "ports" in routed.now["public"]) == (
        "changed",
        True,
        False,
    )
    bare = Zones(public={})
    (row,) = firewall.firewall(with_firewalld(tmp_path / "bare", bare), WANTED, False, "m001.example.org", str(tmp_path / "bare"))
    assert (row["status"], "8472/udp" in bare.now["public"]["ports"]) == ("changed", True)


@pytest.mark.parametrize("zone", ["internal", "public"])
def test_the_zone_of_the_interface_in_the_clusters_networks_is_opened_besides_that_of_the_one_ssh_dials(
    tmp_path: Path, zone: str
) -> None:
    """`public` is the default zone, which an interface that is in none falls to."""
    dialled = {"interfaces": ["eth0"]}
    zones = Zones(public={}, outer=dialled) if zone == "public" else Zones(internal={"interfaces": ["eth1"]})
    node = with_firewalld(tmp_path, zones)
    assert settled(node, WANTED | {"networks": ["192.0.2.0/24"]})["status"] == "changed"
    opened = {name for name, one in zones.now.items() if any("8472" in rule for rule in one.get("rich rules", []))}
    assert opened == {zone, next(name for name, one in zones.now.items() if one.get("interfaces") == ["eth0"])}
    assert zones.kept[zone]["ports"] == WANTED["api"]
    assert settled(node, WANTED | {"networks": ["192.0.2.0/24"]})["status"] == "ok"


@pytest.mark.parametrize("narrow", [True, False])
def test_what_firewalld_refuses_is_said_in_its_words_though_it_ends_with_zero(tmp_path: Path, narrow: bool) -> None:
    bound = WANTED["pods"][: 1 if narrow else 2]
    row = settled(with_firewalld(tmp_path, Zones(office={"sources": bound})))
    assert row["status"] == "failed"
    assert "ZONE_CONFLICT: '10.42.0.0/16' already bound to a zone" in row["why"]


def test_check_mode_says_what_lacks_and_changes_nothing(tmp_path: Path) -> None:
    zones = Zones()
    node = with_firewalld(tmp_path / "firewalld", zones)
    node.check_mode = True
    assert settled(node)["status"] == "differs"
    assert "ports" not in zones.now["public"]
    assert len(node.diffs) == 1
    other, chains = with_ufw(tmp_path / "ufw")
    other.check_mode = True
    before = chains.file.read_text()
    assert settled(other)["status"] == "differs"
    assert chains.file.read_text() == before


def test_ufw_lets_in_ports_and_routes_pods_now_and_for_the_next_boot(tmp_path: Path) -> None:
    node, chains = with_ufw(tmp_path)
    row = settled(node)
    assert row["status"] == "changed", row
    mark = "comment 'made by bringup'"
    assert changes(node) == [
        *(
            f"ufw allow {port} {mark}"
            for port in ("10250/tcp", "30000:32767/tcp", "8472/udp", "2379:2381/tcp", "6443/tcp", "9345/tcp")
        ),
        *(f"ufw {way} {pods} {mark}" for pods in WANTED["pods"] for way in ("allow from", "route allow from", "route allow to")),
    ]
    assert "-A ufw-user-forward -d 10.42.0.0/16 -j ACCEPT" in chains.file.read_text().splitlines()
    assert chains.reloads == 0
    done = len(changes(node))
    assert settled(node)["status"] == "ok"
    assert not any(line.startswith("ufw") for line in changes(node)[done:])


def test_ufw_narrows_by_source_and_what_the_kernel_alone_lacks_comes_by_a_reload(tmp_path: Path) -> None:
    node, chains = with_ufw(tmp_path)
    wanted = NARROW | {"networks": ["10.10.0.0/16", "10.11.0.7/32"]}
    assert settled(node, wanted)["status"] == "changed"
    assert "ufw allow proto udp from 10.11.0.7/32 to any port 8472 comment 'made by bringup'" in changes(node)
    chains.kernel.remove("-A ufw-user-input -s 10.10.0.0/16 -p udp -m udp --dport 8472 -j ACCEPT")
    row = settled(node, wanted)
    assert (row["status"], row["before"], chains.reloads) == ("changed", "ufw.service lacks 8472/udp from 10.10.0.0/16", 1)


@pytest.mark.parametrize("unit", ["firewalld", "ufw"])
def test_one_that_would_come_with_the_next_boot_fails_the_machine_before_that(tmp_path: Path, unit: str) -> None:
    node = machine(tmp_path, **{unit: "inactive enabled"})
    if unit == "ufw":
        chains = Chains(tmp_path)
        chains.kernel = []
        node.tools |= {"ufw": chains.ufw, "iptables": chains.iptables}
    row = settled(node)
    assert (row["status"], f"{unit}.service does not run now, and comes with the next boot" in row["why"]) == ("failed", True)


def test_rules_of_the_sites_own_stay_and_are_said_with_what_they_must_let_in(tmp_path: Path) -> None:
    node = machine(tmp_path / "site", nftables="active enabled")
    row = settled(node, server=False)
    assert (row["status"], row["after"]) == ("ok", "nftables.service")
    assert "see that they let in 10250/tcp, 30000-32767/tcp, 8472/udp; all from 10.42.0.0/16" in row["why"]
    assert [command[0] for command in node.said] == ["systemctl"]
    both = with_firewalld(tmp_path / "both", Zones())
    both.tools["systemctl"] = systemd(firewalld="active enabled", nftables="active enabled")
    row = settled(both)
    assert (row["status"], "nftables.service loads rules" in row["why"]) == ("changed", True)


def test_a_machine_without_a_firewall_and_a_profile_that_stops_it_have_nothing_to_do(tmp_path: Path) -> None:
    row = settled(machine(tmp_path / "none"))
    assert (row["status"], row["after"], "why" in row) == ("ok", "none runs", False)
    assert firewall.firewall(Machine({}), {}, True, ADDRESS) == []
    assert settled(Machine({}, root=tmp_path / "no-init"))["after"] == "none runs"


def test_a_firewalld_that_does_not_answer_fails_the_item_alone(tmp_path: Path) -> None:
    node = machine(tmp_path, firewalld="active enabled")
    node.tools["firewall-cmd"] = lambda _: (252, "", "FirewallD is not running")
    row = settled(node)
    assert (row["status"], "FirewallD is not running" in row["why"]) == ("failed", True)


def test_where_no_firewall_stays_rules_of_others_are_told(tmp_path: Path) -> None:
    row = settled(machine(tmp_path / "site", nftables="active enabled", ufw="active enabled"), {})
    assert (row["name"], row["status"], row["after"]) == ("firewall", "ok", "nftables.service")
    assert row["why"].startswith("nftables.service loads rules of the site's own, which stay as they are")
    for node in (machine(tmp_path / "none", firewalld="active enabled"), Machine({}, root=tmp_path / "without systemd")):
        assert firewall.firewall(node, {}, True, ADDRESS, str(node.root)) == []
