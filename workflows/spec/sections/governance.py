"""The sections about control of a run: quorum, approvals, overrides of the catalog, air gap."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, StringConstraints, WithJsonSchema, model_validator

from workflows.spec.fields import (
    Argument,
    ChartVersion,
    Digest,
    Duration,
    Listed,
    SecretRef,
    Section,
    Url,
    problem,
)
from workflows.stage_names import StageName

_SHARE = re.compile(r"(?:(all)|([1-9]\d{0,5})|([1-9]\d{0,5})/([1-9]\d{0,5})|(\d{1,3}(?:\.\d{1,2})?)%)\Z")


class Share(Section):
    """A number of nodes that must pass: `all`, a count `15`, a fraction `15/16`, or a percentage `93.75%`."""

    text: str = Field(description="The share as written.", examples=["15/16"])

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        text = str(data) if isinstance(data, int) and not isinstance(data, bool) else data
        match = _SHARE.match(text) if isinstance(text, str) else None
        if match is None or not cls._sensible(match):
            raise problem("not a quorum", "write all, a count as in 15, a fraction as in 15/16, or a percentage as in 95%")
        return {"text": text}

    @staticmethod
    def _sensible(match: re.Match[str]) -> bool:
        if match[3]:
            return int(match[3]) <= int(match[4])
        return not match[5] or 0 < float(match[5]) <= 100

    def needed(self, total: int) -> int:
        """Return how many of `total` nodes must pass. Fractions and percentages round up; a count is at most `total`."""
        match = _SHARE.match(self.text)
        if match is None or match[1]:
            return total
        if match[2]:
            return min(int(match[2]), total)
        if match[3]:
            return -(-total * int(match[3]) // int(match[4]))
        return math.ceil(round(total * float(match[5]) / 100, 6))


ShareField = Annotated[
    Share,
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": r"^(all|[0-9]+|[0-9]+/[0-9]+|[0-9.]+%)$"}]}
    ),
]


class Quorum(Section):
    """Number of nodes that must pass each stage. Nodes that fail are quarantined; servers must all pass in any case."""

    default: ShareField = Field(
        default=Share.model_validate("all"), description="Share of stages that are not named.", examples=["all", "95%"]
    )
    stages: Mapping[StageName, ShareField] = Field(
        default={}, description="Share by stage; default: none.", examples=[{"validation": "15/16"}]
    )

    def share(self, stage: StageName) -> Share:
        """Return the number of nodes that must pass a stage: the stage's own share, else the default."""
        return self.stages.get(stage, self.default)


class Approver(Section):
    """A person who may approve: a name, with an SSH public key if approvals must be signed."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9@._+-]{0,99}$")] = Field(
        description="Name or mail address.", examples=["ada@example.org"]
    )
    key: (
        Annotated[
            str,
            StringConstraints(
                pattern=r"^(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)|sk-ssh-ed25519@openssh\.com) [A-Za-z0-9+/=]{40,2000}$"
            ),
        ]
        | None
    ) = Field(
        default=None,
        description="SSH public key; default: approvals of this person are not signed.",
        examples=["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC0000000000000000000000000000000000000000000"],
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        if not isinstance(data, str):
            return data
        parts = data.split()
        if len(parts) == 1:
            return {"name": data}
        if len(parts) != 3:
            raise problem(
                "not an approver", "write a name, or a public key line with its comment: ssh-ed25519 AAAA… ada@example.org"
            )
        return {"name": parts[2], "key": " ".join(parts[:2])}


class Announce(Section):
    """Notification of approvers about a waiting approval: exactly one of a command and a webhook.

    The run itself calls a webhook, at least once: twice if a pod is lost after the call. A command runs on the machine of the user
    who follows the run, at most once.
    """

    command: Annotated[tuple[Argument, ...], Listed] = Field(
        default=(),
        description="Command and arguments without a shell. It runs on the machine of the user who follows the run, and not at "
        "all without one.",
        examples=[["/usr/local/bin/notify", "gpu-platform"]],
    )
    webhook: SecretRef | None = Field(
        default=None,
        description="URL of a webhook, by reference since such URLs are secrets. The run itself sends a POST, followed or not.",
    )
    ca: SecretRef | None = Field(
        default=None,
        description="CA certificates (PEM) of the webhook's server, if no public CA signed its certificate. The run trusts only "
        "these for the server.",
        examples=[{"file": "./chat_ca.pem"}],
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> "Announce":
        if bool(self.command) == (self.webhook is not None):
            raise problem("an announcement has exactly one of command and webhook", "keep one of command and webhook")
        if self.ca is not None and self.webhook is None:
            raise problem("ca belongs to a webhook, and there is none", "remove ca, or write webhook in place of command")
        return self


class ApprovalRequest(Section):
    """Approvers of a run, how long the run waits for one of them, and how they are notified."""

    approvers: Annotated[
        tuple[Approver, ...],
        Listed,
        Field(min_length=1),
        WithJsonSchema({"type": "array", "minItems": 1, "items": {"type": "string"}}),
    ] = Field(
        description="Persons who may approve: names, or SSH public key lines, which then must sign.", examples=[["ada@example.org"]]
    )
    timeout: Duration = Field(
        default="24h",
        validate_default=True,
        description="How long the run waits; after that it stops without approval.",
        examples=["24h"],
    )
    announce: Announce | None = Field(default=None, description="How approvers are notified; default: not at all.")

    @property
    def signed(self) -> bool:
        """True if every approver has a key; then an approval must be signed."""
        return all(approver.key for approver in self.approvers)

    @model_validator(mode="after")
    def _keys_for_all_or_none(self) -> "ApprovalRequest":
        keyed = [approver.key is not None for approver in self.approvers]
        if any(keyed) and not all(keyed):
            raise problem("some approvers have a key and some have none", "give every approver a key, or none")
        return self


class ApprovalPoint(ApprovalRequest):
    """An approval that a run waits for before stage `before`."""

    before: StageName = Field(description="Stage that waits for the approval.", examples=["validation"])


class Override(Section):
    """Settings of one component that differ from the catalog: chart version, repository, digest, Helm values."""

    version: ChartVersion | None = Field(
        default=None, description="Exact chart version; default: that of the catalog.", examples=["v26.3.3"]
    )
    repo: Url | None = Field(
        default=None, description="Chart repository; default: that of the catalog.", examples=["oci://registry.example.org/charts"]
    )
    digest: Digest | None = Field(
        default=None,
        description="Digest of the chart; default: that of the catalog, if it has one.",
        examples=["sha256:" + "0" * 64],
    )
    values: Mapping[str, Any] = Field(
        default={}, description="Helm values, merged over those of the catalog.", examples=[{"dcgm": {"enabled": True}}]
    )
