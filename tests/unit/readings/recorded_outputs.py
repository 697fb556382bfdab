"""Recorded outputs of tools with the readings that a person took from them."""

import functools
import os
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from steps.readings import recognition, site_values
from steps.readings.site_values import SiteValues
from steps.readings.tool_reading import ToolReading

DATA = Path(os.environ.get("BRINGUP_TEST_DATA") or Path(__file__).parents[4] / "shared") / "samples"
FOLDERS = ("nccl", "mpi", "gpu_host", "slurm", "k8s", "rke2", "spack")


class Recorded(NamedTuple):
    """A recorded output: what a site would state, and the reading that a person took from it."""

    path: Path
    stated: dict[str, Any]
    expected: dict[str, Any]

    @property
    def text(self) -> str:
        """The output as it was recorded."""
        with self.path.open(encoding="utf-8", errors="replace", newline="") as file:
            return file.read()

    @property
    def site(self) -> SiteValues:
        """The values that the command takes as `--expect KEY=VALUE`."""
        return site_values.parse(tuple(f"{key}={_word(value)}" for key, value in self.stated.items()))

    def read(self, text: str | None = None) -> ToolReading:
        """Read the output, or a disturbed copy of it, in parts as from a file."""
        whole = self.text if text is None else text
        return recognition.reading_of((whole[at : at + 65_536] for at in range(0, len(whole), 65_536)), self.site)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


@functools.cache
def spack_commands() -> tuple[Recorded, ...]:
    """Outputs of commands of a real Spack, whose list also has commands that print nothing, and files that are no output."""
    folder = DATA / "spack/real_0.23"
    cases = yaml.safe_load((folder / "INDEX.yaml").read_text())["cases"] if folder.is_dir() else ()
    return tuple(Recorded(folder / case["file"], case.get("given") or {}, case["expected"]) for case in cases)


@functools.cache
def all_recorded() -> tuple[Recorded, ...]:
    """Every listed output; empty where the recordings are not there."""
    outputs: list[Recorded] = []
    for folder in FOLDERS if DATA.is_dir() else ():
        index = yaml.safe_load((DATA / folder / "INDEX.yaml").read_text())
        cases = (*index["cases"], *index.get("cases_awaiting_a_reader", ()))
        outputs += [Recorded(DATA / folder / case["file"], case["given"] or {}, case["expected"]) for case in cases]
    return tuple(outputs)
