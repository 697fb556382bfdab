"""The kinds that charts bring: the charts of an operator, and the CRDs without which its own resources cannot be applied."""

from msgspec import Struct

from steps.contract.charts import Release, ReleaseState, RootApplication, RootState


class Crd(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A CustomResourceDefinition. `established`: the API server serves it."""

    name: str
    established: bool = False
    message: str = ""


class ChartsObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The charts and the kinds that they bring."""

    releases: tuple[ReleaseState, ...] = ()
    root_app: RootState | None = None
    crds: tuple[Crd, ...] = ()


class ChartsExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The releases, and the CRDs that must be served."""

    releases: tuple[Release, ...] = ()
    root_app: RootApplication | None = None
    crds: tuple[str, ...] = ()
