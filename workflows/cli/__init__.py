"""The commands of `bringup`. Each parses its line, calls one function, prints, and ends with an exit code of the table."""
