"""Entry point of the command `bringup` and of `python -m workflows`, as pods of a schedule start it."""

import sys


def main() -> None:
    """Run the command line of this process and exit with its code; Ctrl-C while modules are imported ends it with one word."""
    try:
        from workflows.cli import main as command_line  # takes a third of a second, in which Ctrl-C may come

        command_line.main()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted before anything began\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
