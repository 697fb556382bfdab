"""Namespaces in which code and programs run over an overlay of layers."""
