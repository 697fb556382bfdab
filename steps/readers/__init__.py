"""Readers of the outputs of host, fabric and cluster tools that several users share."""
