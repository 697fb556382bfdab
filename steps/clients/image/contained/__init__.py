"""Runs code and programs in namespaces of their own, with nothing of this machine that they are not given."""
