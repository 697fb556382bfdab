"""Field types that all sections of a spec share: the strict model base, names, secrets, durations, IP and Git addresses.

Editors show the description of a field (JSON Schema). Its first example is the fix that an error suggests for a wrong value.
"""

import ipaddress
import re
from datetime import timedelta
from typing import Annotated, Any

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


class Section(BaseModel):
    """Base model of every section of a spec: frozen, without unknown keys, without silent conversion of types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True, hide_input_in_errors=True)


def problem(sentence: str, fix: str) -> PydanticCustomError:
    """Return an exception for a validator to raise: a sentence on what is wrong, and what to write instead."""
    return PydanticCustomError("spec", "{sentence}", {"sentence": sentence, "fix": fix})


def as_tuple(value: Any) -> Any:
    """Return a list as a tuple, and any other value but None and tuples as a tuple of one."""
    if isinstance(value, list):
        return tuple(value)
    return value if isinstance(value, tuple) or value is None else (value,)


Listed = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
"""Validator of a `tuple[...]` field that turns YAML's list into a tuple."""


class _OneOrMore:
    """Annotation of a `tuple[...]` field that YAML writes as a list or as a single item; its JSON Schema has both forms."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(as_tuple, handler(source))

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        several = handler(schema)
        return {"anyOf": [several["items"], several]}


OneOrMore = _OneOrMore()
"""Annotation for fields; it must stand last in `Annotated`, so that its schema includes the limits of the list."""

DnsLabel = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
"""A Kubernetes name of at most 63 lower-case letters, digits and dashes."""

ClusterName = Annotated[str, StringConstraints(pattern=r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$")]
"""A DNS label of at most 40 characters that starts with a letter, so that names derived from it still fit."""

SnakeId = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
"""An id in snake_case."""

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
"""A taint in the form that a node shows, which has no `=` if the value is empty."""
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
ChartVersion = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}$")]
Url = Annotated[str, StringConstraints(pattern=r"^(https?|oci|git|ssh)://[^\s@]+$|^git@[^\s:]+:[^\s]+$", max_length=500)]
"""A URL without credentials."""

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
    timedelta, BeforeValidator(_duration), WithJsonSchema({"type": "string", "pattern": r"^(\d+d)?(\d+h)?(\d+m)?(\d+s)?$"})
]
"""A span of time such as `24h`, `1h30m` or `90s`."""


class SecretKey(Section):
    """A key of a Kubernetes Secret in the home cluster."""

    name: DnsLabel = Field(description="Name of the Secret.", examples=["slurm-license"])
    key: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,253}$")] = Field(
        description="Key inside the Secret.", examples=["token"]
    )
    namespace: DnsLabel | None = Field(
        default=None, description="Namespace of the Secret; default: the namespace of the run.", examples=["bringup"]
    )


class SecretRef(Section):
    """A reference to a secret: exactly one of a file, a key of a Kubernetes Secret, or an environment variable; never the secret
    itself.
    """

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
            raise problem("a reference has exactly one of file, secret and env", "keep one of file, secret and env")
        return self


_FLOATING_WORDS = frozenset({"latest", "head", "main", "master", "stable", "edge", "nightly"})


def is_floating(version: str) -> bool:
    """Return True if a version may mean different things at different times: `latest`, `HEAD`, `5.x.x`, `>=1`."""
    return version.lower() in _FLOATING_WORDS or bool(re.search(r"(^|\.)[xX*](\.|$)|[<>~^|, ]", version)) or not version


def is_address(text: str) -> bool:
    """Return True if a text is an IP address rather than a name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_ipv6(text: str) -> bool:
    """Return True if a text is an IPv6 address."""
    return is_address(text) and ipaddress.ip_address(text).version == 6


GitUrl = Annotated[
    str,
    StringConstraints(
        pattern=r"^https?://[^\s@{}]+$|^ssh://([A-Za-z0-9._][A-Za-z0-9._-]*@)?[^\s@/{}-][^\s@/{}]*/[^\s@{}]+$"
        r"|^[A-Za-z0-9._][A-Za-z0-9._-]*@[^\s@:/{}-][^\s@:/{}]*:[^\s@{}]+$",
        max_length=500,
    ),
]
"""A Git URL: https://HOST/PATH, ssh://USER@HOST/PATH or USER@HOST:PATH, without a password.

No part of the URL can be taken for a command option or for an Argo template.
"""

GitRef = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/+-]{0,199}$")]
PublicKey = Annotated[
    str,
    StringConstraints(pattern=r"^(ssh-ed25519|ecdsa-sha2-\S+|ssh-rsa|sk-\S+) [A-Za-z0-9+/=]+( [^\n]{0,200})?$", max_length=2000),
]
"""An SSH public key in the form of a line of authorized_keys without options."""


def over_ssh(url: str) -> bool:
    """Return True if a Git URL is reached by SSH, not by http or https."""
    return not url.startswith(("http://", "https://"))


def require_plain(key: str, url: str) -> None:
    """Raise a validation error for a URL with a query or fragment, which may hold a token.

    Validators of sections call this, because an error of the field itself would print the URL.
    """
    if {"?", "#"} & set(url):
        raise problem(
            f"{key} has a query or a fragment; a token in it would be written into every record",
            f"remove the part after ? or # in {key}, and give a token in credentials",
        )


def require_name(key: str, name: str, instead: str) -> None:
    """Raise a validation error for a branch or tag that Git does not accept; `instead` is a valid name for the fix."""
    if ".." in name or "//" in name or name.endswith(("/", ".", ".lock")):
        raise problem(f"{key} {name} is not a valid name in Git", f"write {key}: {instead}")


def require_fitting(key: str, url: str, *, credentials: bool, ca: bool, known_hosts: bool) -> None:
    """Raise a validation error for credentials that a Git URL has no use for, or would send unencrypted."""
    if credentials and url.startswith("http://"):
        raise problem("credentials would travel in the clear over http", f"write {key}: https://… or git@HOST:PATH")
    if ca and not url.startswith("https://"):
        raise problem("ca belongs to a repository reached by https", f"remove it, or write {key}: https://…")
    if known_hosts and not over_ssh(url):
        raise problem("known_hosts belongs to a repository reached by SSH", f"remove it, or write {key}: git@HOST:PATH")
