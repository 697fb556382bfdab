"""`python -m workflows` is the command `bringup`, as pods of a schedule start it."""

from workflows.cli.main import main

main()
