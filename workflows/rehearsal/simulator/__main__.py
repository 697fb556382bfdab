"""Run one simulator process beside one API server: `python -m workflows.rehearsal.simulator`."""

from __future__ import annotations

import argparse
import gc
import math
import os
import secrets
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from steps.contract.exit import ExitCode
from workflows.rehearsal.simulator.control_server import ControlApi, ControlServer
from workflows.rehearsal.simulator.controllers.node_objects import Heartbeats
from workflows.rehearsal.simulator.machines.kubelet_port import KubeletPort
from workflows.rehearsal.simulator.simulation import Simulator, build, portable

HEARTBEAT = 10.0
"""Real seconds between two lease renewals of a real kubelet."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a simulator and its control API until SIGTERM or until the parent process ends; return the exit code.

    An unknown fault, role or speed prints one line and returns 64.
    """
    options = _parser().parse_args(arguments)
    try:
        simulator = _build(options)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return ExitCode.USAGE
    world, no_logs = simulator.world, ""
    if options.advertise:
        world.kubeconfig = portable(options.kubeconfig, options.advertise)
    if options.kubelet_address:
        world.kubelets = KubeletPort(options.kubelet_address)
        no_logs = world.kubelets.why_unreachable(world.api)
    beats = Heartbeats(options.heartbeat) if options.roles_off else None
    if beats is not None and options.real_time == 1:
        world.lease_ahead = 0.0
    control = ControlApi(simulator, options.real_time, beats)
    if world.kubelets is not None:
        world.kubelets.play_by(control.execute)
    token = (options.served / "token").read_text() if options.served else secrets.token_urlsafe(32)
    server = ControlServer(control, token, options.port, options.served)
    world.api.offer_kubelet(server.url, token)
    _write_private(options.control_out, msgspec.json.encode({"url": server.url, "token": token, "logs": no_logs}))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    gc.freeze()  # what is imported by now never becomes garbage
    # a full collection looks at every object of the fleet, takes seconds with 10,000 nodes, and there is next to nothing to collect
    gc.set_threshold(50_000, 50, 1000)
    server.serve(control, real_time=bool(options.real_time), parent=options.with_parent)
    return 0


def _build(options: argparse.Namespace) -> Simulator:
    if not (math.isfinite(options.real_time) and options.real_time >= 0):
        raise ValueError(
            f"--real-time {options.real_time:g} is not a speed: give a number above 0, or leave it out for time that jumps"
        )
    return build(
        options.kubeconfig,
        options.hosts,
        seed=options.seed,
        delay_scale=options.delay_scale,
        jitter=options.jitter,
        faults=[_fault(text) for text in options.fault],
        roles_off=frozenset(filter(None, options.roles_off.split(","))),
        git_root=options.git_root,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m workflows.rehearsal.simulator", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="the API server to play against")
    parser.add_argument("--hosts", type=Path, required=True, help="fleet file with the machines to play")
    parser.add_argument("--control-out", type=Path, required=True, help="file for the URL and token of the control API (mode 0600)")
    parser.add_argument("--port", type=int, default=0, help="port of the control API; 0 takes a free one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--delay-scale", type=float, default=1.0, help="factor on all delays; 0 for none")
    parser.add_argument("--jitter", type=float, default=1.0, help="share of each delay's range that is used; 0 for its middle")
    parser.add_argument("--fault", action="append", default=[], metavar="NAME[:NODE[,NODE…]]")
    parser.add_argument("--roles-off", default="", metavar="ROLE,…", help="roles that a real controller plays")
    parser.add_argument(
        "--kubelet-address",
        default="",
        metavar="ADDRESS",
        help="serve pod logs at this address, at which a real API server reaches this machine",
    )
    parser.add_argument(
        "--heartbeat", type=float, default=HEARTBEAT, help="with roles off: wall seconds between two renewals of a node's lease"
    )
    parser.add_argument("--served", type=Path, help="listen everywhere, with tls.crt, tls.key and token of this folder")
    parser.add_argument(
        "--advertise", default="", metavar="URL", help="address of the API server in the kubeconfig that servers report"
    )
    parser.add_argument("--git-root", type=Path, help="folder of the bare repositories that stand for all Git servers")
    parser.add_argument("--with-parent", type=int, default=0, metavar="PID", help="end when this process ends")
    parser.add_argument(
        "--real-time", type=float, default=0.0, metavar="SPEED", help="let virtual time follow wall time, SPEED times as fast"
    )
    return parser


def _fault(text: str) -> tuple[str, tuple[str, ...]]:
    name, _, nodes = text.partition(":")
    return name, tuple(filter(None, nodes.split(",")))


def _write_private(path: Path, data: bytes) -> None:
    """Write a file with mode 0600 by renaming a temporary one, so that a waiting reader never sees half of it."""
    partial = path.with_name(path.name + ".partial")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.replace(partial, path)


if __name__ == "__main__":
    sys.exit(main())
