"""Rules between the sections of one spec: names that must exist, counts that fit, networks without overlap, exclusive choices.

Each rule is a small pure function that names the sections it reads. A rule is skipped if one of its sections has errors of its own.
Rules about versions and products are in `compat`.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from workflows.spec.acceptance.untested import NCCL_INTER, NCCL_INTRA, runs
from workflows.spec.cluster_spec import ClusterSpec, gpu_groups, has_gpu_cluster, intra_node_floor
from workflows.spec.errors import SpecError
from workflows.spec.fields import is_address
from workflows.spec.gpu_pools import gpu_pools, group_path, joins_gpus
from workflows.stage_names import STAGES

Findings = Iterator[SpecError]


_SERVICE = "kubernetes.default.svc"
_ALWAYS_NAMED = ("localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", _SERVICE, f"{_SERVICE}.cluster.local")
"""Names that RKE2 writes into every certificate of an API server, besides the first address of the services."""
_GPU_STAGES = frozenset({"gpu_operator", "network_operator", "sharing", "gang", "slurm", "validation"})


@dataclass(frozen=True, slots=True)
class SectionRule:
    """A rule between sections, with the names of the sections that it reads."""

    needs: frozenset[str]
    find: Callable[[ClusterSpec], Findings]


RULES: list[SectionRule] = []


def _rule(*needs: str) -> Callable[[Callable[[ClusterSpec], Findings]], Callable[[ClusterSpec], Findings]]:
    def register(find: Callable[[ClusterSpec], Findings]) -> Callable[[ClusterSpec], Findings]:
        RULES.append(SectionRule(frozenset(needs), find))
        return find

    return register


def check(spec: ClusterSpec, broken: set[str]) -> list[SpecError]:
    """Return the errors that rules between sections find; rules that read one of the `broken` sections are skipped."""
    return [error for rule in RULES if not rule.needs & broken for error in rule.find(spec)]


@_rule("hosts")
def _host_names_are_unique(spec: ClusterSpec) -> Findings:
    seen: dict[str, str] = {}
    for name, group in spec.hosts.items():
        for host in group.names():
            first = seen.setdefault(host, name)
            if first != name:
                yield SpecError(f"hosts.{name}.ranges", f"{host} is in group {first} too", "name each host in one group", host)
                break


@_rule("hosts")
def _addresses_are_unique(spec: ClusterSpec) -> Findings:
    counted = Counter(machine.address for machine in spec.machines)
    reported: set[str] = set()
    for machine in spec.machines:
        if counted[machine.address] > 1 and machine.group not in reported:
            reported.add(machine.group)
            path = f"hosts.{machine.group}.addresses"
            first, second = [other.name for other in spec.machines if other.address == machine.address][:2]
            yield SpecError(path, f"{first} and {second} have the same address", "give every host its own address", machine.address)


@_rule("hosts")
def _addresses_are_addresses(spec: ClusterSpec) -> Findings:
    for name, group in spec.hosts.items():
        if group.addresses.pattern is None:
            continue
        for machine in spec.machines:
            if machine.group == name and not is_address(machine.address):
                fix = "keep every number in 0..255, or use start"
                yield SpecError(
                    f"hosts.{name}.addresses.pattern", f"the pattern gives {machine.name} no valid IP address", fix, machine.address
                )
                break


@_rule("hosts")
def _servers_can_hold_etcd(spec: ClusterSpec) -> Findings:
    count = len(spec.servers)
    if count not in (1, 3, 5):
        yield SpecError("hosts", f"{count} servers cannot hold an etcd majority well", "give 1, 3 or 5 hosts the role server")


@_rule("hosts", "ssh")
def _a_proxys_login_has_its_proxy(spec: ClusterSpec) -> Findings:
    if spec.ssh.http_proxy_user and not spec.ssh.http_proxy and not any(group.http_proxy for group in spec.hosts.values()):
        why = "the login has no effect without an HTTP proxy"
        yield SpecError(
            "ssh.http_proxy_user", why, "add http_proxy: http://HOST:PORT, or remove the login", spec.ssh.http_proxy_user
        )


@_rule("hosts", "rke2")
def _high_availability_has_one_address(spec: ClusterSpec) -> Findings:
    if len(spec.servers) > 1 and spec.rke2.registration_address is None:
        problem = "several servers need one address in front of them"
        yield SpecError("rke2.registration_address", problem, "add registration_address: the virtual IP or DNS name of the servers")
    address = spec.rke2.registration_address or ""
    if spec.rke2.virtual_address and (not is_address(address) or address in {machine.address for machine in spec.machines}):
        problem = f"servers cannot hold {address or 'an address that is not given'}: it must be an IP address that no machine has"
        yield SpecError("rke2.virtual_address", problem, "write a free IP address of their network in rke2.registration_address")


@_rule("hosts", "rke2", "target")
def _certificate_has_the_name(spec: ClusterSpec) -> Findings:
    # a kubeconfig of the site may belong to an API server with another certificate
    name, rke2 = spec.target.tls_server_name, spec.rke2
    if name is None or spec.target.kubeconfig is not None:
        return
    of_servers = {part for server in spec.servers for part in (server.name, server.address)}
    of_service = str(ipaddress.IPv4Network(rke2.service_cidr)[1])
    names = {spec.registration_address, *rke2.tls_san, *of_servers, *_ALWAYS_NAMED, of_service}
    if _comparable(name) not in map(_comparable, names):
        problem = "the API server's certificate has no such name, so every request to target.server would fail"
        fix = f"add it to rke2.tls_san, or leave it out: the certificate is then verified as {spec.registration_address}"
        yield SpecError("target.tls_server_name", problem, fix, name)


def _comparable(name: str) -> str:
    """Return a name of a certificate as TLS compares it: addresses by value, names without regard to case."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name.lower()


@_rule("rke2")
def _mirrors_alone_are_asked(spec: ClusterSpec) -> Findings:
    # RKE2 bypasses a registry only if it has a mirror and neither login nor certificate. It looks up the login of a mirror by the
    # host of the mirror, so a registry whose own entry has a login is used directly.
    rke2 = spec.rke2
    if rke2.registry_fallback:
        return
    of_all = rke2.registries.get("*")
    if not rke2.registry_mirror and not (of_all and of_all.endpoints):
        problem = "registries without a mirror would be used directly, and there is no mirror for all of them"
        fix = "add registry_mirror, or endpoints of the entry * of registries; or leave registry_fallback out"
        yield SpecError("rke2.registry_fallback", problem, fix, "false")
    mirrors = {(rke2.registry_mirror or "").partition("/")[0]}.union(*(entry.hosts for entry in rke2.registries.values()))
    for name, entry in rke2.registries.items():
        if entry.access and name not in (entry.hosts if entry.endpoints else mirrors):
            of = f"of {', '.join(entry.hosts)} " if entry.endpoints else "of a mirror "
            problem = f"{', '.join(entry.access)} of {name} would make RKE2 use {name} directly, and registry_fallback is false"
            fix = f"move the keys {of}into an entry named after that host; or add https://{name} to the endpoints of {name}"
            yield SpecError(f"rke2.registries.{name}", problem, fix if name != "*" else fix.partition(";")[0])


@_rule("rke2")
def _every_registry_is_mirrored_once(spec: ClusterSpec) -> Findings:
    if spec.rke2.registry_mirror and "*" in spec.rke2.registries:
        problem = "registry_mirror and registries name a mirror for every registry"
        yield SpecError("rke2.registries", problem, "keep one: registry_mirror, or the entry * of registries")


@_rule("rke2")
def _one_primary_cni(spec: ClusterSpec) -> Findings:
    cni = spec.rke2.cni
    primary = [name for name in cni if name != "multus"]
    if len(primary) != 1:
        yield SpecError(
            "rke2.cni",
            "exactly one CNI besides multus must carry the pod network",
            "write canal, or [multus, canal]",
            ", ".join(cni),
        )
    elif "multus" in cni and cni[0] != "multus":
        yield SpecError("rke2.cni", "multus must come first", f"write [multus, {primary[0]}]", ", ".join(cni))


@_rule("hosts", "rke2")
def _networks_fit(spec: ClusterSpec) -> Findings:
    pods, services = ipaddress.IPv4Network(spec.rke2.cluster_cidr), ipaddress.IPv4Network(spec.rke2.service_cidr)
    if pods.overlaps(services):
        yield SpecError("rke2.service_cidr", "overlaps cluster_cidr", "give the two networks apart", spec.rke2.service_cidr)
    nodes = len(spec.machines)
    if nodes > 1 << max(24 - pods.prefixlen, 0):
        prefix = 24 - (nodes - 1).bit_length()
        problem = f"{nodes} nodes need a /24 each, more than this network holds"
        yield SpecError("rke2.cluster_cidr", problem, f"use a /{prefix} or larger", spec.rke2.cluster_cidr)


@_rule("hosts", "accelerator")
def _accelerator_has_machines(spec: ClusterSpec) -> Findings:
    groups = [name for name, group in spec.hosts.items() if group.gpu]
    if spec.accelerator is not None and not groups:
        yield SpecError("accelerator", "no host group has gpu: true", "mark the groups with GPUs gpu: true, or remove accelerator")
    if spec.accelerator is None:
        for name in groups:
            yield SpecError(f"hosts.{name}.gpu", "the spec names no accelerator", "add accelerator: {product: H200, per_node: 8}")


@_rule("hosts", "accelerator")
def _group_sections_have_gpus(spec: ClusterSpec) -> Findings:
    for name, group in spec.hosts.items():
        for key in ("accelerator", "sharing"):
            if getattr(group, key) is None:
                continue
            if not group.gpu:
                yield SpecError(f"hosts.{name}.{key}", "this group has no GPUs", f"write gpu: true, or remove {key}")
            elif spec.accelerator is None:
                problem = "the spec names no accelerator, from which groups may differ"
                yield SpecError(f"hosts.{name}.{key}", problem, "add accelerator: {product: H200, per_node: 8}")


@_rule("hosts", "accelerator", "sharing")
def _groups_can_share_differently(spec: ClusterSpec) -> Findings:
    pools = gpu_pools(spec)
    strategies = {pool.sharing.strategy: pool for pool in pools if pool.sharing.mode == "mig"}
    if len(strategies) > 1:
        problem = "the MIG strategy is a setting of the whole cluster (ClusterPolicy mig.strategy), and groups differ in it: "
        problem += ", ".join(f"{strategy} in {pool.shown}" for strategy, pool in strategies.items())
        last = list(strategies.values())[-1]
        fix = f"write strategy: {next(iter(strategies))} in all of them"
        yield SpecError(group_path(spec, last, "sharing.strategy"), problem, fix, last.sharing.strategy)
    modes = {pool.sharing.mode: pool for pool in pools}
    if "dra" in modes and len(modes) > 1 and not has_gpu_cluster(spec):
        others = ", ".join(f"{mode} in {pool.shown}" for mode, pool in modes.items() if mode != "dra")
        problem = f"DRA switches the device plugin off in the whole cluster, and the device plugin serves {others}"
        fix = "write mode: dra in all GPU groups, or in none"
        yield SpecError(group_path(spec, modes["dra"], "sharing.mode"), problem, fix, "dra")


@_rule("accelerator", "sharing", "fabric")
def _parts_need_the_accelerator(spec: ClusterSpec) -> Findings:
    if spec.accelerator is None and spec.sharing.mode != "none":
        yield SpecError("sharing.mode", "there is no accelerator to share", "add accelerator, or remove sharing", spec.sharing.mode)
    elif spec.sharing.mode != "none" and (groups := gpu_groups(spec)) and all(spec.hosts[name].sharing for name in groups):
        problem = "every GPU group has a section sharing of its own, so this one has no effect"
        yield SpecError("sharing.mode", problem, "remove it here, or in the groups for which it holds", spec.sharing.mode)
    if spec.accelerator is None and spec.fabric.kind != "none":
        problem = "the Network Operator finds its nodes by the GPU Operator's node features, and there is no accelerator"
        yield SpecError("fabric.kind", problem, "add accelerator, or remove fabric", spec.fabric.kind)


@_rule("accelerator", "sharing")
def _gpu_cluster_shares_by_dra(spec: ClusterSpec) -> Findings:
    if not has_gpu_cluster(spec):
        return
    pools = gpu_pools(spec)
    wrong = [(group_path(spec, pool, "sharing.mode"), pool.sharing.mode) for pool in pools if pool.sharing.mode != "dra"]
    if not pools and spec.sharing.mode != "dra":
        wrong = [("sharing.mode", spec.sharing.mode)]
    for path, mode in wrong:
        problem = "operator_mode gpu_cluster allocates GPUs by DRA only"
        yield SpecError(path, problem, "write sharing: {mode: dra}, or operator_mode: cluster_policy", mode)


@_rule("hosts", "slurm")
def _partitions_name_groups(spec: ClusterSpec) -> Findings:
    for index, partition in enumerate(spec.slurm.partitions):
        for group in partition.groups:
            if group not in spec.hosts:
                known = ", ".join(spec.hosts)
                yield SpecError(f"slurm.partitions[{index}].groups", "no host group of this name", f"choose from {known}", group)


@_rule("slurm", "base_services")
def _slurm_has_its_base(spec: ClusterSpec) -> Findings:
    base, kind = spec.base_services, spec.slurm.kind
    if kind != "none" and base.storage.provisioner == "none":
        problem = "the Slurm controller keeps its state on a volume"
        yield SpecError("base_services.storage.provisioner", problem, "use local_path or existing", base.storage.provisioner)
    if kind == "sunk" and not base.cert_manager:
        yield SpecError("base_services.cert_manager", "SUNK needs cert-manager", "write cert_manager: true", "false")


@_rule("accelerator", "fabric", "sharing", "scheduler", "slurm", "stages")
def _named_stages_have_work(spec: ClusterSpec) -> Findings:
    enabled = spec.enabled_stages()
    for index, stage in enumerate(spec.stages or ()):
        if stage not in enabled:
            yield SpecError(
                f"stages[{index}]", "the spec has no work for this stage", "add its section, or remove the stage here", stage
            )


@_rule("accelerator", "fabric", "sharing", "scheduler", "slurm", "stages", "approvals")
def _approvals_stand_before_stages(spec: ClusterSpec) -> Findings:
    enabled, seen = spec.enabled_stages(), set()
    for index, approval in enumerate(spec.approvals):
        path = f"approvals[{index}].before"
        if approval.before not in enabled:
            yield SpecError(path, "this stage does not run", f"choose from {', '.join(enabled)}", approval.before)
        if approval.before in seen:
            yield SpecError(path, "two approvals wait before the same stage", "list all approvers in one", approval.before)
        seen.add(approval.before)


@_rule("accelerator", "fabric", "sharing", "scheduler", "slurm", "quorum")
def _quorums_are_of_stages_with_work(spec: ClusterSpec) -> Findings:
    enabled = spec.model_copy(update={"stages": None}).enabled_stages()  # stages that a user leaves out keep their quorum
    for stage in spec.quorum.stages:
        if stage not in enabled:
            problem = "the spec has no work for this stage, so its quorum has no effect"
            yield SpecError(f"quorum.stages.{stage}", problem, f"add its section, or choose from {', '.join(enabled)}")


@_rule("hosts", "accelerator", "quorum")
def _quorum_can_be_met(spec: ClusterSpec) -> Findings:
    gpus = len(spec.gpu_machines)
    for stage in STAGES:
        share = spec.quorum.stages.get(stage)
        nodes = gpus if stage in _GPU_STAGES and gpus else len(spec.machines)
        if share is not None and share.text.isdigit() and int(share.text) > nodes:
            problem = f"only {nodes} nodes take part in {stage}"
            yield SpecError(f"quorum.stages.{stage}", problem, "lower the count, or write a fraction as in 15/16", share.text)
    largest = len(spec.machines)
    if spec.quorum.default.text.isdigit() and int(spec.quorum.default.text) > largest:
        yield SpecError("quorum.default", f"the spec has only {largest} nodes", "lower the count", spec.quorum.default.text)


@_rule("hosts", "accelerator", "fabric", "sharing", "scheduler", "slurm", "stages", "roles", "secrets")
def _roles_have_their_place(spec: ClusterSpec) -> Findings:
    enabled, seen = spec.enabled_stages(), set()
    for index, role in enumerate(spec.roles):
        path = f"roles[{index}]"
        if role.stage not in enabled:
            place = f"{path}.{'before' if role.before else 'after'}"
            yield SpecError(place, "this stage does not run", f"choose from {', '.join(enabled)}", role.stage)
        if role.hosts != "all" and role.hosts not in spec.hosts:
            yield SpecError(
                f"{path}.hosts", "no host group of this name", f"choose all or from {', '.join(spec.hosts)}", role.hosts
            )
        for variable, name in role.secrets.items():
            if name not in spec.secrets:
                known = ", ".join(spec.secrets) or "none yet"
                yield SpecError(f"{path}.secrets.{variable}", "no secret of this name", f"name it under secrets: {known}", name)
        if role.name in seen:
            yield SpecError(f"{path}.name", "two roles have this name", "give each a name of its own", role.name)
        seen.add(role.name)


@_rule("hosts", "accelerator", "fabric", "sharing", "scheduler", "slurm", "stages", "validation")
def _floors_are_known(spec: ClusterSpec) -> Findings:
    accelerator, nccl = spec.accelerator, spec.validation.nccl
    if accelerator is None or "validation" not in spec.enabled_stages():
        return
    unknown = [
        pool.accelerator.product for pool in gpu_pools(spec) if intra_node_floor(pool.spec) is None and joins_gpus(pool.spec)
    ]
    if runs(spec, NCCL_INTRA) and unknown:
        problem = f"there is no published bandwidth floor for {', '.join(dict.fromkeys(unknown))}"
        yield SpecError("validation.nccl.intra_node_floor_gb_s", problem, "give 0.9 × your site's measured baseline in GB/s")
    if spec.fabric.kind != "none" and runs(spec, NCCL_INTER) and nccl.inter_node_floor_gb_s is None:
        problem = "bandwidth between nodes depends on the site, so it has no default"
        yield SpecError(
            "validation.nccl.inter_node_floor_gb_s", problem, "give 0.9 × your site's measured baseline in GB/s, as in 350"
        )


@_rule("fabric", "accelerator", "validation")
def _port_floor_is_possible(spec: ClusterSpec) -> Findings:
    floor = spec.validation.ib_write_bw_floor_gbit_s
    if spec.fabric.kind != "none" and floor is not None and floor > spec.fabric.rate_gbit:
        fix = f"give a floor below {spec.fabric.rate_gbit}"
        yield SpecError(
            "validation.ib_write_bw_floor_gbit_s", f"above the port rate of {spec.fabric.rate_gbit} Gbit/s", fix, str(floor)
        )
