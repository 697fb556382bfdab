"""Code that runs after submit, in a pod or a local process: it takes one task and stores one evidence record."""

__version__ = "0.1.0"
