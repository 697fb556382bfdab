"""The step image's Containerfile, read as its stages and instructions."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[3]


@dataclass
class Stage:
    """One FROM and what follows it: (instruction, rest of the line) in order."""

    base: str
    name: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        return [rest for instruction, rest in self.instructions if instruction == word]

    def pairs(self, word: str) -> dict[str, str]:
        """ENV or LABEL as a mapping."""
        return dict(pair.split("=", 1) for rest in self.all(word) for pair in shlex.split(rest))


def containerfile(path: Path) -> list[Stage]:
    """The stages, in order."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    stages: list[Stage] = []
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(Stage(base, name))
        else:
            stages[-1].instructions.append((word, rest.strip()))
    return stages


def step_stages() -> dict[str, Stage]:
    """Return the stages of the step image's Containerfile by name; the last stage, which has none, is `image`."""
    return {stage.name or "image": stage for stage in containerfile(ROOT / "images/step/Containerfile")}
