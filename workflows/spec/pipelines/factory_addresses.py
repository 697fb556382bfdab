"""Hosts and folders of a factory that nothing published may name: its machines, its API server, its registry, its volumes."""

from collections.abc import Iterable

from steps.contract.detachment import Factory
from workflows.spec.pipelines.factory_spec import FactorySpec

_SERVICES = ("registry.registry.svc", "registry.registry.svc.cluster.local")
"""Names of the registry's Service within the factory."""


def addresses(spec: FactorySpec, folders: Iterable[str] = ()) -> Factory:
    """Return names and addresses of a factory's machines, its API address, its registry, and its folders with further ones."""
    machines = spec.cluster.machines
    hosts = {name for machine in machines for name in (machine.name, machine.address)} | {spec.cluster.registration_address}
    hosts |= {spec.registry.tls.name} if spec.registry.tls else set()
    # every machine is localhost to itself
    return Factory(folders=(spec.storage.path, *folders), hosts=tuple(sorted({*hosts, *_SERVICES} - {"", "localhost"})))
