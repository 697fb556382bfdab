"""Entry point `python -m workflows`: the command `bringup`, as pods of a schedule start it."""

from workflows.cli.main import main

main()
