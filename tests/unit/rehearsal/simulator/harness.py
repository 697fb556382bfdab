"""Somebody at the API of a simulated cluster: writes as a user would, reads what the server has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from steps.contract.fleet import Host
from steps.contract.host_play import PlayHost, PlayRequest
from workflows.rehearsal.simulator import playbook_runs
from workflows.rehearsal.simulator.api.api_client import Api
from workflows.rehearsal.simulator.api.api_kinds import JOBS, NODES, PODS, Obj, Ref
from workflows.rehearsal.simulator.simulation import Simulator

START = 1_800_000_000.0


def hosts(agents: int, servers: int = 1) -> tuple[Host, ...]:
    """Servers without GPUs, then agents with eight each."""
    names = [f"cp{number:02d}" for number in range(servers)] + [f"gpu{number:03d}" for number in range(agents)]
    return tuple(
        Host(
            name=name,
            address=f"10.1.{number // 250}.{number % 250 + 1}",
            group=name[:2],
            role="server" if number < servers else "agent",
            gpus=0 if number < servers else 8,
        )
        for number, name in enumerate(names)
    )


class User:
    """Somebody at the API, beside the simulator: writes with a client of its own and lets time pass."""

    def __init__(self, simulator: Simulator, kubeconfig: Path) -> None:
        self.simulator = simulator
        self.world = simulator.world
        self.kubeconfig = kubeconfig
        self.api = Api.from_kubeconfig(kubeconfig)

    def play(self, name: str, *names: str, **variables: Any) -> list[dict[str, Any]]:
        """Run a playbook on hosts of the fleet (none named: all of the fitting role)."""
        role = "server" if name == "rke2_server" else "agent"
        chosen = names or tuple(host.name for host in self.world.fleet if host.role == role)
        targets = tuple(PlayHost(name=one, address="10.1.0.1") for one in chosen)
        events = playbook_runs.run_play(self.world, PlayRequest(playbook=name, hosts=targets, variables=variables))
        self.simulator.settle()
        return events

    def bring_up(self) -> None:
        """A Ready RKE2 cluster on the whole fleet."""
        self.play("rke2_server")
        self.play("rke2_agent")
        self.simulator.advance(400)

    def job(
        self, name: str, *, check: str = "none", spec: Obj | None = None, pod: Obj | None = None, namespace: str = "default"
    ) -> None:
        """Create a Job."""
        template: Obj = {
            "metadata": {"labels": {"bringup/check": check}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        }
        template["spec"] |= pod or {}
        self.api.create(JOBS, {"metadata": {"name": name, "namespace": namespace}, "spec": {"template": template} | (spec or {})})

    def read_job(self, name: str) -> Obj:
        """A Job as the API has it now."""
        found = self.api.get(JOBS, name, "default")
        assert found is not None
        return found

    def pods(self, namespace: str = "default", labels: str = "") -> list[Obj]:
        """Pods as the API has them now, by name."""
        from workflows.rehearsal.simulator.api.api_client import decode_object

        return [decode_object(raw) for raw in self.api.list(PODS, namespace, labels=labels) or ()]

    def node(self, name: str) -> Obj:
        """A node as the API has it now."""
        found = self.api.get(NODES, name)
        assert found is not None
        return found

    def delete(self, kind: Any, name: str, namespace: str = "default") -> None:
        """Delete an object."""
        assert self.api.delete(kind, Ref(namespace, name))


def conditions(obj: Obj) -> dict[str, str]:
    """Status of each condition of an object."""
    return {entry["type"]: entry["status"] for entry in obj.get("status", {}).get("conditions") or ()}


Make = Callable[..., User]
