"""What runs after submit: one task in, one evidence record out."""

__version__ = "0.1.0"
