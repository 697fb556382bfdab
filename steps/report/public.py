"""The report without what only insiders may see: hosts, addresses, paths, places and people are replaced by neutral words."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from steps.report import identifiers, model

_KEPT = {"id", "stage", "gate", "status", "failure_class", "workflow", "engine", "plan", "decision", "inspect", "recover"}
"""Fields whose values are this program's own words."""
_ORDINARY = re.compile(r"(?:gpu|cpu|server|agent|node|worker|compute|login|storage|control|rack|leaf|k8s)s?", re.IGNORECASE)
"""Names of groups and places that say nothing about the site; replacing them would only make sentences wrong."""
_RUN = re.compile(r"(?<![A-Za-z0-9])[a-z0-9][a-z0-9-]*-\d{8}-\d{6}-[0-9a-f]{4}(?![A-Za-z0-9])")
"""How runs are named that nobody named: spec, date, time, four digits (also runs that this one reused)."""
_PLACE = re.compile(r"\b(rack|leaf|spine|switch|row|cage|unit)([ =:]+)(?=[\w.-]*\d)[\w-]+", re.IGNORECASE)
_LISTED_APPROVERS = re.compile(r"(?<=among the approvers) \([^)]*\)")


def public(report: model.Report) -> model.Report:
    """The same report for outsiders.

    Hosts become `node 1`… in fleet order, approvers `approver 1`…, cluster and runs `cluster` and `run`; racks, leaves and groups
    their kind. Diagnoses, attempts and release sources are dropped.
    """
    bare = msgspec.structs.replace(
        report,
        nodes=tuple(msgspec.structs.replace(node, rack="", group="", places=()) for node in report.nodes),
        troubles=tuple(msgspec.structs.replace(trouble, found=()) for trouble in report.troubles),
        releases=tuple(msgspec.structs.replace(release, source="", namespace="") for release in report.releases),
        owner="",
        target_uid="",
        cluster="cluster",
        run="run",
        attempts=(),
        overcome=(),
    )
    return msgspec.convert(_clean(msgspec.to_builtins(bare), _Names(report)), model.Report)


class _Names:
    """What this report's own names are replaced by."""

    def __init__(self, report: model.Report) -> None:
        self._words = _words(report)
        hosts = {name.lower() for node in report.nodes for name in (node.name, node.name.partition(".")[0])}
        self._hosts = re.compile(_any(hosts) + r"(?:\.[A-Za-z0-9-]*[A-Za-z][A-Za-z0-9-]*)*", re.IGNORECASE)
        self._others = re.compile(_any(set(self._words) - hosts), re.IGNORECASE)
        stems = {re.split(r"\d", host, maxsplit=1)[0] for host in hosts} - {""}
        ranged = "|".join(re.escape(stem) for stem in sorted(stems, key=len, reverse=True)) or "(?!)"
        self._ranges = re.compile(rf"(?<![A-Za-z0-9])(?:{ranged})[\w.-]*\[[\d,-]+\](?:[\w.-]*\w)?", re.IGNORECASE)

    def hide(self, text: str) -> str:
        """The text with every name of this report replaced, and then whatever else looks like a name from inside."""
        text = identifiers.urls(_LISTED_APPROVERS.sub("", text))
        text = self._others.sub(lambda match: self._words[match[0].lower()], _RUN.sub("run", text))
        text = self._ranges.sub("several nodes", text)
        text = self._hosts.sub(self._host, text)
        return identifiers.hide(_PLACE.sub(r"\1\2[place]", text))

    def _host(self, match: re.Match[str]) -> str:
        """The longest name that the match begins with: the rest is its domain."""
        found = match[0].lower()
        while found not in self._words:
            found = found.rpartition(".")[0]
        return self._words[found]


def _words(report: model.Report) -> dict[str, str]:
    """Name in lower case → neutral word; where one name has two meanings, the host wins, then the run and the people."""
    words: dict[str, str] = {}
    for number, node in enumerate(report.nodes, 1):
        words.setdefault(node.name.lower(), f"node {number}")
    for number, node in enumerate(report.nodes, 1):
        words.setdefault(node.name.partition(".")[0].lower(), f"node {number}")
    runs = (report.run, *(attempt.reused for attempt in report.attempts))
    words = {**dict.fromkeys((run.lower() for run in runs if run), "run"), **words}
    asked = dict.fromkeys(approval.approver for approval in report.approvals if approval.approver not in ("", "none"))
    for number, approver in enumerate(asked, 1):
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


def _any(names: Iterable[str]) -> str:
    """Any of the names, the longest first, not inside a longer word; `_` and `-` end a word (`etcd-gpu001`, `gpu001_x`)."""
    listed = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return rf"(?<![A-Za-z0-9])(?:{listed or '(?!)'})(?![A-Za-z0-9])"


def _clean(value: Any, names: _Names) -> Any:
    if isinstance(value, dict):
        return {key: item if key in _KEPT else _clean(item, names) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item, names) for item in value]
    return names.hide(value) if isinstance(value, str) else value
