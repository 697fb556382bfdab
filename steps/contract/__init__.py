"""Frozen types that cross from compile time to run time as JSON. No module here does I/O, apart from loading stage contracts."""
