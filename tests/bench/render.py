"""Planning and rendering 10 and 10,000 nodes: time, size, and that the manifests are the same but for ids."""

import re
import time

from figures import Figures

from workflows import bringup, examples
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.render.bundle import Bundle, render, to_yaml
from workflows.spec import load

LIMIT_RENDER, LIMIT_SIZE = 0.5, 1 << 20


def plan_of(nodes: int) -> Plan:
    """The default example with another number of GPU nodes."""
    text = examples.path("h200-16").read_text().replace("gpu[001-016]", f"gpu[00001-{nodes:05d}]")
    text = text.replace('{pattern: "10.10.1.{1}"}', "{start: 10.64.0.1}").replace("15/16", "90%")
    return compile_plan(load(text.replace("  cni: canal", "  cni: canal\n  cluster_cidr: 100.64.0.0/10")))


def neutral(bundle: Bundle) -> str:
    """Template and workflow without the plan's digest."""
    return re.sub(r"(sha256:)?[0-9a-f]{64}|(?<=-)[0-9a-f]{12}\b", "ID", to_yaml(bundle.template, bundle.workflow))


def main() -> None:
    """Measure."""
    figures = Figures("render")
    small = render(plan_of(10), bringup.build)
    began = time.perf_counter()
    large_plan = plan_of(10_000)
    figures.note("load and plan, 10,000 nodes", f"{time.perf_counter() - began:.3f} s")
    times = []
    for _ in range(3):
        began = time.perf_counter()
        large = render(large_plan, bringup.build)
        times.append(time.perf_counter() - began)
    figures.at_most("render, 10,000 nodes (best of 3)", min(times), LIMIT_RENDER, "s")
    figures.at_least("manifests of 10 and 10,000 nodes equal but for ids", float(neutral(small) == neutral(large)), 1, "")
    fleet = len(to_yaml(large.config_maps[1]))
    figures.at_most("fleet ConfigMap, 10,000 nodes", fleet / 1024, LIMIT_SIZE / 1024, "KiB")
    figures.note("WorkflowTemplate", f"{len(to_yaml(large.template)) / 1024:.1f} KiB")
    figures.exit()


if __name__ == "__main__":
    main()
