"""A real Kubernetes on this machine, by hand: `cluster.py up | down | kubeconfig | check | install | build`."""

import argparse
import sys
import time

from kubelab import lab, needs, parts


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cluster.py", description="Makes and removes a real Kubernetes on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="start a control plane, a node and helm-controller")
    commands.add_parser("down", help="remove all that up made, also after a crash")
    commands.add_parser("kubeconfig", help="print the path of the running cluster's kubeconfig")
    commands.add_parser("check", help="say whether this machine can run the tier")
    commands.add_parser("install", help="install the Debian packages that the tier needs")
    commands.add_parser("build", help="build the programs that are not cached")
    return parser


def main(arguments: list[str]) -> int:
    """Run one command; 0 if it did what it says, 1 if this machine cannot."""
    options = _parser().parse_args(arguments)
    if options.command == "install":
        needs.install()
    if options.command in ("up", "check", "install", "build"):
        reasons = needs.missing()
        print("\n".join(reasons) if reasons else "this machine can run a real Kubernetes", file=sys.stderr)
        if reasons:
            return 1
    if options.command == "up":
        made = lab.up()
        print(f"ready in {made.seconds:.1f} s: export KUBECONFIG={made.plane.kubeconfig}")
    elif options.command == "down":
        lab.down()
    elif options.command == "kubeconfig":
        print(lab.current().plane.kubeconfig)
    elif options.command == "build":
        began = time.monotonic()
        programs = [*parts.programs(), *(parts.built(part).name for part in (parts.KUSTOMIZE, parts.ARGO_CD))]
        print(f"{len(programs)} programs, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
