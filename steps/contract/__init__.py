"""Frozen types that cross from compile time to run time as JSON; nothing here does I/O."""
