"""The field types that every section of a spec shares: the strict model base, names, references to secrets, durations.

A field description is shown by editors (JSON Schema) and its first example is the fix printed for a wrong value.
"""

import re
from datetime import timedelta
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

StageName = Literal[
    "os_prep", "rke2", "base_services", "gpu_operator", "network_operator", "sharing", "gang", "slurm", "validation"
]
"""The nine stages of a bring-up, in running order (design §3)."""

STAGES: tuple[StageName, ...] = get_args(StageName)


class Section(BaseModel):
    """A part of a spec: frozen, no unknown keys, no silent conversion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True, hide_input_in_errors=True)


def problem(sentence: str, fix: str) -> PydanticCustomError:
    """Return the error a validator raises: what is wrong and what to write."""
    return PydanticCustomError("spec", "{sentence}", {"sentence": sentence, "fix": fix})


def as_tuple(value: Any) -> Any:
    """Accept a list, or one item in place of a list of one."""
    if isinstance(value, list):
        return tuple(value)
    return value if isinstance(value, tuple) or value is None else (value,)


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


Listed = BeforeValidator(_listed)
"""Marks a `tuple[...]` field that YAML writes as a list."""


class _OneOrMore:
    """Marks a `tuple[...]` field that YAML may also write as one item; its JSON Schema says so."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(as_tuple, handler(source))

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        several = handler(schema)
        return {"anyOf": [several["items"], several]}


OneOrMore = _OneOrMore()
"""Put it last in `Annotated`, so that the list's own limits are part of the schema it sees."""

DnsLabel = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
"""A Kubernetes name: lower-case letters, digits, dashes, at most 63."""

ClusterName = Annotated[str, StringConstraints(pattern=r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$")]
"""A cluster name: a DNS label of at most 40 characters that starts with a letter, so that names derived from it still fit."""

SnakeId = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
"""An id: snake_case (design §3)."""

Text = Annotated[str, StringConstraints(min_length=1, max_length=500)]
AbsolutePath = Annotated[str, StringConstraints(pattern=r"^/[^\x00\n]{0,1000}$")]
Argument = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"^[^\x00\n]+$")]
LabelKey = Annotated[str, StringConstraints(pattern=r"^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]
LabelValue = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$")]
Taint = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9./_-]+(=[A-Za-z0-9._-]*)?:(NoSchedule|PreferNoSchedule|NoExecute)$"),
    AfterValidator(lambda text: text.replace("=:", ":")),
]
"""A taint as a node shows it: without a sign of equality where it has no value."""
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
ChartVersion = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}$")]
Url = Annotated[str, StringConstraints(pattern=r"^(https?|oci|git|ssh)://[^\s@]+$|^git@[^\s:]+:[^\s]+$", max_length=500)]
"""A URL without credentials in it."""

_DURATION = re.compile(r"(?:(\d{1,4})d)?(?:(\d{1,4})h)?(?:(\d{1,5})m)?(?:(\d{1,6})s)?\Z")


def _duration(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value
    match = _DURATION.match(value) if isinstance(value, str) and value else None
    if match is None or not any(match.groups()):
        raise problem("not a duration", "write a number with d, h, m or s, as in 24h or 1h30m")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    WithJsonSchema({"type": "string", "pattern": r"^(\d+d)?(\d+h)?(\d+m)?(\d+s)?$"}),
]
"""A span of time written as `24h`, `1h30m`, `90s`."""


class SecretKey(Section):
    """A key of a Kubernetes Secret in the home cluster."""

    name: DnsLabel = Field(description="Name of the Secret.", examples=["slurm-license"])
    key: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,253}$")] = Field(
        description="Key inside it.", examples=["token"]
    )
    namespace: DnsLabel | None = Field(
        default=None, description="Its namespace; default: the namespace of the run.", examples=["bringup"]
    )


class SecretRef(Section):
    """Where a secret lies: exactly one of a file, a key of a Kubernetes Secret, or an environment variable. Never the secret."""

    file: Argument | None = Field(default=None, description="Path of a file, relative to the spec.", examples=["./id_ed25519"])
    secret: SecretKey | None = Field(default=None, description="A key of a Kubernetes Secret.")
    env: Annotated[str, StringConstraints(pattern=r"^[A-Z_][A-Z0-9_]{0,99}$")] | None = Field(
        default=None, description="Name of an environment variable.", examples=["SUDO_PASSWORD"]
    )

    @model_validator(mode="before")
    @classmethod
    def _never_inline(cls, data: Any) -> Any:
        if isinstance(data, dict | SecretRef):
            return data
        raise problem("secrets are given by reference only", "write {file: PATH}, {secret: {name: NAME, key: KEY}} or {env: NAME}")

    @model_validator(mode="after")
    def _exactly_one(self) -> "SecretRef":
        if sum(part is not None for part in (self.file, self.secret, self.env)) != 1:
            raise problem("a reference names exactly one place", "keep one of file, secret and env")
        return self


_FLOATING_WORDS = frozenset({"latest", "head", "main", "master", "stable", "edge", "nightly"})


def is_floating(version: str) -> bool:
    """Tell whether a version can mean two things at two times (`gpu_stack §9 P13`): `latest`, `HEAD`, `5.x.x`, `>=1`."""
    return version.lower() in _FLOATING_WORDS or bool(re.search(r"(^|\.)[xX*](\.|$)|[<>~^|, ]", version)) or not version
