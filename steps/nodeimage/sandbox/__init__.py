"""Tests of a node image that need no boot: they run on its merged root file system."""
