"""Real SSH hosts on this machine, by hand: `hosts.py up N [--init sshd|systemd] | down | inventory | check | install`."""

import argparse
import sys

from hostlab import debian, lab, needs


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hosts.py", description="Makes and removes real SSH hosts on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="make N hosts")
    up.add_argument("count", type=int)
    up.add_argument("--init", choices=[kind.value for kind in lab.Init], default=lab.Init.SSHD.value)
    commands.add_parser("down", help="remove all that up made, also after a crash")
    commands.add_parser("inventory", help="print an Ansible inventory of the running hosts")
    commands.add_parser("check", help="say whether this machine can run the tier")
    commands.add_parser("install", help="install the Debian packages that the tier needs, and build the roots of its hosts")
    return parser


def main(arguments: list[str]) -> int:
    """Run one command; 0 if it did what it says, 1 if this machine cannot."""
    options = _parser().parse_args(arguments)
    if options.command == "install":
        needs.install()
    if options.command in ("up", "check", "install"):
        reasons = needs.missing()
        print("\n".join(reasons) if reasons else "this machine can run SSH hosts", file=sys.stderr)
        if reasons:
            return 1
    if options.command == "install":
        lab.allow_inotify()
        for build in (debian.root, debian.prepared, debian.with_dnf):
            build()
    if options.command == "up":
        made = lab.up(options.count, lab.Init(options.init))
        print(f"{len(made.hosts)} hosts answer; key {made.key}, known hosts {made.known_hosts}")
    elif options.command == "down":
        lab.down()
    elif options.command == "inventory":
        print(lab.current().inventory())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
