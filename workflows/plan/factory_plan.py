"""The plan of a factory: the stages of the Kubernetes below, then registry, Argo Workflows, projects and pipelines."""

from collections.abc import Mapping

from workflows import catalog
from workflows.catalog.loader import Catalog
from workflows.plan.compiler import plan_site
from workflows.plan.model import Plan
from workflows.spec.factory_spec import FactorySpec
from workflows.stages import FACTORY_ORDER
from workflows.stages.factory_site import FactorySite, argo_release
from workflows.stages.stage import Object


def compile_factory(
    spec: FactorySpec, pipelines: Mapping[str, tuple[Object, ...]], until: str = "", known: Catalog | None = None
) -> Plan:
    """Return the plan of a factory, without I/O. `pipelines` maps the paths of pipeline files to their objects.

    Raises PlanError for an unknown stage, and SpecErrors if the Kubernetes below breaks a compatibility rule.
    """
    cluster, entries = spec.cluster, known or catalog.load()
    issues = catalog.require(cluster, entries)
    releases = {release.id: release for release in (*catalog.resolve(cluster, entries), argo_release(spec))}
    site = FactorySite(spec=cluster, machines=cluster.machines, releases=releases, factory=spec, pipelines=pipelines)
    return plan_site(site, issues, order=FACTORY_ORDER, only=(), until=until)
