"""Faults that a rehearsal can inject into the simulated cluster for the gates of stage factory_registry to catch."""

from workflows.rehearsal.faults.fault_registry import Fault

FAULTS = (
    Fault(
        name="registry_down",
        gate="factory_registry/control",
        summary="The registry crashes as soon as it starts, while its volume is bound and its Service exists.",
        caught_by="The Deployment has no ready pod, and its container is in CrashLoopBackOff.",
        source="https://distribution.github.io/distribution/about/configuration/",
    ),
    Fault(
        name="registry_loses_blobs",
        gate="factory_registry/functional",
        summary="The registry answers every upload with 201, but its volume does not keep the blobs.",
        caught_by="The pods of the check get 404 for the blob of the artefact that one of them has pushed.",
        false_green="The pod is ready, its volume is bound, and the push succeeded.",
        source="https://github.com/distribution/distribution/issues/2074",
    ),
    Fault(
        name="registry_refuses_pushes",
        gate="factory_registry/functional",
        summary="The registry is read-only: it answers, and refuses every upload.",
        caught_by="The push of the check gets 405.",
        cause=r"the push from \S+ failed: begin of an upload: 405",
        false_green="The pod is ready and answers /v2/ with 200.",
        source="https://distribution.github.io/distribution/about/configuration/",
    ),
    Fault(
        name="registry_ca_unknown",
        gate="factory_registry/functional",
        node="agents:1",
        summary="registries.yaml of one node has an old CA: its containerd refuses the registry's certificate.",
        caught_by="The node cannot pull the image that the check has pushed.",
        cause=r"cannot pull \S+: ImagePullBackOff .*x509: certificate signed by unknown authority",
        false_green="Pods push and pull by the Service of the registry, with programs that verify no certificate.",
        source="https://docs.rke2.io/install/private_registry",
    ),
    Fault(
        name="registry_mirror_stale",
        gate="factory_registry/functional",
        node="agents:1",
        summary="A cache in front of the registry answers one node with the image that a tag had before.",
        caught_by="The kubelet reports another digest than that of the pushed image.",
        cause=r"pulled \S+@sha256:[0-9a-f]{64}; expected sha256:",
        false_green="The node pulls and runs an image of this name.",
        source="https://distribution.github.io/distribution/recipes/mirror/",
    ),
)
