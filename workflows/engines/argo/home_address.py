"""Address of a home cluster. It is apart from the client, so that commands that only show the address load no client."""

import os
import shlex
from pathlib import Path

from msgspec import Struct

from workflows import user_paths

DEFAULT_NAMESPACE = "bringup"


class HomeAddress(Struct, frozen=True, kw_only=True):
    """The address of a home cluster: kubeconfig, context, and the namespace of the runs.

    `kubeconfig` is one file, or several as the variable KUBECONFIG lists them; empty inside a pod of the home cluster. An empty
    `context` means the current one.
    """

    kubeconfig: str
    context: str = ""
    namespace: str = DEFAULT_NAMESPACE

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the paths in `kubeconfig`; empty inside a pod of the home cluster."""
        return kubeconfig_files(self.kubeconfig)

    @property
    def options(self) -> str:
        """Return the command line options by which another machine, which does not know the run, selects this home cluster."""
        options = {"--home-kubeconfig": self.kubeconfig, "--home-context": self.context, "--namespace": self.namespace}
        return " ".join(f"{name} {shlex.quote(value)}" for name, value in options.items() if value)


def kubeconfig_files(listed: str) -> tuple[Path, ...]:
    """Return the files in a list as the variable KUBECONFIG holds it. A text that names an existing file as a whole is one file."""
    names = [listed] if user_paths.expand_home(listed).exists() else [name for name in listed.split(os.pathsep) if name]
    return tuple(user_paths.expand_home(name).absolute() for name in names)
