"""A stand-in for Helm on the templates of a wrapper chart: ConfigMaps of the chart's files, as `.Files.Glob` and AsConfig make."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import yaml

from workflows.rehearsal.simulator.charts.chart_installers import ChartError

_FILES = re.compile(r'^\{\{ \(\.Files\.Glob "([^"]+)"\)\.AsConfig \| indent ([0-9]+) \}\}$', re.MULTILINE)
_RELEASE = re.compile(r"\{\{ \.Release\.Name \}\}")


def config_maps(files: Mapping[str, str], release: str, namespace: str) -> Iterator[dict[str, Any]]:
    """Yield the ConfigMaps of a chart's templates. `files` are the chart's files by path within it.

    Raises ChartError for a template that uses anything else, and for a pattern without files, which Helm renders as no data at all.
    """
    for path, text in files.items():
        if path.startswith("templates/"):
            rendered = _FILES.sub(lambda match: _as_config(files, match[1], int(match[2])), _RELEASE.sub(release, text))
            if "{{" in _FILES.sub("", _RELEASE.sub("", text)):
                raise ChartError(f"{path}: this template is not played here")
            config_map = yaml.safe_load(rendered)
            yield config_map | {"metadata": config_map["metadata"] | {"namespace": namespace}}


def _as_config(files: Mapping[str, str], pattern: str, indent: int) -> str:
    # `*` stays within its folder, as in Helm
    matched = {
        PurePosixPath(path).name: text
        for path, text in files.items()
        if fnmatch.fnmatchcase(path, pattern) and path.count("/") == pattern.count("/")
    }
    if not matched:
        raise ChartError(f'.Files.Glob "{pattern}" matches no file')
    # the text after the first line of `data:` may be any YAML; quoted scalars keep every byte
    lines = yaml.safe_dump(matched, default_style='"', width=10**9, allow_unicode=True).splitlines()
    return "\n".join(" " * indent + line for line in lines)
