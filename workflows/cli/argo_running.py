"""Starts runs on Argo: check, install, submit, then follow; resuming is a new run that reuses an earlier one's evidence."""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from steps.contract.exit import ExitCode
from workflows import bringup
from workflows.cli import argo, compiling, output, sources
from workflows.engines import announce
from workflows.engines.argo import claims, install, installation, remembered, submit
from workflows.engines.argo.home import Home, chosen
from workflows.engines.argo.objects import CLUSTER, SUBMISSION
from workflows.engines.folders import Home as Runs
from workflows.engines.folders import new_run_name
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.render.bundle import Bundle
from workflows.render.steps import Settings
from workflows.spec import ClusterSpec


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What `bringup run --engine argo` was told beside the spec."""

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    image: str = ""
    version: str = ""
    reuse: str = "none"
    only: tuple[str, ...] = ()
    until: str = ""
    wait: bool = True


def run(spec: str, wish: Wish) -> tuple[str, int]:
    """Install, submit and follow; the run's name and its exit code. Raises before anything is written where it could not run."""
    path, loaded = sources.read(spec)
    folder = path.parent if Path(spec).exists() else Path.cwd()
    home = Home(chosen(wish.kubeconfig, wish.context, wish.namespace, os.environ))
    plan, bundle = _rendered(loaded, wish, home)
    version = installation.check(home, wish.version)
    install.check_size(plan, bundle)
    secret = install.secret_contents(plan, folder, os.environ)
    told = announce.channels(loaded, folder, os.environ, lambda name, key: install.read_key(home, name, key))
    install.check_place(home, plan, bundle)
    install.install(home, plan, bundle, secret)
    away = _submitted(home, submit.workflow(new_run_name(plan.name), plan, bundle, wish.reuse))
    sizes = f"{len(plan.hosts)} hosts, {len(plan.stages)} stages, plan {plan.digest[:19]}"
    output.lines([f"run {away.name}: {sizes}, Argo Workflows {version}, namespace {home.namespace}"])
    return away.name, _followed(away, plan.name, told, wait=wish.wait)


def _rendered(loaded: ClusterSpec, wish: Wish, home: Home) -> tuple[Plan, Bundle]:
    plan = compile_plan(loaded, only=wish.only, until=wish.until)
    settings = Settings(namespace=home.namespace, image=wish.image or Settings().image)
    return plan, compiling.rendered(plan, bringup.build, settings)


def _submitted(home: Home, manifest: Mapping[str, Any]) -> argo.Away:
    made = submit.submit(home, dict(manifest))
    folder = Runs.of_environment().run(made.metadata.name)
    remembered.write(folder, remembered.Memory(where=home.where))
    return argo.known(home, folder)


Channels = Mapping[str, tuple[announce.Channel, tuple[str, ...]]]


def _followed(away: argo.Away, cluster: str, told: Channels, *, wait: bool) -> int:
    if not wait:
        unheard = "; nobody announces its approvals until it is followed" if told else ""
        output.lines([f"submitted; follow it with: bringup watch {away.name}{unheard}"])
        return ExitCode.OK
    where = away.home.where
    announcer = announce.Announcer(away.name, cluster, told, claims.claim(where, away.name), lambda text: output.lines([text]))
    try:
        return argo.watch(away, [announcer.observe])
    finally:
        announcer.close()


def resume(away: argo.Away) -> int:
    """A new Workflow of the same template that reuses what the earlier one proved. A run that goes on is only followed."""
    before = away.workflow()
    if not before.finished:
        output.lines([f"run {away.name} has not ended; following it"])
        return argo.watch(away)
    cluster = before.metadata.labels.get(CLUSTER, "run")
    meta = {
        "name": new_run_name(cluster),
        "namespace": away.home.namespace,
        "labels": {key: value for key, value in before.metadata.labels.items() if key.startswith("bringup/")},
        "annotations": {**_ours(before.metadata.annotations), SUBMISSION: secrets.token_hex(8)},
    }
    reuse = [{"name": "reuse", "value": away.name}]
    spec = {"workflowTemplateRef": {"name": before.template}, "arguments": {"parameters": reuse}}
    manifest = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": meta, "spec": msgspec.to_builtins(spec)}
    installation.check(away.home)
    again = _submitted(away.home, manifest)
    output.lines([f"run {again.name} goes on where {away.name} ended: what that proved and still holds is not done again"])
    return argo.watch(again)


def _ours(annotations: Mapping[str, str]) -> dict[str, str]:
    kept = ("bringup/plan", "bringup/owner", "bringup/revision")
    return {key: value for key, value in annotations.items() if key in kept}
