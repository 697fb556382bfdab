"""Stage slurm: install Slurm on Kubernetes by Slinky or SUNK, proven by sinfo and by srun on every node.

Facts: `steps/docs/facts/slurm.md`, Slinky and SUNK.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from steps.contract import fleet
from steps.contract.task import Verb
from workflows.catalog import PlannedRelease
from workflows.catalog.slurm_objects import CLUSTER, supporting_objects
from workflows.catalog.slurm_values import TREE, qos_record
from workflows.spec.cluster_spec import slurm_groups
from workflows.spec.machines import Machine
from workflows.spec.parsing.document import value_at
from workflows.stage_names import StageName
from workflows.stages import manifest_objects, rights, slurm_checks, slurm_login
from workflows.stages.host_access import SLURM_ACCOUNTING, SUNK_CHARTS
from workflows.stages.stage import Change, Object, Rule, Site, Stage, Step, task

STAGE: StageName = "slurm"
CHECK = "srun"
CHARTS, CONTROL = "slurm/charts", "slurm/control"
NODES, FUNCTIONAL = "slurm/nodes", "slurm/functional"

CONTROL_SECONDS = 2400
"""Time limit in seconds of the control gate: images of slurmctld, slurmd and login (2 GB a node), then every slurmd registers."""
NODES_SECONDS = 600
FUNCTIONAL_SECONDS = 900
QOS_SECONDS = 1200
SECRET_JOB = "slurm-secret-job"
"""Beginning of the names of SUNK's Jobs that make keys. Those of an earlier release keep Helm from upgrading."""

LOGIN_IMAGE = "ghcr.io/slinkyproject/login:26.05-ubuntu26.04"
"""The login image of the slurm chart 1.2.1 (loginsetDefaults.login.image), which has srun, sinfo and sackd."""

TOPOLOGY_ANNOTATION = "topology.slinky.slurm.net/spec"
"""Annotation of a node from which Slinky's operator takes the topology of its Slurm node."""

_WORKLOADS = {"slurm_operator_crds": 0, "slurm_operator": 2, "slurm": 0, "sunk": 1, "moco": 1, "sunk_slurm": 1}
"""Release id → number of workloads that the chart itself installs.

Slinky's chart `slurm` has only custom resources, from which the operator makes the workloads.
"""
_RESOURCES = {"ConfigMap": "configmaps", "PersistentVolumeClaim": "persistentvolumeclaims"}


def build(site: Site) -> Stage | None:
    """Return stage slurm, or None if the spec wants no Slurm."""
    if site.spec.slurm.kind == "none":
        return None
    releases = manifest_objects.releases(site, STAGE)
    operator = tuple(release for release in releases if release.id not in CLUSTER)
    cluster = next(release for release in releases if release.id in CLUSTER)
    slinky = site.spec.slurm.kind == "slinky"
    gates = _gates(site, cluster)
    crds = [name for release in operator for name in release.crds]
    charts: Object = {"releases": _expected(site, operator), **({"crds": crds} if crds else {})}
    control = _control_expectations(site, releases)
    reads = _reads(site, cluster.namespace)
    beside = _beside(site, cluster)
    further: Object = {"select": node_selector(site), **_place(site, cluster), **_secrets(site, cluster), "beside": beside}
    further |= _leaf_annotation(site)
    further |= {} if slinky else {"replaced_jobs": {"namespace": cluster.namespace, "prefix": SECRET_JOB}}
    writes = _writes(cluster.namespace, further)
    if manifest_objects.by_argo_cd(site, releases):
        # one root Application over all charts, which syncs the cluster once the operator is healthy
        rules = (*reads, *writes, rights.CRDS)
        steps = [
            manifest_objects.apply_step(site, STAGE, releases, CONTROL, control, rules, **further),
            _charts(site, operator, charts),
        ]
    else:
        rules = (*rights.gate_rules(site, releases), *reads, *writes)
        steps = [
            manifest_objects.apply_step(site, STAGE, operator, CHARTS, charts, (rights.CRDS, *_login_rules(site)), **_login(site)),
            _charts(site, operator, charts),
            manifest_objects.apply_step(
                site, STAGE, (cluster,), CONTROL, control, rules, name="configure", after=("charts",), **further
            ),
        ]
    steps += _corrected_and_proven(site, releases, cluster, control, steps[-1].name)
    judge = manifest_objects.judge(site, STAGE, gates, members=node_selector(site))
    # the last task may list sessions, which is no gate of its own
    steps.append(replace(judge, after=tuple(dict.fromkeys((*judge.after, steps[-1].name)))))
    return Stage(
        id=STAGE,
        title="Slurm on Kubernetes",
        steps=tuple(steps),
        gates=tuple(gates.values()),
        changes=(
            *manifest_objects.installs(releases),
            Change(what="run slurmd, which holds the node's GPUs", where=f"{len(machines(site))} nodes"),
            *(_annotations(site) if slinky else _corrections(site)),
        ),
        rollback=cluster.rollback,
        releases=tuple(release.id for release in releases),
    )


def _gates(site: Site, cluster: PlannedRelease) -> dict[str, str]:
    """Return the stage's gates by task."""
    gates = {"charts": CHARTS, "control": CONTROL, "nodes": NODES, "placement": slurm_checks.PLACEMENT}
    if runs_jobs(site):
        gates |= {"functional": FUNCTIONAL, "scheduling": slurm_checks.SCHEDULING, "drain": slurm_checks.DRAIN}
    if slurm_checks.schedules_pods(site, cluster):
        gates["pods"] = slurm_checks.PODS
    return gates


def _corrected_and_proven(
    site: Site, releases: tuple[PlannedRelease, ...], cluster: PlannedRelease, control: Object, after: str
) -> list[Step]:
    """Return the tasks after the installation: what the run corrects, and the gates."""
    corrected = site.spec.slurm.kind == "sunk" and bool(any(gpus_of(site).values()) or _has_tree(site))
    steps = [_gres(site, cluster, after)] if corrected else []
    steps.append(_control(site, releases, cluster, control, steps[-1].name if steps else after))
    steps += [_qos(site, cluster)] if site.spec.slurm.qos else []
    checks = _checks(site, cluster)
    steps += [replace(_nodes(site, cluster), after=(steps[-1].name,)), slurm_checks.placement(checks)]
    if runs_jobs(site):
        steps += [_functional(site, cluster), slurm_checks.scheduling(checks), slurm_checks.drain(checks)]
    if slurm_checks.schedules_pods(site, cluster):
        steps.append(slurm_checks.pods(checks, steps[-1].name, passed=("nodes", "functional") if runs_jobs(site) else ("nodes",)))
    if site.spec.slurm.kind == "sunk" and slurm_login.has_waiting_pods(site, cluster):
        steps.append(slurm_login.sessions(cluster, steps[-1].name))
    return steps


def _beside(site: Site, cluster: PlannedRelease) -> list[Object]:
    """Return the objects beside the charts that the run applies itself; none if Argo CD reads them from Git."""
    argo = site.spec.delivery.argo_cd
    supports = () if argo is not None and not argo.is_commit else supporting_objects(site.spec, (cluster,))
    return [item for support in supports for item in support.objects]


def _writes(namespace: str, further: Object) -> tuple[Rule, ...]:
    """Return the rights that the arguments `further` of the task which installs the cluster need in its namespace."""
    space, verbs = (namespace,), ("get", "create", "patch")
    rules = [Rule(groups=("",), resources=("secrets",), verbs=verbs, namespaces=space)] if "secrets" in further else []
    if "replaced_jobs" in further:
        rules.append(Rule(groups=("batch",), resources=("jobs",), verbs=("list", "delete"), namespaces=space))
    if "leaf_annotation" in further:
        rules.append(Rule(groups=("",), resources=("nodes",), verbs=("get", "list", "patch")))
    resources = tuple(sorted({_RESOURCES[item["kind"]] for item in further["beside"]}))
    return (*rules, Rule(groups=("",), resources=resources, verbs=verbs, namespaces=space)) if resources else tuple(rules)


def _has_tree(site: Site) -> bool:
    return site.spec.slurm.topology == "tree"


def _leaf_annotation(site: Site) -> Object:
    """Return the argument by which nodes get their place in Slurm's topology; empty without one, and with SUNK.

    Slinky's operator gives each Slurm node the topology that its Kubernetes node names, and takes it out of the tree where that
    names none, whatever topology.yaml says (SlinkyProject/slurm-operator, docs/usage/topology.md).
    """
    if site.spec.slurm.kind != "slinky" or not _has_tree(site):
        return {}
    return {"leaf_annotation": {"key": TOPOLOGY_ANNOTATION, "prefix": f"{TREE}:"}}


def _annotations(site: Site) -> tuple[Change, ...]:
    if not _has_tree(site):
        return ()
    return (Change(what=f"annotate nodes with their leaf switch ({TOPOLOGY_ANNOTATION})", where=f"{len(machines(site))} nodes"),)


def _corrections(site: Site) -> tuple[Change, ...]:
    """Return what the run changes of SUNK's installation before its gates, since no value of its charts does it."""
    place = "ConfigMap slurm-slurm-conf"
    written = (Change(what="write topology.conf by the nodes of the pods of slurmd", where=place),) if _has_tree(site) else ()
    if not any(gpus_of(site).values()):
        return written
    what = "correct gres.conf (AutoDetect=off, a File= line for each node), restart pods of slurmd, resume their nodes"
    by_hand = (
        ()
        if site.spec.slurm.login.replicas
        else (Change(what="resume drained nodes (a person, without login pods)", where="Slurm"),)
    )
    return (Change(what=what, where=place), *written, *by_hand)


def _gres(site: Site, cluster: PlannedRelease, after: str) -> Step:
    """Return the task that corrects SUNK's gres.conf after every install and upgrade, and writes topology.conf beside it.

    See `steps/docs/facts/slurm.md`, SUNK.
    """
    groups: Mapping[str, Object] = cluster.values.get("compute", {}).get("nodes", {})
    types = {name: group["gresGpu"].partition(":")[0] for name, group in groups.items() if group.get("gresGpu")}
    wanted: Object = {
        "namespace": cluster.namespace,
        "types": types,
        "pods": len(machines(site)) if _has_tree(site) else sum(bool(count) for count in gpus_of(site).values()),
        **({"tree": True, "select": node_selector(site)} if _has_tree(site) else {}),
        "script": manifest_objects.script("resume_gres.sh"),
        **({} if site.spec.slurm.login.replicas else {"login": ""}),
    }
    space = (cluster.namespace,)
    return Step(
        task=task(STAGE, "gres", Verb.APPLY, deadline=CONTROL_SECONDS, arguments={"gres_conf": wanted}),
        after=(after,),
        rules=(
            *rights.CLAIM,
            Rule(groups=("",), resources=("configmaps",), verbs=("get", "patch"), namespaces=space),
            Rule(groups=("",), resources=("pods",), verbs=("list", "delete"), namespaces=space),
            rights.execute(cluster.namespace),
            *rights.DIAGNOSE,
        ),
    )


def _qos(site: Site, cluster: PlannedRelease) -> Step:
    """Return the task that creates the QoS of the spec in Slurm's accounting, which no chart does."""
    wanted: Object = {
        "name": "qos",
        "namespace": cluster.namespace,
        **slurm_checks.tool_pod(cluster, sunk=site.spec.slurm.kind == "sunk"),
        "script": manifest_objects.script("slurm_qos.sh"),
        "variables": {"QOS": ";".join(map(qos_record, site.spec.slurm.qos))},
    }
    return Step(
        task=task(STAGE, "qos", Verb.APPLY, deadline=QOS_SECONDS, arguments={"pod_script": wanted}),
        after=("control",),
        rules=(*rights.CLAIM, rights.execute(cluster.namespace), *rights.DIAGNOSE),
    )


def _login(site: Site) -> Object:
    """Return the argument `secrets` of the task that installs the operator: the login of SUNK's charts. Empty without one."""
    if site.spec.slurm.credentials is None:
        return {}
    secret = {"namespace": "kube-system", "name": manifest_objects.CHART_LOGIN, "key": ".dockerconfigjson"}
    return {"secrets": [{**secret, "file": SUNK_CHARTS, "field": "slurm.credentials"}]}


def _login_rules(site: Site) -> tuple[Rule, ...]:
    rule = Rule(groups=("",), resources=("secrets",), verbs=("get", "create", "patch"), namespaces=("kube-system",))
    return (rule,) if _login(site) else ()


def _secrets(site: Site, cluster: PlannedRelease) -> Object:
    """Return the argument `secrets` of the task that installs the cluster: the Secret with the password of the accounting database.

    The chart's value `accounting.storageConfig.passwordKeyRef` names it. Empty without accounting.
    """
    if site.spec.slurm.accounting is None or site.spec.slurm.kind != "slinky":
        return {}
    reference = value_at(cluster.values, "accounting.storageConfig.passwordKeyRef")
    if not reference:  # overridden: the site's own way to give the password
        return {}
    secret = {"namespace": cluster.namespace, **reference, "file": SLURM_ACCOUNTING, "field": "slurm.accounting.password"}
    return {"secrets": [secret]}


def runs_jobs(site: Site) -> bool:
    """Return True if the stage runs jobs in Slurm. With SUNK it needs a login pod for that."""
    return site.spec.slurm.kind == "slinky" or site.spec.slurm.login.replicas > 0


# ---- who takes part ------------------------------------------------------------------------------------------------------------


def machines(site: Site) -> tuple[Machine, ...]:
    """Return the machines that run Slurm."""
    chosen = set(slurm_groups(site.spec))
    return tuple(machine for machine in site.machines if machine.group in chosen)


def node_selector(site: Site) -> str:
    """Return the selector (`gpu`, `agent`, `all` or `group-NAME,NAME`) that takes exactly the machines that run Slurm."""
    chosen = {machine.name for machine in machines(site)}
    simple = {
        "gpu": {machine.name for machine in site.machines if machine.gpu},
        "agent": {machine.name for machine in site.machines if machine.role == "agent"},
        "all": {machine.name for machine in site.machines},
    }
    return next((word for word, names in simple.items() if names == chosen), f"{fleet.GROUP}{','.join(slurm_groups(site.spec))}")


def _installed(site: Site) -> dict[str, int]:
    """Return each machine of Slurm with the number of its GPUs; 0 if they are shared, so that Slurm does not manage them."""
    whole = {machine.name for part in site.pools if part.spec.sharing.mode == "none" for machine in part.machines if machine.gpu}
    return {machine.name: machine.gpus if machine.name in whole else 0 for machine in machines(site)}


def gpus_of(site: Site) -> dict[str, int]:
    """Return each machine of Slurm with the number of GPUs that Slurm has there.

    One NodeSet has one number for all its machines, that of the machine with the fewest (`derived.slurm_groups` of the catalog).
    """
    installed, members = _installed(site), machines(site)
    least: dict[str, int] = {}
    for machine in members:
        least[machine.group] = min(installed[machine.name], least.get(machine.group, installed[machine.name]))
    return {machine.name: least[machine.group] for machine in members}


def _gpu_counts(site: Site) -> Object:
    """Return the usual number of GPUs that Slurm has on a node as `gpus`, and machine → number as `others` where it differs."""
    counts = gpus_of(site)
    frequent = Counter(counts.values())
    usual = max(frequent, key=lambda count: (frequent[count], count), default=0)
    others = {name: count for name, count in counts.items() if count != usual}
    return {"gpus": usual, **({"others": others} if others else {})}


# ---- operator ------------------------------------------------------------------------------------------------------------------


def _expected(site: Site, releases: Iterable[PlannedRelease]) -> list[Object]:
    return [_expected_release(site, release) for release in releases]


def _expected_release(site: Site, release: PlannedRelease) -> Object:
    """Return the expectation of a release; pods that stage slurm_login replaces may be of an old revision here."""
    waiting = release.id == "sunk_slurm" and slurm_login.has_waiting_pods(site, release)
    expectation = manifest_objects.expected_release(site, release, workloads=_WORKLOADS.get(release.id, 1))
    return expectation | ({"on_delete": [slurm_login.SET]} if waiting else {})


def _charts(site: Site, operator: tuple[PlannedRelease, ...], expectations: Object) -> Step:
    seconds = max(release.timeout_seconds for release in operator) + 300
    arguments = {"gate": CHARTS, "namespaces": sorted({release.namespace for release in operator}), **expectations}
    return Step(
        task=task(STAGE, "charts", Verb.WAIT, deadline=seconds, arguments=arguments, expectations=expectations),
        after=("apply",),
        rules=(*rights.gate_rules(site, operator), rights.CRDS),
    )


# ---- the cluster ---------------------------------------------------------------------------------------------------------------


def _control_expectations(site: Site, releases: tuple[PlannedRelease, ...]) -> Object:
    expectations: Object = {"releases": _expected(site, releases), **manifest_objects.root_app(site, releases)}
    members = machines(site)
    expectations |= {
        "nodes_desired": len(members),
        "spare": len(members) - site.spec.quorum.share(STAGE).needed(len(members)),
    }
    cluster = next(release for release in releases if release.id in CLUSTER)
    if site.spec.slurm.kind == "sunk" and value_at(cluster.values, "syncer.enabled"):
        expectations["syncer"] = True
    if site.spec.slurm.kind == "slinky":
        parts = ["Controller", "RestApi"]
        parts += ["LoginSet"] if site.spec.slurm.login.replicas else []
        parts += ["Accounting"] if site.spec.slurm.accounting else []
        expectations |= {
            "parts": parts,
            "workloads": len(parts),
        }
    return expectations


def _place(site: Site, cluster: PlannedRelease) -> Object:
    """Return the arguments by which probes find Slurm: its namespace, and its operator if that is not Slinky."""
    return {"slurm_namespace": cluster.namespace, **({} if site.spec.slurm.kind == "slinky" else {"operator": "sunk"})}


def _reads(site: Site, namespace: str) -> tuple[Rule, ...]:
    space = (namespace,)
    kinds = ("controllers", "restapis", "loginsets", "accountings", "nodesets")
    slinky = Rule(groups=("slinky.slurm.net",), resources=kinds, verbs=("list",), namespaces=space)
    sunk = Rule(groups=("sunk.coreweave.com",), resources=("nodesets",), verbs=("list",), namespaces=space)
    return (
        slinky if site.spec.slurm.kind == "slinky" else sunk,
        Rule(groups=("apps",), resources=("deployments", "statefulsets"), verbs=("list",), namespaces=space),
        Rule(groups=("",), resources=("nodes",), verbs=("list",)),
        *rights.DIAGNOSE,
    )


def _control(site: Site, releases: tuple[PlannedRelease, ...], cluster: PlannedRelease, expectations: Object, after: str) -> Step:
    arguments = {
        "gate": CONTROL,
        "select": node_selector(site),
        "stable_seconds": 20,
        "namespaces": [cluster.namespace],
        **_place(site, cluster),
        "releases": expectations["releases"],
        **manifest_objects.root_app(site, releases),
    }
    return Step(
        task=task(STAGE, "control", Verb.WAIT, deadline=CONTROL_SECONDS, arguments=arguments, expectations=expectations),
        after=(after,),
        rules=(*rights.gate_rules(site, releases), *_reads(site, cluster.namespace)),
    )


def _nodes(site: Site, cluster: PlannedRelease) -> Step:
    slinky = site.spec.slurm.kind == "slinky"
    arguments = {
        "gate": NODES,
        "select": node_selector(site),
        # verdicts about nodes are only recorded here: the judge applies the quorum
        "decides": False,
        "stable_seconds": 10,
        "namespaces": [cluster.namespace],
        **_place(site, cluster),
    }
    of_slurm = gpus_of(site)
    installed = {name: count for name, count in _installed(site).items() if count != of_slurm[name]}
    expectations: Object = {**_gpu_counts(site), "states": True, "promised": slinky}
    expectations |= {"installed": installed} if installed else {}
    return Step(
        task=task(STAGE, "nodes", Verb.WAIT, deadline=NODES_SECONDS, arguments=arguments, expectations=expectations),
        after=("control",),
        rules=_reads(site, cluster.namespace),
    )


# ---- srun ----------------------------------------------------------------------------------------------------------------------


def _checks(site: Site, cluster: PlannedRelease) -> slurm_checks.CheckSite:
    return slurm_checks.CheckSite(
        site=site,
        cluster=cluster,
        members=machines(site),
        select=node_selector(site),
        gpus=gpus_of(site),
        gres=_gres_type(cluster),
        place=_place(site, cluster),
        reads=_reads(site, cluster.namespace),
        image=LOGIN_IMAGE,
    )


def _functional(site: Site, cluster: PlannedRelease) -> Step:
    """Return the task of the srun check.

    With Slinky it has a pod in Slurm's own namespace, which mounts the cluster's key, a Secret there. How a foreign pod
    authenticates with SUNK is not public, so the same script runs there in the login pod (`steps/docs/facts/slurm.md`, SUNK).
    """
    at = _checks(site, cluster)
    variables = {"GPUS": str(max(gpus_of(site).values(), default=0)), "SECONDS_TO_RUN": str(FUNCTIONAL_SECONDS - 120)}
    if at.sunk:
        how = slurm_checks.login_command(at, CHECK, manifest_objects.script("srun.sh"), variables)
    else:
        how = slurm_checks.check_job(at, CHECK, _check_pod(at, variables), FUNCTIONAL_SECONDS)
    return Step(
        task=task(
            STAGE,
            "functional",
            Verb.JOB,
            deadline=FUNCTIONAL_SECONDS,
            arguments={"gate": FUNCTIONAL, **how, "select": at.select, "after": ["nodes"], **at.place},
            expectations={
                **_gpu_counts(site),
                **({"accounting": True} if at.accounting else {}),
                **({"kernels": False} if at.sunk else {}),
            },
        ),
        after=("nodes",),
        rules=slurm_checks.login_rules(at) if at.sunk else slurm_checks.job_rules(at),
    )


def _gres_type(cluster: PlannedRelease) -> str:
    """Return the type of GPU in the values of either operator (`gpu:h200:8`, `h200:8`); empty if there are several or none."""
    nodesets: Mapping[str, Object] = cluster.values.get("nodesets", {})
    entries = [entry for nodeset in nodesets.values() for entry in nodeset.get("extraConfMap", {}).get("Gres", [])]
    groups: Mapping[str, Object] = cluster.values.get("compute", {}).get("nodes", {})
    entries += [f"gpu:{group['gresGpu']}" for group in groups.values() if group.get("gresGpu")]
    types = {entry.split(":")[1] for entry in entries if entry.count(":") == 2}
    return types.pop() if len(types) == 1 else ""


def _check_pod(at: slurm_checks.CheckSite, variables: Mapping[str, str]) -> Object:
    env = [{"name": key, "value": value} for key, value in variables.items()]
    pod = slurm_checks.join_pod(at.site, at.cluster, at.image, manifest_objects.script("srun.sh"), env)
    if not any(at.gpus.values()):
        return pod
    # slurmd's image has no CUDA: jobs get a program from the image of the other checks
    mount: Object = {"name": "program", "mountPath": "/program"}
    builds = manifest_objects.script("cuda_add.sh", "cuda_program.sh")
    program = manifest_objects.container(at.site.spec.validation.image, builds, name="program", volumeMounts=[mount])
    pod["volumes"].append({"name": "program", "emptyDir": {}})
    pod["containers"][0]["volumeMounts"].append(mount)
    return {"initContainers": [program], **pod}
