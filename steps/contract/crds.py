"""CRDs that charts install, without which an operator's own resources cannot be applied."""

from msgspec import Struct

from steps.contract.charts import Release, ReleaseState, RootApplication, RootState


class Crd(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of a CustomResourceDefinition. `established`: the API server serves it."""

    name: str
    established: bool = False
    message: str = ""


class ChartsObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of the charts of a stage and of the CRDs that they install."""

    releases: tuple[ReleaseState, ...] = ()
    root_app: RootState | None = None
    crds: tuple[Crd, ...] = ()


class ChartsExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expected releases, and the CRDs that the API server must serve."""

    releases: tuple[Release, ...] = ()
    root_app: RootApplication | None = None
    crds: tuple[str, ...] = ()
