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
)
