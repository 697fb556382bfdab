"""The publish target of an image spec in the form that tasks get."""

import msgspec

from steps.nodeimage.contract.boot_tree import BootGroup, PublishTarget
from workflows.nodeimage.image_spec import BOOT_KEY, SIGN_KEY, ImageSpec
from workflows.spec.pipelines.publish_access import PUBLISH_KEY, PUBLISH_KNOWN_HOSTS


def publish_target(spec: ImageSpec) -> PublishTarget:
    """Return the publish target of an image spec in the form that tasks get: folder, URL, groups, keys, SSH access."""
    publish, ssh = spec.publish, spec.publish.ssh
    groups = (
        BootGroup(name=name, kernel_arguments=group.kernel_arguments, nodes=dict(group.nodes))
        for name, group in publish.groups.items()
    )
    target = PublishTarget(
        root=publish.root,
        url=publish.url,
        keep=publish.keep,
        groups=tuple(groups),
        key=SIGN_KEY if publish.sign else "",
        boot_key=BOOT_KEY if publish.boot_signing else "",
        signers=publish.signers,
        report=publish.report or "",
    )
    if ssh is None:
        return target
    access = {"host": ssh.host, "user": ssh.user, "port": ssh.port, "ssh_key": PUBLISH_KEY, "known_hosts": PUBLISH_KNOWN_HOSTS}
    return msgspec.structs.replace(target, **access)
