"""The commands: thin, no logic; each parses its line, calls one thing, prints, and ends with a code of the table."""
