"""Rules about Slurm.

P30 (it needs whole GPUs), P32 (keys without effect), P37 (nodes reach /home), P38 (wrapper charts) and P43 (names of nodes).
"""

from __future__ import annotations

from collections.abc import Iterator

from steps.contract.host_ranges import fold
from workflows.spec.cluster_spec import ClusterSpec, slinky_name, slurm_groups
from workflows.spec.compat.rule_table import Platform, RuleFinding, rule
from workflows.spec.gpu_pools import gpu_pools

_WHY = {
    "time_slicing": "pods may not request all shares of a node, and a share is no GPU",
    "mps": "the device plugin refuses pods that request more than one share",
    "mig": "AutoDetect=nvidia sees whole GPUs and no MIG instances, so Slurm's Gres would not match",
    "dra": "its node pods request no GPU claims, so slurmd would see none and drain its node",
}


@rule("P30", "error", source="https://slurm.schedmd.com/gres.html", later=())
def slurm_has_whole_gpus(platform: Platform) -> Iterator[RuleFinding]:
    """Slurm's node pods hold all GPUs of their machines, which are whole there."""
    spec = platform.spec
    if spec.slurm.kind == "none" or spec.accelerator is None:
        return
    chosen = set(slurm_groups(spec))
    for pool in gpu_pools(spec):
        groups, mode = [name for name in pool.groups if name in chosen], pool.sharing.mode
        if mode == "none" or not groups:
            continue
        problem = f"Slurm takes all GPUs of group {', '.join(groups)}, which {mode} shares: {_WHY[mode]}"
        fix = "give Slurm partitions of groups without GPUs, or leave slurm or sharing out"
        if len(gpu_pools(spec)) > 1:
            fix = "give Slurm partitions of groups without GPUs or with whole ones, or leave slurm or sharing out"
        yield RuleFinding("slurm.kind", problem, fix)


@rule(
    "P43", "error", source="https://github.com/SlinkyProject/slurm-operator/blob/v1.2.1/internal/controller/nodeset/utils/utils.go"
)
def slurm_nodes_have_names_of_their_own(platform: Platform) -> Iterator[RuleFinding]:
    """Machines of Slinky differ before the first dot of their names, since that part is the name of their Slurm node."""
    spec = platform.spec
    if spec.slurm.kind != "slinky":
        return
    chosen, named = set(slurm_groups(spec)), dict[str, list[str]]()
    for machine in spec.machines:
        if machine.group in chosen:
            named.setdefault(slinky_name(machine.name), []).append(machine.name)
    name, same = next(((name, same) for name, same in named.items() if len(same) > 1), ("", []))
    if same:
        problem = f"{fold(same)} would all be the Slurm node {name}: Slinky takes the part of a node's name before its first dot"
        yield RuleFinding("hosts", problem, "name machines so that this part differs, or write slurm: {kind: none}")


@rule("P38", "warning", source="https://github.com/helm/helm/issues/31919")
def wrappers_pass_on_nulls(platform: Platform) -> Iterator[RuleFinding]:
    """Values of a wrapped chart that are null remove defaults, as SUNK's affinities need, which some releases of Helm do not do."""
    if platform.spec.slurm.kind == "sunk" and platform.spec.slurm.layout == "wrapper":
        problem = (
            "some releases of Helm drop a null in the values of a wrapped chart, so that its default stays: control pods would ask "
            "for nodes of CoreWeave, and stay Pending"
        )
        fix = "write layout: charts, or check the Helm of your Argo CD (helm/helm#31919, #32132); slurm/control names such pods"
        yield RuleFinding("slurm.layout", problem, fix)


@rule("P37", "warning", source="https://github.com/coreweave/sunk-anywhere")
def nodes_find_the_home(platform: Platform) -> Iterator[RuleFinding]:
    """The NFS server of Slurm's /home has a name that nodes resolve: kubelets mount it, and they do not ask the cluster's DNS."""
    home = platform.spec.slurm.home
    if home is not None and home.server and home.server.endswith((".svc", ".cluster.local")):
        problem = f"kubelets mount {home.server} by the DNS of their node, which does not know names of the cluster"
        yield RuleFinding("slurm.home.server", problem, "write the address of the Service")


@rule("P32", "error", source="https://github.com/SlinkyProject/slurm-operator", later=())
def slurm_keys_have_effect(platform: Platform) -> Iterator[RuleFinding]:
    """Every key of the section slurm has an effect in the Slurm that the spec asks for."""
    spec, slurm = platform.spec, platform.spec.slurm
    written = slurm.model_fields_set
    if slurm.kind == "none":
        for key in sorted(written - {"kind"}):
            problem = "there is no Slurm (kind: none), so this key has no effect"
            yield RuleFinding(f"slurm.{key}", problem, "remove it, or write kind: slinky")
        return
    if not slurm.login.replicas:
        for key in sorted(slurm.login.model_fields_set - {"replicas"}):
            yield RuleFinding(f"slurm.login.{key}", "there are no login pods (replicas: 0)", "remove it, or write replicas: 1")
    if slurm.qos and not slurm.has_accounting:
        yield RuleFinding("slurm.qos", "a QoS is a record of the accounting database, and there is none", "add slurm.accounting")
    if slurm.topology == "tree":
        yield from _without_leaf(spec)
    yield from _of_sunk(spec) if slurm.kind == "sunk" else _of_slinky(spec)


def _without_leaf(spec: ClusterSpec) -> Iterator[RuleFinding]:
    chosen = set(slurm_groups(spec))
    missing = [machine.name for machine in spec.machines if machine.group in chosen and not machine.leaf]
    if missing:
        problem = f"{fold(missing)} has no leaf switch, so the tree would lack it and no job of several nodes would use it"
        yield RuleFinding("slurm.topology", problem, "write topology.leaf for its host group, or topology: none")


def _of_slinky(spec: ClusterSpec) -> Iterator[RuleFinding]:
    if spec.slurm.credentials is not None:
        yield RuleFinding("slurm.credentials", "Slinky's charts are public", "remove it")
    if spec.slurm.config_files:
        problem = "it is a setting of SUNK's chart; Slinky's has configFiles"
        yield RuleFinding("slurm.config_files", problem, "remove it, and write overrides.slurm.values.configFiles")
    for name in sorted(spec.slurm.prolog.keys() & spec.slurm.epilog.keys()):
        problem = f"Slinky puts the scripts of prolog and epilog into one folder, where the epilog's {name} would be both"
        yield RuleFinding(f"slurm.epilog.{name}", problem, f"rename one of them, as {name.removesuffix('.sh')}-epilog.sh")
    if spec.slurm.layout == "wrapper":
        yield RuleFinding("slurm.layout", "only SUNK's guide has wrapper charts", "remove it")
    if spec.slurm.pyxis != "none":
        problem = "it is a setting of SUNK's chart; Slinky has images with pyxis instead"
        fix = "remove it, and write images and configFiles of pyxis in overrides.slurm"
        yield RuleFinding("slurm.pyxis", problem, fix)


def _of_sunk(spec: ClusterSpec) -> Iterator[RuleFinding]:
    slurm = spec.slurm
    if slurm.license is not None:
        problem = "no value of SUNK's charts takes a licence key: what is licensed is access to its charts and images"
        fix = (
            "remove it; write the login of the image registry in rke2.registries, and of the chart repository in slurm.credentials"
        )
        yield RuleFinding("slurm.license", problem, fix)
    if slurm.accounting is not None:
        problem = "which values of SUNK's chart name an existing database is not public, so this section has no effect"
        yield RuleFinding("slurm.accounting", problem, "remove it, and write those values in overrides.sunk_slurm")
    if slurm.login.authorized_keys:
        problem = "SUNK's login pods take users from a directory, and no list of keys for root"
        yield RuleFinding("slurm.login.authorized_keys", problem, "remove it, and configure the directory in overrides.sunk_slurm")
    argo = spec.delivery.argo_cd
    if slurm.credentials is not None and argo is not None:
        problem = "Argo CD fetches the charts, with the login that its own repository Secret has"
        yield RuleFinding("slurm.credentials", problem, "remove it, and give Argo CD the login of slurm.repo")
    elif slurm.credentials is not None and not str(slurm.repo).startswith("oci://"):
        problem = "a file of Docker's form is a login of OCI registries, and slurm.repo is none"
        yield RuleFinding("slurm.credentials", problem, "write an oci:// repository, or one that needs no login")
    if slurm.layout == "wrapper" and (argo is None or argo.is_commit):
        problem = "wrapper charts lie in the Git repository of Argo CD, and a commit cannot name itself"
        yield RuleFinding("slurm.layout", problem, "write delivery.mode: argo_cd with a tag as revision, or layout: charts")
    for key in ("job_metrics", "tokens"):
        if getattr(slurm, key):
            yield RuleFinding(f"slurm.{key}", "it is a setting of Slinky, and SUNK's charts have no value for it", "remove it")
    seen: set[str] = set()
    for index, partition in enumerate(slurm.partitions):
        path, fix = f"slurm.partitions[{index}]", "write a partition for each group, and each group once"
        if len(partition.groups) > 1:
            yield RuleFinding(f"{path}.groups", "SUNK makes one partition of each node group, and this one has several", fix)
        elif partition.groups[0] in seen:
            yield RuleFinding(f"{path}.groups", "SUNK makes one partition of each node group, and this group has another", fix)
        elif "_" in partition.name:
            problem = "SUNK names Kubernetes objects after the partition, which may have no underscores"
            yield RuleFinding(f"{path}.name", problem, f"write name: {partition.name.replace('_', '-')}")
        seen.update(partition.groups)
