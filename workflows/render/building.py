"""What pods of verb `build` have beyond all others: the builder image, root with the rights to mount, room for test machines.

Node images are built over overlays in mount namespaces, as files of many owners. So these pods are root with `CAPABILITIES`, and
without two profiles: AppArmor's usual one lets nobody mount, that of seccomp lets nobody change the root of a mount namespace, as
sandboxes do. A namespace takes such pods at the privileged level of Pod Security alone. They are not privileged themselves:
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
"""Root over the files and processes of an image (what scripts of packages expect), mounts and namespaces (SYS_ADMIN), the loopback
of a network namespace (NET_ADMIN), and taking all that away again from what runs in a sandbox (SETPCAP)."""
MEMORY_MIB: Final = 1024
"""What a build takes for itself."""
MOST_MIB: Final = 8192
"""The most that it may take: squashfs and initrd are packed side by side, and tests write to memory."""


def builds(one: Task) -> bool:
    """Whether a task's pod is of this kind."""
    return one.verb is Verb.BUILD


def security() -> m.SecurityContext:
    """Of the container. Kubernetes refuses to add SYS_ADMIN where privileges may not grow."""
    return m.SecurityContext(
        run_as_user=0,
        run_as_group=0,
        run_as_non_root=False,
        read_only_root_filesystem=True,
        capabilities=m.Capabilities(drop=["ALL"], add=list(CAPABILITIES)),
        app_armor_profile=m.AppArmorProfile(type="Unconfined"),
        seccomp_profile=m.SeccompProfile(type="Unconfined"),
    )


def resources(one: Task) -> m.ResourceRequirements:
    """Test machines take the memory that the spec gives them, beside the build's own."""
    machines = int(one.arguments.get("machines", 0)) * int(one.arguments.get("memory_mib", 0))
    return m.ResourceRequirements(
        requests={"cpu": m.Quantity(root="500m"), "memory": m.Quantity(root=f"{machines + MEMORY_MIB}Mi")},
        limits={"memory": m.Quantity(root=f"{machines + MOST_MIB}Mi")},
    )
