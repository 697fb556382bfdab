"""Finds the cause why a pod does not start, in messages of kubelet, scheduler and container runtime; pure.

They reach a gate as reason and message of a container, and as Warning events of the pod. Wordings: kubernetes/kubernetes
pkg/kubelet, containerd/containerd, containernetworking/cni libcni, NVIDIA/nvidia-container-toolkit.
"""

from collections.abc import Iterable

from steps.contract.verdict import CauseRank, FailureClass, ToolError
from steps.stages.shared import reader_host
from steps.stages.shared.reader_errors import Pattern, find, pattern

_SETTING, _PATH = CauseRank.SETTING, CauseRank.PATH
_RUNTIME, _DEPENDENCY, _INPUT = FailureClass.RUNTIME, FailureClass.DEPENDENCY, FailureClass.INPUT

_ON_THE_NODE = (
    pattern(
        "nvidia-container-cli",
        r"nvidia-container-cli: (?P<what>initialization error[^\n]*)",
        _DEPENDENCY,
        "the driver does not answer on this node: {what}",
        CauseRank.DEVICE,
        next_step="nvidia-smi on the node, then its kernel log",
    ),
    pattern(
        "nvidia-container-cli",
        r"nvidia-container-cli: requirement error: (?P<what>unsatisfied condition: [^,\n]*)",
        _INPUT,
        "the driver of this node does not fit the image: {what}",
        _SETTING,
        next_step="use an image whose CUDA the driver supports, or a newer driver",
    ),
    pattern(
        "nvidia-container-cli",
        r"nvidia-container-cli: (?P<what>[^\n]*)",
        _DEPENDENCY,
        "the driver of this node does not serve the container: {what}",
        next_step="nvidia-smi on the node, then its kernel log",
    ),
    pattern(
        "failed to run Kubelet",
        r"failed to run Kubelet: (?P<what>running with swap on is not supported)",
        _INPUT,
        "the kubelet does not start: {what}",
        _SETTING,
        next_step="switch swap off on this node (swapoff -a, and its line in /etc/fstab or its systemd unit)",
    ),
    pattern(
        "failed to run Kubelet",
        r"failed to run Kubelet: (?P<what>[^\n]*)",
        _INPUT,
        "the kubelet does not start: {what}",
        _SETTING,
        next_step="correct the setting that the message names (kubelet-arg in RKE2's configuration, or the host's)",
    ),
    pattern(
        "unresolvable CDI devices",
        r"(?P<what>unresolvable CDI devices [^\n]*)",
        _RUNTIME,
        "{what}",
        _SETTING,
        next_step="compare /var/run/cdi of the node with nvidia-smi -L; restart the pod of nvidia-container-toolkit there",
    ),
    pattern(
        "failed to find plugin",
        r"failed to find plugin \"(?P<what>[^\"\n]+)\" in path \[?(?P<path>[^\]\n:]*)",
        _RUNTIME,
        "CNI plugin {what} is not in {path} of this node",
        _SETTING,
        next_step="see the pod that installs CNI plugins on this node (cni-plugins of the Network Operator, or RKE2's Multus)",
    ),
    pattern(
        "no runtime for",
        r"no runtime for \"(?P<what>[^\"\n]+)\" is configured",
        _DEPENDENCY,
        "containerd of this node knows no runtime {what}",
        _SETTING,
        next_step="see the toolkit's pod on this node, and that RKE2 was restarted after it wrote containerd's configuration",
    ),
    pattern(
        "seccomp profile",
        r"cannot load seccomp profile\s+\S*?/seccomp/(?P<what>[\w./-]+?):?\s",
        _DEPENDENCY,
        "seccomp profile {what} missing on the node",
        _SETTING,
        next_step="put the profile on every node below /var/lib/kubelet/seccomp, or take it out of the pod",
        spans=True,
    ),
    pattern(
        "Cannot enforce AppArmor",
        r"Cannot enforce AppArmor: AppArmor is not enabled on the host",
        _INPUT,
        "AppArmor profile asked for on a host without AppArmor",
        _SETTING,
        next_step="take the AppArmor profile out of the pod, or enable AppArmor on the host",
    ),
)
_OBJECTS = (
    pattern(
        "is being deleted",
        r"persistentvolumeclaim \"?(?P<what>[\w.-]+)\"? is being deleted",
        _DEPENDENCY,
        "PVC {what} is being deleted",
        _SETTING,
        next_step="see which pod still uses the claim, and wait until it is gone",
    ),
    pattern(
        "network-attachment-definition",
        r"(?P<what>cannot find a network-attachment-definition [^\n]*)",
        _INPUT,
        "{what}",
        _SETTING,
    ),
    *(
        pattern(
            needle,
            rf"(?:error adding container to network(?P<network> \"[^\"\n]+\")[^\n]*?)?(?P<what>{needle}[^\n]*)",
            _INPUT,
            "the address pool of the network{network} is used up: {what}",
            _SETTING,
            next_step="make the pool larger than the nodes times their pods",
        )
        for needle in ("no IP addresses available", "no free IPs in pool")
    ),
    pattern(
        "Allocate failed due to",
        r"Allocate failed due to (?P<what>[^\n]*)",
        _RUNTIME,
        "the kubelet cannot give the pod its devices: {what}",
        CauseRank.OPERATION,
        next_step="compare the node's allocatable devices with nvidia-smi -L there, and read the log of its device plugin",
    ),
    pattern(
        "MountVolume.",
        r"MountVolume\.\w+ failed for volume \"(?P<volume>[^\"\n]+)\"[^\n]*?(?P<what>(?:configmap|secret) \"[^\"\n]+\" not found)",
        _DEPENDENCY,
        "volume {volume} cannot be mounted: {what}",
        _SETTING,
    ),
)
_IMAGES = (
    pattern(
        "429 Too Many Requests",
        r"(?:image[^\n]{0,9}?\\*\"(?P<image>[\w./:@-]+)\\*\"[^\n]*?)?(?P<what>429 Too Many Requests)",
        _DEPENDENCY,
        "the registry limits pulls: {what} {image}",
        _PATH,
        next_step="give the registry's credentials or a mirror in rke2.registries, and wait until the limit is over",
    ),
    pattern(
        "pull",
        r"^(?>[^\n]*?pull)[^\n]*?(?P<what>(?:401 Unauthorized|403 Forbidden|pull access denied|authorization failed)[^\n]*)",
        FailureClass.PERMISSION,
        "the registry refuses the image: {what}",
        _PATH,
        next_step="give the registry's credentials in rke2.registries",
    ),
    pattern(
        "pull",
        r"^(?>[^\n]*?pull)[^\n]*?(?P<what>x509: [^\n]*|lookup \S+[^\n]*|dial tcp [^\n]*|(?:i/o|TLS handshake) timeout"
        r"|connection reset by peer|unexpected EOF|context deadline exceeded)",
        _DEPENDENCY,
        "the image's registry is not reached: {what}",
        _PATH,
        next_step="see the way from the node to the registry, its certificate, and the mirrors in rke2.registries",
    ),
    pattern(
        "pull",
        r"^(?>[^\n]*?pull)[^\n]*?(?P<what>\S+: not found|manifest unknown)",
        _INPUT,
        "the registry has no such image: {what}",
        _SETTING,
        next_step="correct the image's name, tag or architecture",
    ),
)
_IMAGES_ON_THE_NODE = (
    pattern(
        "no space left on device",
        r"(?:extract layer|unpack|write|mkdir)[^\n]*?(?P<path>/[\w./-]*)[^\n]*?: no space left on device",
        _DEPENDENCY,
        "the node's disk is full, or has no inodes: {path}",
        _SETTING,
        next_step="make room in /var/lib/rancher of this node (df -h, df -i), or mount a larger disk",
    ),
    pattern(
        "exec format error",
        r"(?P<what>[^\n]{0,120}exec format error)",
        _INPUT,
        "the image is of another architecture than the node: {what}",
        _SETTING,
        next_step="use an image that has the node's architecture (arm64 or amd64)",
    ),
)
_REFUSED = (
    pattern(
        "denied the request",
        r"admission webhook \"(?P<hook>[^\"\n]+)\" (?P<what>denied the request[^\n]*)",
        FailureClass.PERMISSION,
        "webhook {hook} {what}",
        _SETTING,
        next_step="allow it in the site's admission policy",
    ),
    pattern(
        "exceeded quota",
        r"(?P<what>exceeded quota: [^\n]*)",
        _INPUT,
        "{what}",
        _SETTING,
        next_step="raise the ResourceQuota of the namespace",
    ),
)

_SANDBOX = (
    pattern(
        "failed to setup network for sandbox",
        r"failed to setup network for sandbox[^\n]*?: (?P<what>plugin type[^\n]*)",
        _RUNTIME,
        "the pod's network cannot be set up: {what}",
        CauseRank.UNKNOWN,
    ),
)
"""Errors that also stand in a healthy start, while the network plugin is not ready yet."""

NODE_PATTERNS: tuple[Pattern, ...] = (*_ON_THE_NODE, *_IMAGES_ON_THE_NODE, *_IMAGES)
"""Patterns of messages in the log of a kubelet or of containerd, which are of all pods of a node."""

_PATTERNS: tuple[Pattern, ...] = (
    *reader_host.PATTERNS,
    *_ON_THE_NODE,
    *_OBJECTS,
    *_REFUSED,
    *_IMAGES_ON_THE_NODE,
    *_IMAGES,
    *_SANDBOX,
)


def cause(texts: Iterable[str]) -> ToolError | None:
    """Return the first cause that messages about a pod name, whichever message has it; None if no rule knows any of them."""
    return next(iter(find("\n".join(texts), _PATTERNS)), None)
