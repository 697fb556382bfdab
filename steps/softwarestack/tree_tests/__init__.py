"""Tests of an assembled tree: modules, commands and ReFrame, in a sandbox."""
