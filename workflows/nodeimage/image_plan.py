"""The plan of an image build: its stages, and the recipe as files beside their tasks."""

import base64
import importlib
from collections.abc import Mapping

import msgspec

from steps.contract import plain_text
from steps.contract.canonical import canonical, digest
from steps.contract.runs import approval
from steps.contract.task import Task, Verb
from steps.nodeimage.contract import boot_tree, resolved_recipe, script_links
from steps.nodeimage.contract.boot_tests import UNBOOTED, Firmware, why_not_booted
from steps.nodeimage.contract.resolved_recipe import MAX_BYTES, Recipe
from steps.stages.image_status import contract as image_status
from workflows.nodeimage.image_spec import ImageSpec
from workflows.nodeimage.publish_targets import publish_target
from workflows.plan import approvals
from workflows.plan.compiler import END_TASKS, OPEN_SECONDS
from workflows.plan.model import Plan, PlanError, Starts
from workflows.spec import announcement_rule
from workflows.spec.pipelines.publish_access import PUBLISH_KNOWN_HOSTS
from workflows.spec.sections import proxy
from workflows.stages import IMAGE_ORDER, image_boot, image_publish
from workflows.stages.host_access import SecretFile, secret_file
from workflows.stages.image_site import ImageSite
from workflows.stages.stage import Stage


def compile_image(
    spec: ImageSpec, recipe: Recipe, files: Mapping[str, bytes], until: str = "", *, again: bool = False, relock: str = ""
) -> Plan:
    """Return the plan of an image build. Pure: reads and writes no files.

    `recipe` is the resolved recipe and `files` are its files by digest. The plan ends with stage `until`; with `again` even an
    image that a rollback left is published. With either, the run does not first ask the published tree if the image is there
    already. `relock` is shown if mirrors have dropped locked packages.

    Raises PlanError for an unknown stage, an image for an architecture that no test machine boots, kernel arguments that fetch from
    outside the published tree, and a recipe whose files are too large to travel with the tasks.
    """
    site = ImageSite(
        recipe=recipe,
        place=publish_target(spec),
        firmware=tuple(Firmware(name) for name in spec.boot.firmware),
        machines=spec.boot.nodes,
        memory_mib=spec.boot.memory_mib,
        boot_seconds=int(spec.boot.timeout.total_seconds()),
        again=again,
        checked=not again and until in ("", image_status.ID),
        relock=relock,
    )
    optional_stages = (importlib.import_module(f"workflows.stages.{name}").build(site) for name in IMAGE_ORDER)
    stages = _stages_until(tuple(stage for stage in optional_stages if stage is not None), until)
    stages = approvals.attach_approvals(stages, spec.approvals)
    boot_obstacle = why_not_booted(recipe.name, recipe.architecture)
    if boot_obstacle and any(stage.id == image_boot.ID for stage in stages):
        raise PlanError(f"{boot_obstacle}, and none is published unbooted; {UNBOOTED}")
    if any(stage.id == image_publish.ID for stage in stages):
        _refuse_external_urls(site)
    plan_data = {
        "image": [spec.name, spec.owner, spec.revision],
        "recipe": site.recipe.digest,
        "stages": [msgspec.to_builtins(stage.digested, enc_hook=dict) for stage in stages],
    }
    plan_digest = digest(plan_data)
    issues = tuple(announcement_rule.scheduled_issues(spec.approvals if spec.schedule else ()))
    header = {"plan": plan_digest, "cluster": spec.name, "owner": spec.owner, "revision": spec.revision, "targetless": True}
    return Plan(
        name=spec.name,
        owner=spec.owner,
        revision=spec.revision,
        target_uid="",
        accelerator="",
        built={},
        stages=stages,
        hosts=(),
        releases=(),
        issues=(),
        secrets=_secrets(spec),
        public=frozenset({PUBLISH_KNOWN_HOSTS}),
        digest=plan_digest,
        open_task=Task(stage=approvals.RUN, name="open", verb=Verb.OPEN, arguments=header, deadline_seconds=OPEN_SECONDS),
        confirm_tasks=approvals.confirm_tasks(stages),
        announce_tasks=approvals.announce_tasks(spec.name, spec.approvals, stages),
        end_tasks=END_TASKS,
        archives=_task_files(site, files),
        proxies=proxy.environment(spec.proxy, (), ()),
        starts=None if until else Starts(schedule=spec.schedule, issues=issues),
    )


def _refuse_external_urls(site: ImageSite) -> None:
    """Raise PlanError if kernel arguments have nodes fetch from outside the published tree; a gate would refuse the image later."""
    url, arguments = site.place.url, {"the recipe": site.recipe.kernel_arguments}
    arguments |= {f"publish.groups.{group.name}": group.kernel_arguments for group in site.place.groups}
    for origin, kernel_arguments in arguments.items():
        if urls := script_links.fetched_elsewhere(kernel_arguments, url):
            problem = f"kernel arguments of {origin} have nodes fetch {', '.join(urls)}, which is not below publish.url {url}"
            raise PlanError(f"{problem}; a published tree leads nowhere else: let a service of the image fetch it")


def _secrets(spec: ImageSpec) -> tuple[SecretFile, ...]:
    references = dict(spec.references)
    for approval_point in spec.approvals:
        announce = approval_point.announce
        if announce is not None and announce.webhook is not None:
            references |= {approval.webhook_file(approval_point.before): announce.webhook}
            references |= {approval.ca_file(approval_point.before): announce.ca} if announce.ca else {}
    files = [secret_file(name, reference) for name, reference in references.items()]
    if spec.publish.ssh is not None:
        files.append(SecretFile(name=PUBLISH_KNOWN_HOSTS, path=spec.publish.ssh.known_hosts))
    return tuple(sorted(files, key=lambda file: file.name))


def _stages_until(stages: tuple[Stage, ...], until: str) -> tuple[Stage, ...]:
    stage_ids = [stage.id for stage in stages]
    if until and until not in stage_ids:
        known_ids = dict.fromkeys((image_status.ID, *stage_ids))  # which is left out where another is named
        raise PlanError(f"{until!r} is no stage of an image; stages are {', '.join(known_ids)}")
    return stages[: stage_ids.index(until) + 1] if until else stages


def _task_files(site: ImageSite, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files beside the tasks by name: recipe, its own files, machines by group.

    Raises PlanError if a ConfigMap is too small.
    """
    encoded_files = {name: base64.b64encode(data).decode() for name, data in sorted(files.items())}
    groups = site.place.groups
    files_by_name = {
        resolved_recipe.FILE: resolved_recipe.encode(site.recipe),
        resolved_recipe.FILES: canonical(encoded_files),
        boot_tree.GROUPS: boot_tree.encode_groups(groups),
    }
    size, groups_size = sum(map(len, files_by_name.values())), len(files_by_name[boot_tree.GROUPS])
    if size <= MAX_BYTES:
        return files_by_name
    if groups_size > size - groups_size:
        machines = plain_text.count(sum(len(group.nodes) for group in groups), "machine")
        sizes = f"publish.groups with {machines} has {groups_size} bytes, the recipe with its files {size - groups_size}"
        raise PlanError(f"{sizes}, limit {MAX_BYTES} together: shorten host names, or split them over two specs")
    raise PlanError(
        f"recipe {site.recipe.name} with its files has {size - groups_size} bytes, limit {MAX_BYTES - groups_size}: "
        "put large files into a package"
    )
