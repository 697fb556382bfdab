"""Topics that bringup does not cover, as data: the keys by which users ask for them, and one fixed sentence for each.

A spec that uses such a key is refused with the sentence instead of "unknown key". The README quotes the sentences.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OutOfScope:
    """A topic out of scope, with the spec keys that ask for it and the sentence that refuses it."""

    topic: str
    keys: tuple[str, ...]
    sentence: str


OUT_OF_SCOPE: tuple[OutOfScope, ...] = (
    OutOfScope(
        "cluster autoscaling",
        ("autoscaling", "autoscaler", "cluster_autoscaler", "karpenter", "keda", "scale_to_zero"),
        "Cluster autoscaling is out of scope: bringup accepts a fixed list of racked machines.",
    ),
    OutOfScope(
        "inference serving",
        ("inference", "serving", "inference_serving", "kserve", "triton", "dynamo", "nim", "vllm"),
        "Inference serving is out of scope: bringup hands over an accepted platform, what is served on it is deployed afterwards.",
    ),
    OutOfScope(
        "managed clouds",
        (
            "eks",
            "gke",
            "aks",
            "oke",
            "cloud",
            "cloud_provider",
            "managed",
            "managed_kubernetes",
            "aws",
            "gcp",
            "azure",
            "terraform",
        ),
        "Managed clouds (EKS, GKE, AKS) are out of scope: bringup starts from Linux machines it reaches over SSH.",
    ),
    OutOfScope(
        "bare-metal power and firmware",
        ("bmc", "ipmi", "redfish", "firmware", "bios", "power"),
        "Firmware and power control are out of scope: bringup starts from machines that have booted their operating system.",
    ),
    OutOfScope(
        "other Kubernetes distributions",
        ("k3s", "kubeadm", "k0s", "openshift", "talos"),
        "Kubernetes distributions other than RKE2 are out of scope: every gate is written against RKE2's own signals.",
    ),
    OutOfScope(
        "other accelerators",
        ("amd", "rocm", "gaudi", "intel", "tpu"),
        "Accelerators other than NVIDIA's are out of scope: the gates read the NVIDIA operators and tools.",
    ),
    OutOfScope(
        "storage systems",
        ("ceph", "rook", "lustre", "weka", "beegfs", "vast"),
        "Installing storage systems is out of scope: bringup uses a storage class that exists, or a local path provisioner.",
    ),
)
"""Topics that bringup does not cover, with the keys and sentences by which a spec is refused."""

NOT_YET: tuple[OutOfScope, ...] = (
    OutOfScope(
        "API endpoint", ("api_endpoint",), "An API address of its own is not in this version: it is rke2.registration_address."
    ),
    OutOfScope("signed results", ("signing_key",), "Signing published results is not in this version."),
    OutOfScope("factory wipe", ("wipe",), "Removing an old cluster is not in this version: run rke2-uninstall.sh on its machines."),
    OutOfScope("parallel builds", ("parallel",), "A limit of packages built at once is not in this version."),
    OutOfScope(
        "stack matrix",
        ("matrix", "matrices"),
        "A matrix is not read here in this version: write easybuild.matrix, or matrix and exclude in the specs of spack.yaml.",
    ),
    OutOfScope("views", ("views",), "A stack has one view, which key view describes."),
    OutOfScope(
        "module system",
        ("module_system", "tcl"),
        "The module system is not named here: Lmod tests all module files, and module_syntax writes them in lua or tcl.",
    ),
    OutOfScope("image compression", ("compression",), "A choice of compression is not in this version."),
)
"""Keys of other versions that would have no effect. Each is refused with its sentence instead of being ignored."""

_BY_KEY = {key: entry for entry in (*OUT_OF_SCOPE, *NOT_YET) for key in entry.keys}


def find(key: str) -> OutOfScope | None:
    """Return the refused topic that a spec key asks for; None if the key is not refused."""
    return _BY_KEY.get(key.lower().replace("-", "_"))
