"""The code that runs after submit, in a pod or a local process: one task in, one evidence record out."""

__version__ = "0.1.0"
