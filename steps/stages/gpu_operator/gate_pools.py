"""Finds what is expected of one node where host groups differ in product, number of GPUs or sharing."""

from typing import TypeVar

import msgspec

from steps.contract.verdict import FailureClass
from steps.stages.gpu_operator.contract import FunctionalExpectation, NodePool, NodesExpectation
from steps.stages.shared.finding import Finding, unknown

Want = TypeVar("Want", NodesExpectation, FunctionalExpectation)


def pool_of(want: NodesExpectation | FunctionalExpectation, node: str) -> NodePool | None:
    """Return the pool of a node; None if all nodes are expected alike, or if the plan knows no group of the node."""
    group = want.group_of.get(node)
    return next((pool for pool in want.pools if group in pool.groups), None)


def stranger(want: NodesExpectation | FunctionalExpectation, node: str) -> Finding | None:
    """Return a finding on a node whose pool is not known although groups differ: nothing tells what it should have."""
    if not want.pools or pool_of(want, node) is not None:
        return None
    seen = f"host group {want.group_of.get(node) or 'unknown'} is in no pool of GPU machines of the plan"
    return unknown(FailureClass.INPUT, seen, "a GPU group of the plan", "make the plan again from the spec, and run it")


def of_node(want: NodesExpectation, node: str) -> NodesExpectation:
    """Return the expectation with the values of a node's pool in its fields."""
    pool = pool_of(want, node)
    if pool is None:
        return want
    return msgspec.structs.replace(want, gpus=pool.gpus, others=pool.others, shapes=pool.shapes, products=pool.products)


def gpus(want: FunctionalExpectation, node: str) -> int:
    """Return the number of GPUs that a node must have."""
    pool = pool_of(want, node)
    return (pool or want).others.get(node, (pool or want).gpus)


def product(want: NodesExpectation | FunctionalExpectation, node: str) -> str:
    """Return the product that is expected of a node; empty if it is the same for all nodes."""
    pool = pool_of(want, node)
    return next(iter(pool.products), "") if pool else ""
