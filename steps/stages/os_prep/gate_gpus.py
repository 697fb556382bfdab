"""Judges the GPUs on a machine's PCI bus against the plan: their number and, as far as their device ids tell it, their product."""

from collections import Counter
from collections.abc import Iterator

from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass
from steps.stages.os_prep.contract import Facts, NodesExpectation, PlannedGpus
from steps.stages.shared.finding import Finding, fail

PRODUCTS = {
    "20b0": "A100-40GB",
    "20b2": "A100-80GB",
    "20b5": "A100-80GB-PCIe",
    "20f1": "A100-40GB-PCIe",
    "2330": "H100",
    "2331": "H100-PCIe",
    "2321": "H100-NVL",
    "2335": "H200",
    "233b": "H200-NVL",
    "2342": "GH200",
    "2901": "B200",
    "2941": "GB200",
    "3182": "B300",
    "26b5": "L40",
    "26b9": "L40S",
    "27b8": "L4",
    "1eb8": "T4",
}
"""PCI device id of NVIDIA → product, by the names of a spec where it has one (https://pci-ids.ucw.cz/read/PC/10de).

Products have further ids, so that an id which is missing here says nothing.
"""
NEAREST = {
    "A100-40GB-PCIe": "product: H100-NVL, pcie_generation: 4",
    "A100-80GB-PCIe": "product: H100-NVL, pcie_generation: 4",
    "H100-PCIe": "product: H100-NVL",
    "H200-NVL": "product: H100-NVL",
    "GH200": "product: GB200",
    "L40": "product: L40S",
    "L4": "product: L40S",
    "T4": "product: L40S, pcie_generation: 3",
}
"""Product that a spec cannot name → what a spec writes for it: the named product with equal links, and the differences.

With a label of its own the product is not compared, so that the next step can be followed.
"""


def findings(node: str, facts: Facts, want: NodesExpectation) -> Iterator[Finding]:
    """Yield a problem if the bus of a machine shows fewer GPUs than the plan counts on it, or GPUs of another product.

    MIG and shares change nothing on the bus, and a virtual machine sees the GPUs that were given to it. More GPUs than planned are
    no problem of the machine: stage gpu_operator compares what the node advertises.
    """
    plan = next((pool for pool in want.pools if want.group_of.get(node) in pool.groups), None)
    if plan is None:
        return
    planned = plan.others.get(node, plan.gpus)
    if facts.gpus < planned:
        seen = f"{count(facts.gpus, 'GPU') if facts.gpus else 'no GPU'} on the PCI bus"
        look = f"lspci -nn -d 10de: on {node}: reseat what is missing, or see its slot in the BIOS"
        step = f"{look}; or write gpus: {facts.gpus} for {node} in overrides of its group"
        yield fail(FailureClass.HARDWARE, seen, f"{planned} of class 0300 or 0302, as the spec plans", step)
    yield from _product(facts, plan)


def _product(facts: Facts, plan: PlannedGpus) -> Iterator[Finding]:
    others = Counter(device for device in facts.gpu_devices if plan.product and PRODUCTS.get(device, plan.product) != plan.product)
    if others:
        shown = ", ".join(f"{number} {PRODUCTS[device]} (10de:{device})" for device, number in sorted(others.items()))
        step = "correct accelerator.product, or give these machines a group with a product of its own"
        unnamed = [name for name in dict.fromkeys(PRODUCTS[device] for device in sorted(others)) if name in NEAREST]
        if unnamed:
            step += f"; no spec names {unnamed[0]}: write accelerator: {{{NEAREST[unnamed[0]]}, product_label: LABEL}} there"
            step += ", where LABEL is the name in nvidia-smi -L with dashes for blanks, and your own floors in validation"
        yield fail(FailureClass.INPUT, f"the PCI bus shows {shown}", f"{plan.product}, as the spec plans", step)
