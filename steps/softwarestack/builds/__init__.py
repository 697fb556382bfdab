"""Builds of packages in a sandbox, by any build tool."""
