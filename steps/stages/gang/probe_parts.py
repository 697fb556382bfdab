"""Finds the parts of Volcano, KAI and Kueue that run in a cluster, whoever installed them and whatever their objects are called.

A part is known by its image, by the scheduler name in its arguments, or by the API group for which it answers admission requests.
Images: https://github.com/volcano-sh/volcano/blob/master/installer/helm/chart/volcano/values.yaml,
https://github.com/kai-scheduler/KAI-Scheduler/blob/main/deployments/kai-scheduler/values.yaml,
https://github.com/kubernetes-sigs/kueue/blob/main/charts/kueue/values.yaml
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from steps.stages.gang.contract import Scheduler, SchedulerPart
from steps.stages.shared.kube_objects import ContainerImage, ImagePodSpec, WorkloadObject
from steps.stages.shared.kube_reader import KubeReader
from steps.stages.shared.probe_workloads import RESOURCES

_IMAGES = {
    Scheduler.VOLCANO: re.compile(r"(?:^|/)vc-(?:scheduler|controller-manager|webhook-manager)(?=[:@]|$)"),
    Scheduler.KAI: re.compile(r"(?:^|/)kai-scheduler/(?:operator|scheduler|binder|podgrouper)(?=[:@]|$)"),
    Scheduler.KUEUE: re.compile(r"(?:^|/)kueue(?:-controller|-rhel\d+)?(?=[:@]|$)"),
}
"""Product → images of the parts that place or admit pods. Helpers, such as Volcano's agent or KueueViz, may run twice."""
_SCHEDULER_NAME = re.compile(r"--scheduler-?names?[= ](volcano|kai-scheduler)(?=$|[, ])")
_BY_NAME = {"volcano": Scheduler.VOLCANO, "kai-scheduler": Scheduler.KAI}
_GROUPS = {
    "batch.volcano.sh": Scheduler.VOLCANO,
    "scheduling.volcano.sh": Scheduler.VOLCANO,
    "scheduling.run.ai": Scheduler.KAI,
    "kai.scheduler": Scheduler.KAI,
    "kueue.x-k8s.io": Scheduler.KUEUE,
}
"""API group → product whose admission webhook serves it."""
_WEBHOOKS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")


class _WebhookService(Struct, frozen=True):
    namespace: str = ""
    name: str = ""


class _WebhookClient(Struct, frozen=True):
    service: _WebhookService | None = None


class _WebhookRule(Struct, frozen=True, rename="camel"):
    api_groups: tuple[str, ...] = ()


class _GroupWebhook(Struct, frozen=True, rename="camel"):
    client_config: _WebhookClient = _WebhookClient()
    rules: tuple[_WebhookRule, ...] = ()


class _WebhookConfiguration(Struct, frozen=True):
    """A Validating- or MutatingWebhookConfiguration, read for API groups and Services."""

    webhooks: tuple[_GroupWebhook, ...] = ()


def parts(kube: KubeReader) -> tuple[SchedulerPart, ...]:
    """Return the parts of the three schedulers in all namespaces, sorted by name. Workloads scaled to 0 run nothing."""
    by_name = {part.name: part for part in (*_served(kube), *_running(kube))}
    return tuple(by_name[name] for name in sorted(by_name))


def _running(kube: KubeReader) -> Iterator[SchedulerPart]:
    for kind, resource in RESOURCES.items():
        for workload in kube.list(f"/apis/apps/v1/{resource}", WorkloadObject[ImagePodSpec]) or ():
            name = f"{kind} {workload.metadata.namespace}/{workload.metadata.name}"
            part = _part(name, workload.pod.containers) if workload.spec.replicas else None
            if part is not None:
                yield part


def _part(name: str, containers: tuple[ContainerImage, ...]) -> SchedulerPart | None:
    """Return the workload as a part of a product, by the image or else the arguments of a container; None if it is of none."""
    for container in containers:
        product = next((product for product, pattern in _IMAGES.items() if pattern.search(container.image)), None)
        if product is not None:
            return SchedulerPart(product=product, name=name, image=container.image)
    for container in containers:
        if flag := _SCHEDULER_NAME.search(" ".join((*container.command, *container.args))):
            return SchedulerPart(product=_BY_NAME[flag[1]], name=name, serves=f"scheduler name {flag[1]}")
    return None


def _served(kube: KubeReader) -> Iterator[SchedulerPart]:
    for resource in _WEBHOOKS:
        for configuration in kube.list(f"/apis/admissionregistration.k8s.io/v1/{resource}", _WebhookConfiguration) or ():
            for webhook in configuration.webhooks:
                service = webhook.client_config.service
                groups = sorted({group for rule in webhook.rules for group in rule.api_groups if group in _GROUPS})
                if service is not None and groups:
                    name = f"Service {service.namespace}/{service.name}"
                    yield SchedulerPart(product=_GROUPS[groups[0]], name=name, serves=f"webhooks for {groups[0]}")
