"""Software stacks: makespan of 450 builds and of their batches beside its bound, tier barriers and one after another.

The stack of 450 builds has the shape of a published case study, 3 compilers × 3 MPIs × about 50 packages, with estimated durations.
Then its rendered Workflow on the embedded engine, with stand-ins for its builds, and the plan and batches of 10,000 packages.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from figures import Figures

from tests.unit import graph_plans, simulated_builds, stand_in_builds
from tests.unit.softwarestack.matrix_locks import matrix
from workflows.engines.local.local_engine import LocalEngine
from workflows.render.bundle import Bundle, render
from workflows.softwarestack import build_batches, build_tasks, spack_lock, stack_plan
from workflows.softwarestack.stack_plan import StackPlan
from workflows.stages.stage import GraphTask

ROOT = Path(__file__).parents[2]
RATIO, PLAN_S, PLAN_MIB, BUILD_BYTES = 1.05, 2.0, 300.0, 200.0
EVENT_MS, STEP_MS = 5.0, 30.0
SLOTS = (4, 16, 64)
EMBEDDED_SLOTS = 8
SCALE = 100


def makespans(figures: Figures) -> None:
    """Print the makespans of the stack of 450 builds."""
    plan = stack_plan.plan(spack_lock.parse(matrix(3, 1).text().encode(), "synthetic"))
    schedule = plan.schedule
    figures.note("builds, one after another", f"{len(plan.builds)} builds, {schedule.serial / 3600:.1f} h")
    for slots in SLOTS:
        makespan, barriers = schedule.makespan(slots), schedule.tier_barriers(slots)
        figures.at_most(f"{slots} slots, makespan / bound", makespan / schedule.bound(slots), RATIO, "")
        figures.note(f"{slots} slots", f"{makespan / 3600:.2f} h, with tier barriers {barriers / 3600:.2f} h")
        batched(figures, plan, slots)
    figures.at_most("one task a build, rendered, each build", build_tasks.rendered_bytes(plan) / len(plan.builds), BUILD_BYTES, "B")


def batched(figures: Figures, plan: StackPlan, slots: int, name: str = "") -> Bundle:
    """Print makespan and size of a plan's batches, and return them rendered."""
    before = time.process_time()
    made, names = build_batches.batches(plan.schedule, slots), build_tasks.task_names(plan)
    spent = time.process_time() - before
    ratio = made.makespan(slots) / plan.schedule.bound(slots)
    figures.at_most(f"{name}{slots} slots, makespan of batches / bound", ratio, RATIO, "")
    graph = [
        GraphTask(name=names[key], shard=number, after=tuple(names[needed] for needed in made.direct[key]), group=made.group[key])
        for number, key in enumerate(made.order)
    ]
    bundle = render(graph_plans.plan(graph, slots), graph_plans.build)
    groups = len(set(made.group.values()))
    figures.note(f"{name}{slots} slots, batches", f"{len(made.packages)} in {groups} DAGs of builds, made in {spent:.2f} s of CPU")
    size = len(json.dumps(bundle.template, separators=(",", ":"))) / len(plan.builds)
    figures.at_most(f"{name}{slots} slots, rendered, each build", size, BUILD_BYTES, "B")
    # scaled, so that no build reaches the deadline of its task
    seconds = {number: made.seconds[key] / SCALE for number, key in enumerate(made.order)}
    course = simulated_builds.simulate(bundle, seconds)
    assert course.state.phase == "Succeeded"
    assert len(course.started) == len(graph)
    ratio = course.clock * SCALE / plan.schedule.bound(slots)
    figures.at_most(f"{name}{slots} slots, embedded engine, simulated", ratio, RATIO, "")
    return bundle


def embedded(figures: Figures) -> None:
    """Print what the embedded engine adds to each build of the stack of 450: stand-ins for builds that end at once."""
    plan = stack_plan.plan(spack_lock.parse(matrix(3, 1).text().encode(), "synthetic"))
    bundle = batched(figures, plan, EMBEDDED_SLOTS, "embedded, ")
    tasks = sum(len(entry["dag"]["tasks"]) for entry in bundle.template["spec"]["templates"] if "-graph" in entry["name"])
    machine = simulated_builds.simulate(bundle, {}).event_seconds
    p95 = statistics.quantiles(machine, n=20)[-1]
    figures.at_most("embedded engine, its machine, an event, CPU, p95", p95 * 1000, EVENT_MS, "ms")
    with tempfile.TemporaryDirectory() as folder:
        python = stand_in_builds.program(Path(folder))
        alone = stand_in_builds.seconds_alone(python, tasks)
        manifest = {**bundle.workflow, "metadata": {**bundle.workflow["metadata"], "name": "wf"}}
        environment = {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
        templates = {bundle.template["metadata"]["name"]: bundle.template}
        before = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        began = time.monotonic()
        result = LocalEngine(Path(folder, "run"), manifest, templates, environment, parallelism=EMBEDDED_SLOTS).run()
        lasted, spent = time.monotonic() - began, sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) - before
    assert result.state.phase == "Succeeded"
    figures.at_most("embedded engine, each build, CPU", spent / tasks * 1000, STEP_MS, "ms")
    figures.note("embedded engine, whole run", f"{tasks} tasks in {lasted:.1f} s, their stand-ins alone {alone:.1f} s")


def large_plan(figures: Figures) -> None:
    """Print time and memory of `bringup stack plan` for 10,000 packages, in a process of its own."""
    lock = matrix(5, 13)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "spack.lock")
        file.write_text(lock.text())
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "workflows", "stack", "plan", str(file), "-o", "json"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        figures.note("large lock", f"{len(lock.specs)} packages, {file.stat().st_size >> 20} MiB")
    plan = json.loads(done.stdout)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    figures.at_most("plan of the large lock, CPU", cpu, PLAN_S, "s")
    figures.at_most("plan of the large lock, memory", after.ru_maxrss / 1024, PLAN_MIB, "MiB")
    figures.at_most("large lock, one task a build, each build", plan["rendered_bytes"] / plan["builds"], BUILD_BYTES, "B")
    large = stack_plan.plan(spack_lock.parse(lock.text().encode(), "synthetic"))
    for slots in SLOTS:
        batched(figures, large, slots, "large lock, ")


def main() -> None:
    """Measure."""
    figures = Figures("stacks")
    makespans(figures)
    embedded(figures)
    large_plan(figures)
    figures.exit()


if __name__ == "__main__":
    main()
