"""Types of stage factory_storage: observations of claims and of the check's pods, and the expectations of its gates."""

from msgspec import Struct

from steps.contract.objects.checks import CheckPod


class ShareClaim(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A volume claim of the shared folder: `NAMESPACE/NAME`, its phase, and the volume that it is bound to."""

    name: str
    phase: str = ""
    volume: str = ""


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate factory_storage/control: the claims that the task names, as far as they exist."""

    claims: tuple[ShareClaim, ...] = ()


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate factory_storage/control: claim (`NAMESPACE/NAME`) → the volume that it must be bound to."""

    claims: dict[str, str] = {}


class FunctionalObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate factory_storage/functional: the pods of check `share`, which report `wrote`, `read` and `error`."""

    pods: tuple[CheckPod, ...] = ()


class FunctionalExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate factory_storage/functional: one pod wrote, and each of `nodes` read what it wrote."""

    nodes: tuple[str, ...] = ()
