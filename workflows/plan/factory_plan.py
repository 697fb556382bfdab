"""The plan of a factory: the stages of the Kubernetes below, then registry, Argo Workflows, projects and pipelines."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from steps.contract.objects import object_files
from workflows import catalog
from workflows.plan.compiler import plan_site
from workflows.plan.model import Plan, PlanError
from workflows.spec.pipelines.factory_spec import FactorySpec
from workflows.stages import FACTORY_ORDER, factory_pipelines
from workflows.stages.factory_site import FactorySite, argo_release
from workflows.stages.stage import Object


def compile_factory(
    spec: FactorySpec, pipelines: Mapping[str, tuple[Object, ...]], until: str = "", only: Sequence[str] = ()
) -> Plan:
    """Return the plan of a factory, without I/O. `pipelines` maps the paths of pipeline files to their objects; `until` and
    `only` restrict the plan to some stages.

    Raises PlanError for an unknown stage, and SpecErrors if the Kubernetes below breaks a compatibility rule.
    """
    cluster, entries = spec.cluster, catalog.load()
    issues = catalog.require(cluster, entries)
    releases = {release.id: release for release in (*catalog.resolve(cluster, entries), argo_release(spec))}
    site = FactorySite(spec=cluster, machines=cluster.machines, releases=releases, factory=spec, pipelines=pipelines)
    plan = plan_site(site, issues, order=FACTORY_ORDER, only=only, until=until)
    if all(stage.id != factory_pipelines.ID for stage in plan.stages):
        return plan
    data = object_files.encode(factory_pipelines.released_objects(site))
    if len(data) > object_files.MOST_BYTES:
        raise PlanError(f"the pipelines have {len(data)} bytes, limit {object_files.MOST_BYTES}: release fewer templates")
    return replace(plan, archives={**plan.archives, factory_pipelines.FILE: data})
