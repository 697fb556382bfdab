"""Stages before the rehearsed ones: they are brought up first, or replaced by stand-ins for the secrets that they would leave."""

import shutil
from pathlib import Path

from steps.contract.delivery import RECORD
from workflows.engines import launch, run_inputs
from workflows.engines.folders import RunFolder, StateFolder
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.rehearsal.simulated_cluster import SimulatedCluster
from workflows.spec import ClusterSpec
from workflows.spec.pipelines.factory_spec import REGISTRY_CERTIFICATE, REGISTRY_HTPASSWD, REGISTRY_KEY, REGISTRY_PASSWORD
from workflows.stages import RUNNING_ORDER
from workflows.stages.host_access import GIT_CA, GIT_CREDENTIALS, GIT_KNOWN_HOSTS, SLURM_ACCOUNTING, SUNK_CHARTS

_CERTIFICATE = """-----BEGIN CERTIFICATE-----
MIIA0zCCAIWgAwIBAgIBATAFBgMrZXAwEzERMA8GA1UEAwwIc3RhbmQtaW4wHhcN
MjAwMTAxMDAwMDAwWhcNNDkxMjMxMjM1OTU5WjATMREwDwYDVQQDDAhzdGFuZC1p
bjAqMAUGAytlcAMhAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAMAUG
AytlcANBAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA
AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
-----END CERTIFICATE-----
"""
"""A certificate for the host name `stand-in`. Its public key is all zeros, so no server can own the private key."""
STAND_INS = {
    SLURM_ACCOUNTING: "simulated-password-2\n",
    SUNK_CHARTS: '{"auths": {"r.example.org": {"auth": "c2ltdWxhdGVkLXBhc3N3b3JkLTM="}}}',
    REGISTRY_CERTIFICATE: _CERTIFICATE,
    REGISTRY_KEY: "simulated-key\n",
    REGISTRY_PASSWORD: "simulated-password-4\n",
    REGISTRY_HTPASSWD: "rehearsal:simulated-hash\n",
    GIT_CREDENTIALS: "rehearsal:simulated-password-1\n",
    GIT_CA: _CERTIFICATE,
    GIT_KNOWN_HOSTS: "* ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC0000000000000000000000000000000000000000000\n",
}
"""Contents of stand-in secrets by file name.

Simulated Git servers, registries and databases need no credentials, but tasks copy these secrets into the cluster, where gates
look at them.
"""


def write_stand_in_secrets(plan: Plan, folder: Path) -> None:
    """Write into `folder` a stand-in for each secret that the plan names and that `STAND_INS` has."""
    for file in plan.secrets:
        if file.name in STAND_INS:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (folder / file.name).write_text(STAND_INS[file.name])


def copy_delivery(source: Path, target: Path) -> None:
    """Copy `delivery.json`, the record of delivered Git commits, from one run's folder to another's if it exists."""
    if (source / RECORD).exists():
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / RECORD, target / RECORD)


class MissingStages(ValueError):
    """Raised if stages between the chosen ones are left out, because nothing could bring them up in the middle of a rehearsal."""

    hint = "name them with --only as well, or rehearse the chosen stages one by one"


class NotPrepared(RuntimeError):
    """Raised if the stages before the chosen ones did not come up in the simulated cluster."""

    exit_code = 65
    hint = "rehearse them first: bringup rehearse SPEC --until STAGE"


def plan_of_earlier_stages(spec: ClusterSpec, plan: Plan) -> Plan | None:
    """Return a plan, without approvals, of the stages that `plan` leaves out before its first; None if it leaves out none.

    Raises MissingStages if `plan` also leaves out stages after its first.
    """
    chosen = [stage.id for stage in plan.stages]
    left_out = [str(stage) for stage in plan.open_task.arguments.get("left_out", ())]
    between = [stage for stage in left_out if RUNNING_ORDER.index(stage) > RUNNING_ORDER.index(chosen[0])]
    if between:
        raise MissingStages(f"a rehearsal of {', '.join(chosen)} needs the stages between them too: {', '.join(between)}")
    return compile_plan(spec.model_copy(update={"approvals": ()}), only=left_out) if left_out else None


def prepare(folder: RunFolder, before: Plan, cluster: SimulatedCluster) -> None:
    """Run the plan `before` in the simulated cluster, and copy its secrets and delivery record to the rehearsal `folder`.

    The run has the name of the rehearsal, so that the lease in the cluster belongs to the rehearsal afterwards. Its state is kept
    in a folder of its own, which is deleted on success. Raises NotPrepared if the run fails.
    """
    from workflows import bringup  # loads Hera, which most rehearsals do not need here
    from workflows.render.bundle import render

    state_folder = folder.home.root / "clusters" / folder.name / "prepared"
    preparation = StateFolder(state_folder).run(folder.name)
    run_inputs.write(preparation, before, render(before, bringup.build), Path("/"), {}, simulated=True)
    write_stand_in_secrets(before, preparation.inputs / "secrets")
    result = launch.start(preparation, cluster.environment, None, spawn=cluster.start)
    if result.exit_code:
        stages = ", ".join(stage.id for stage in before.stages)
        reason = _headline(preparation) or result.message or result.phase
        raise NotPrepared(f"the stages before the rehearsed ones ({stages}) did not come up: {reason} (see {preparation.stored})")
    secrets = preparation.stored / "secrets"
    if secrets.exists():
        shutil.copytree(secrets, folder.inputs / "secrets", dirs_exist_ok=True)
    copy_delivery(preparation.stored, folder.stored)
    shutil.rmtree(state_folder)


def _headline(folder: RunFolder) -> str:
    """Return the first line of a run's report; empty if there is no report."""
    report = folder.stored / "report" / "report.txt"
    return report.read_text().partition("\n")[0] if report.exists() else ""
