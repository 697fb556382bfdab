"""The report without what only insiders may see: hosts, addresses, paths and topology are replaced by neutral words."""

import re
from typing import Any

import msgspec

from steps.report import model

_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?\b|\b(?:[0-9A-Fa-f]{1,4}:){3,7}[0-9A-Fa-f]{0,4}\b")
_PATH = re.compile(r"(?<![\w.:/])/(?:[\w.@+-]+/)+[\w.@+-]*|(?<![\w.:/])/(?:etc|var|root|home|run|tmp|usr|opt)\b[\w./@+-]*")
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s\"'<>]+")


def public(report: model.Report) -> model.Report:
    """The same report for outsiders. Host names become `node 1`…, in fleet order; diagnoses and release sources are dropped."""
    names = {node.name: f"node {number}" for number, node in enumerate(report.nodes, 1)}
    nodes = tuple(msgspec.structs.replace(node, rack="", group="") for node in report.nodes)
    troubles = tuple(msgspec.structs.replace(trouble, found=()) for trouble in report.troubles)
    releases = tuple(msgspec.structs.replace(release, source="", namespace="") for release in report.releases)
    bare = msgspec.structs.replace(
        report,
        nodes=nodes,
        troubles=troubles,
        releases=releases,
        owner="",
        target_uid="",
        cluster="cluster",
        run="run",
        attempts=(),
    )
    return msgspec.convert(_clean(msgspec.to_builtins(bare), _pattern(names), names), model.Report)


def _pattern(names: dict[str, str]) -> re.Pattern[str]:
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile("|".join(rf"(?<![\w-]){re.escape(name)}(?![\w])" for name in longest_first) or r"(?!)")


def _clean(value: Any, hosts: re.Pattern[str], names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {_text(key, hosts, names): _clean(item, hosts, names) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item, hosts, names) for item in value]
    return _text(value, hosts, names) if isinstance(value, str) else value


def _text(text: str, hosts: re.Pattern[str], names: dict[str, str]) -> str:
    text = _URL.sub("[url]", text)
    text = hosts.sub(lambda match: names[match[0]], text)
    return _PATH.sub("[path]", _ADDRESS.sub("[address]", text))
