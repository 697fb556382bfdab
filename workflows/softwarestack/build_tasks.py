"""The builds of a stack as tasks of one Argo DAG: short names, one shared template, only the edges that are not implied by others.

The Kubernetes API refuses objects above 1.5 MiB, and a stack has thousands of builds, so each may take 200 bytes.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from workflows.softwarestack.build_schedule import BuildSchedule
from workflows.softwarestack.stack_plan import StackPlan

TEMPLATE: Final = "stack-build-package"
"""Name of the template that builds one package or a batch of them."""
PARAMETER: Final = "shard"
"""Name of its input parameter: the number of the batch."""
_SHORTEST_IN_NAMES: Final = 4


def tasks(plan: StackPlan) -> list[dict[str, Any]]:
    """Return the tasks of a plan's builds, one for each, in the order in which they should start, as they are rendered."""
    names, edges = task_names(plan), direct_needs(plan.schedule)
    rendered = list[dict[str, Any]]()
    for number, hash_ in enumerate(plan.schedule.by_priority):
        task: dict[str, Any] = {"name": names[hash_], "template": TEMPLATE}
        if edges[hash_]:
            task["dependencies"] = [names[needed] for needed in edges[hash_]]
        rendered.append(task | {"arguments": {"parameters": [{"name": PARAMETER, "value": str(number)}]}})
    return rendered


def rendered_bytes(plan: StackPlan) -> int:
    """Return the size of a plan's tasks as JSON without blanks, as the API server stores them; batches of builds take less."""
    return len(msgspec.json.encode(tasks(plan)))


def task_names(plan: StackPlan) -> dict[str, str]:
    """Return the names of tasks by hash: the package's name and as many characters of its hash as make the name unique.

    None begins with a digit: Argo's CRDs refuse that for tasks with dependencies.
    """
    length = _SHORTEST_IN_NAMES
    while True:
        names = {hash_: f"{_plain(build.node.name)}-{hash_[:length]}" for hash_, build in plan.builds.items()}
        if len(set(names.values())) == len(names):
            return names
        length *= 2


def direct_needs(schedule: BuildSchedule) -> Mapping[str, tuple[str, ...]]:
    """Return for each build the builds that it waits for, without those that another of them waits for anyway."""
    number = {hash_: place for place, hash_ in enumerate(schedule.seconds)}
    behind = dict[str, int]()  # bit sets: 10,000 builds take 12 MB, where sets of hashes would take gigabytes
    direct = dict[str, tuple[str, ...]]()
    for hash_ in schedule.seconds:
        implied = 0
        for needed in schedule.needs[hash_]:
            implied |= behind[needed]
        direct[hash_] = tuple(needed for needed in schedule.needs[hash_] if not implied >> number[needed] & 1)
        behind[hash_] = implied | sum(1 << number[needed] for needed in direct[hash_])
    return direct


def _plain(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9-]", "-", name)
    return f"p-{plain}" if plain[0].isdigit() else plain
