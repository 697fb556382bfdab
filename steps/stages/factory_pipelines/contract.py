"""Types of stage factory_pipelines: observations of installed templates and schedules, and the expectation of its gate."""

from msgspec import Struct


class InstalledTemplate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A WorkflowTemplate in the cluster: `NAMESPACE/NAME`, and the digest of its spec."""

    name: str
    digest: str = ""


class InstalledSchedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A CronWorkflow in the cluster: `NAMESPACE/NAME`, its cron lines, the template it starts, and why it failed to start one."""

    name: str
    cron: tuple[str, ...] = ()
    template: str = ""
    suspended: bool = False
    problem: str = ""


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate factory_pipelines/control: all templates and schedules of the projects that the task names."""

    templates: tuple[InstalledTemplate, ...] = ()
    schedules: tuple[InstalledSchedule, ...] = ()


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate factory_pipelines/control.

    `templates` maps `NAMESPACE/NAME` to the digest of the released spec; there must be no others in these projects. `schedules` are
    compared but for `suspended`, which belongs to whoever suspends a schedule.
    """

    templates: dict[str, str] = {}
    schedules: tuple[InstalledSchedule, ...] = ()
