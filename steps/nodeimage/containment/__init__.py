"""Isolation of image builds: namespaces, chroots and sandboxes in which functions and programs run over an overlay of layers."""
