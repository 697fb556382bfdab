"""Makes a report for outsiders: hosts, addresses, paths, places and people are replaced by neutral words."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from steps.contract.runs import approval
from steps.report import identifiers, model

_VERDICT = {"id", "stage", "aside_in", "gate", "status", "failure_class", "inspect", "recover"}
_KEPT = _VERDICT | {"workflow", "engine", "plan", "decision", "approved", "counted"}
"""Fields of a report that hold bringup's own words only, so nothing in them is replaced."""
_BY_NODE = "values"
"""Field of a measurement whose keys are names of nodes."""
_ORDINARY = re.compile(r"(?:gpu|cpu|server|agent|node|worker|compute|login|storage|control|rack|leaf|k8s)s?", re.IGNORECASE)
"""Names of groups and places that say nothing about the site. Replacing them would only garble sentences."""
_RUN = re.compile(r"(?<![A-Za-z0-9])[a-z0-9][a-z0-9-]*-\d{8}-\d{6}-[0-9a-f]{4}(?![A-Za-z0-9])")
"""Automatic name of a run: spec, date, time, four digits; also matches runs that this one reused."""
_PLACE = re.compile(r"\b(rack|leaf|spine|switch|row|cage|unit)([ =:]+)(?=[\w.-]*\d)[\w-]+", re.IGNORECASE)
_TOKEN = re.compile(r"[\w.@+-]*")
_DOMAIN = re.compile(r"\A(?:\.[A-Za-z0-9-]*[A-Za-z][A-Za-z0-9-]*)+")
_NO_PERSON = {"", approval.NOBODY, approval.REHEARSAL}
_CANCELLED = re.compile(r"\bcancelled by \S+ \(")
_LISTED_APPROVERS = re.compile(r"(?<=among the approvers) \([^)]*\)")


def public(report: model.Report) -> model.Report:
    """Return a copy of the report in which outsiders cannot recognise the site.

    Hosts become `node 1`… in fleet order, approvers `approver 1`…, cluster and runs `cluster` and `run`; racks, leaves and groups
    become their kind. Notes, hosts of an operation, diagnoses, attempts, release sources and Git revisions are dropped.
    """
    bare = msgspec.structs.replace(
        report,
        nodes=tuple(msgspec.structs.replace(node, rack="", group="", places=()) for node in report.nodes),
        stages=tuple(msgspec.structs.replace(stage, notes=()) for stage in report.stages),
        operation=report.operation.partition(" ")[0],
        troubles=tuple(msgspec.structs.replace(trouble, found=()) for trouble in report.troubles),
        releases=tuple(msgspec.structs.replace(release, source="", namespace="") for release in report.releases),
        owner="",
        target_uid="",
        cluster="cluster",
        run="run",
        attempts=(),
        overcome=(),
        revisions=(),
        source=None,
        cancelled=None,
        image=None,
        stack=None,
    )
    return msgspec.convert(_clean(msgspec.to_builtins(bare), _Names(report)), model.Report)


class _Names:
    """Replaces the names of hosts, people and places of one report in any text.

    Names are found by their first letters (few stems, even for 10,000 hosts) and then looked up, the longest first, not inside a
    longer word. `_` and `-` end a word (`etcd-gpu001`, `gpu001_x`). The domain behind a host name is replaced with it.
    """

    def __init__(self, report: model.Report) -> None:
        self._words = _words(report)
        self._hosts = {name for node in report.nodes for name in _host_names(node.name)}
        plain = {name for name in self._words if _TOKEN.fullmatch(name)}
        stems = _any(re.split(r"\d", name, maxsplit=1)[0] for name in plain)
        self._tokens = re.compile(rf"(?<![A-Za-z0-9])(?=[A-Za-z0-9])(?:{stems}){_TOKEN.pattern}", re.I)
        self._phrases = re.compile(rf"(?<![A-Za-z0-9])(?:{_any(set(self._words) - plain)})(?![A-Za-z0-9])", re.I)
        self._ranges = re.compile(rf"(?<![A-Za-z0-9])(?=[A-Za-z0-9])(?:{stems})[\w.-]*\[[\d,-]+\](?:[\w.-]*\w)?", re.I)

    def hide(self, text: str) -> str:
        """Return the text with every name of this report replaced, and then everything else that looks like an identifier."""
        text = identifiers.urls(_CANCELLED.sub("cancelled by an operator (", _LISTED_APPROVERS.sub("", text)))
        text = self._phrases.sub(lambda match: self._words[match[0].lower()], _RUN.sub("run", text))
        text = self._tokens.sub(self._token, self._ranges.sub("several nodes", text))
        return identifiers.hide(_PLACE.sub(r"\1\2[place]", text))

    def _token(self, match: re.Match[str]) -> str:
        text = match[0]
        # the longest name first: `gpu001-ib0` may be a host of its own
        ends = [end for end in range(len(text), 0, -1) if end == len(text) or not text[end].isalnum()]
        for end in ends:
            name = text[:end].lower()
            if name in self._words:
                rest = _DOMAIN.sub("", text[end:]) if name in self._hosts else text[end:]
                return self._words[name] + self._tokens.sub(self._token, rest)
        return text[: ends[-1]] + self._tokens.sub(self._token, text[ends[-1] :])


def _host_names(name: str) -> tuple[str, str]:
    """Return a host's name and its first label, which Slurm and log lines use."""
    return name.lower(), name.lower().partition(".")[0]


def _words(report: model.Report) -> dict[str, str]:
    """Return name in lower case → neutral word, for all names in a report.

    If one name has two meanings, the host wins, then the run and the people.
    """
    hosts = {_host_names(node.name)[0]: f"node {number}" for number, node in enumerate(report.nodes, 1)}
    short = {_host_names(node.name)[1]: f"node {number}" for number, node in enumerate(report.nodes, 1)}
    runs = (report.run, *(attempt.reused for attempt in report.attempts))
    # later entries win: full host names over short ones over runs
    words = {**dict.fromkeys((run.lower() for run in runs if run), "run"), **short, **hosts}
    approvers = dict.fromkeys(answer.approver for answer in report.approvals if answer.approver not in _NO_PERSON)
    for number, approver in enumerate(approvers, 1):
        words.setdefault(approver.lower(), f"approver {number}")
    for kind, names in (
        ("cluster", [report.cluster]),
        ("owner", [report.owner]),
        ("[rack]", [node.rack for node in report.nodes]),
        ("[place]", [place for node in report.nodes for place in node.places]),
        ("[group]", [node.group for node in report.nodes]),
    ):
        for name in names:
            if len(name) > 1 and not name.isdigit() and not _ORDINARY.fullmatch(name):
                words.setdefault(name.lower(), kind)
    return words


def _any(texts: Iterable[str]) -> str:
    """Return a pattern that matches any of the texts, the longest first; without texts, one that matches nothing."""
    return "|".join(re.escape(text) for text in sorted(set(texts), key=len, reverse=True)) or "(?!)"


def _clean_field(key: str, value: Any, names: _Names) -> Any:
    if key in _KEPT:
        return value
    if key == _BY_NODE and isinstance(value, dict):
        return {names.hide(node): row for node, row in value.items()}
    return _clean(value, names)


def _clean(value: Any, names: _Names) -> Any:
    if isinstance(value, dict):
        return {key: _clean_field(key, item, names) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item, names) for item in value]
    return names.hide(value) if isinstance(value, str) else value
