"""Settings of pods with verb `build`: root with the capabilities to mount, and memory for compilers and test machines.

Node images are built over overlays in mount namespaces, as files of many owners. So these pods are root with `CAPABILITIES`, and
run without two profiles: AppArmor's default forbids mounts, and seccomp's default forbids to change the root of a mount namespace,
as sandboxes do. A namespace must allow such pods at the privileged level of Pod Security. The pods themselves are not privileged:
they see no device of the node, and cannot change their own root.
"""

from typing import Final

from hera.workflows import models as m

from steps.contract.task import Task, Verb

CAPABILITIES: Final = (
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_ADMIN",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_ADMIN",
    "SYS_CHROOT",
)
"""Capabilities of a build pod: those of root over files and processes, as package scripts expect, and three special ones.

SYS_ADMIN is for mounts and namespaces, NET_ADMIN for the loopback of a network namespace, SETPCAP to drop capabilities in a
sandbox.
"""
MEMORY_MIB: Final = 1024
"""Memory in MiB that a build pod requests in addition to that of test machines."""
MOST_MIB: Final = 8192
"""Least memory limit of a build pod in MiB, without test machines: squashfs and initrd are packed at once, tests use memory."""


def builds(task: Task) -> bool:
    """Return True if the task runs in a build pod, that is, if its verb is `build`."""
    return task.verb is Verb.BUILD


def security() -> m.SecurityContext:
    """Return the container's security context.

    Kubernetes refuses SYS_ADMIN together with `allowPrivilegeEscalation: false`, so that field is absent.
    """
    return m.SecurityContext(
        run_as_user=0,
        run_as_group=0,
        run_as_non_root=False,
        read_only_root_filesystem=True,
        capabilities=m.Capabilities(drop=["ALL"], add=list(CAPABILITIES)),
        app_armor_profile=m.AppArmorProfile(type="Unconfined"),
        seccomp_profile=m.SeccompProfile(type="Unconfined"),
    )


def resources(task: Task) -> m.ResourceRequirements:
    """Return resource requests and limits: memory of the build itself, plus memory of the recipe's test machines.

    A task without test machines may name the memory of its largest build, which raises the limit alone: most builds need less.
    """
    memory = int(task.arguments.get("memory_mib", 0))
    machines = int(task.arguments.get("machines", 0)) * memory
    limit = machines + MOST_MIB if machines else max(MOST_MIB, memory)
    return m.ResourceRequirements(
        requests={"cpu": m.Quantity(root="500m"), "memory": m.Quantity(root=f"{machines + MEMORY_MIB}Mi")},
        limits={"memory": m.Quantity(root=f"{limit}Mi")},
    )
