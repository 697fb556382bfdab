"""Entry point of the command `bringup` and of `python -m workflows`, as pods of a schedule start it."""

import os
import sys


def use_utf8() -> None:
    """Start this process anew in Python's UTF-8 mode if the locale has another encoding.

    Specs, evidence and reports are UTF-8 on every machine, and Python opens text files in the encoding of the locale.
    """
    if sys.getfilesystemencoding() != "utf-8" and sys.orig_argv:
        os.execv(sys.executable, [sys.executable, "-P", "-X", "utf8", *sys.orig_argv[1:]])


def main() -> None:
    """Run the command line of this process and exit with its code; Ctrl-C while modules are imported ends it with one word."""
    try:
        use_utf8()
        from workflows.cli import main as command_line  # takes a third of a second, in which Ctrl-C may come

        command_line.main()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted before anything began\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
