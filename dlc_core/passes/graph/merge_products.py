"""merge_products: merge GEMMs, and convolutions, of one value with several constants into one.

Law: each result is the sum of the same products, in the order of the merged kernel.

    q = add(matmul(x, a), c)            qk = add(matmul(x, a|b), c|d)
    k = add(matmul(x, b), d)     =>     q, k = qk[:, :columns of a], qk[:, columns of a:]

The epilogues are merged too if they are equal: operations of one value, and of constants with one number or
one number for each column. Packed weights are merged like plain ones. Convolutions are merged along their
output channels if their windows, strides and paddings are equal.

Reading the results must cost nothing: the kernel that uses a slice reads it in place, and no kernel loses its
epilogue. The pass checks both by comparing the groupings before and after. The gain is fewer launches, and
work for all cores if one product alone is too small for that. The cost model decides; convolutions need a
predicted gain of `merging.convolution_gain`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import prod
from typing import ClassVar

import numpy as np

from dlc_core.decisions import Decision, unrecorded
from dlc_core.graph.node import Function, Node, attr_key, const_array, constant, post_order, rewrite
from dlc_core.op.declare import NDArray, OpDecl
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.grouping import Grouping, group_nodes
from dlc_core.passes.graph.node_kinds import POINTWISE
from dlc_core.passes.heuristics import MERGING
from dlc_core.support.record import record
from dlc_core.target.cost import Machine, Work
from dlc_core.target.description import Description

MATMUL, PACKED, CONV, SLICE = (OPS[name] for name in ("matmul", "packed_matmul", "conv", "slice"))
PRODUCT_OPS = (MATMUL, PACKED, CONV)
PRODUCTS = Decision(
    "products.merge",
    "Whether GEMMs, or convolutions, of one value with several constants become one with all constants.",
    ("merged", "separate"),
)


@record(frozen=True)
class _Chain:
    """A GEMM or convolution and its epilogue in its kernel, the root last."""

    steps: tuple[Node, ...]

    @property
    def axis(self) -> int:
        """The axis of the result along which products are merged, from the right."""
        return _axis(self.steps[0])

    @property
    def columns(self) -> int:
        return int(self.steps[0].shape[self.axis])

    @property
    def root(self) -> Node:
        return self.steps[-1]


@record(frozen=True)
class MergeProducts(GraphPass):
    """Merge GEMMs and convolutions of one value with several constants, if the target's cost model predicts
    no loss.
    """

    name: ClassVar[str] = "merge_products"
    min_level: ClassVar[int] = 2
    exact: ClassVar[bool] = False

    def run_function(self, function: Function, context: PassContext) -> Function:
        if context.target is None or not _has_candidates(function):
            return function
        with unrecorded():
            grouping = group_nodes(function)
        machine = context.target.describe()
        selected = [
            chains for chains in _mergeable(grouping) if _is_chosen([c.steps[0] for c in chains], machine)
        ]
        while selected:
            merged, slices = _merged(function, selected)
            with unrecorded():
                groups = group_nodes(merged).groups
            free = [all(s in groups and groups[s].root is not s for s in parts) for parts in slices]
            if all(free):
                return merged
            selected = [chains for chains, kept in zip(selected, free, strict=True) if kept]
        return function


def _is_chosen(products: Sequence[Node], machine: Description) -> bool:
    seconds = _seconds(products, machine)
    is_faster = _is_faster(products[0], seconds)

    def microseconds(alternative: str) -> float | None:
        return None if seconds is None else 1e6 * seconds[alternative]

    chosen = PRODUCTS.choose(
        "merged" if is_faster else "separate",
        where=[value.args[1].shape for value in products],
        cost=microseconds,
        unit="µs",
        spans=[span for value in products for span in value.spans],
    )
    return chosen == "merged"


def _is_faster(product: Node, seconds: Mapping[str, float] | None) -> bool:
    """Whether merging is predicted to be worth it. Convolutions need a gain: their windows are read again by
    each, but rows of the merged result are longer than those that its readers need.
    """
    if product.op is CONV:
        return seconds is not None and seconds["merged"] * MERGING.convolution_gain <= seconds["separate"]
    return seconds is None or seconds["merged"] <= seconds["separate"]


def _seconds(products: Sequence[Node], machine: Description) -> dict[str, float] | None:
    """Estimate the seconds of the merged product and of the separate ones; None for symbolic dims."""
    works = [work for value in products if (work := _work(value)) is not None]
    if len(works) < len(products):
        return None
    total = Work(*(sum(values) for values in zip(*map(_fields, works), strict=True)))
    limits, threads = Machine.of(machine), machine.workers
    # All weights are read between two runs of a kernel, so that they stay in a cache only if all fit.
    separate, merged = (
        [limits.estimate(work, threads=threads, resident=total.bytes or 0) for work in given]
        for given in (works, [total])
    )
    each = {"merged": merged, "separate": separate}
    return {name: sum(e.seconds for e in found if e) for name, found in each.items()}


def _work(value: Node) -> Work | None:
    """Return the work of a GEMM or convolution with constant weights; None for symbolic dims."""
    inner = value.args[1].shape[1:] if value.op is CONV else value.args[0].shape[-1:]
    dims = (*value.shape, *inner)
    if not all(isinstance(d, int) for d in dims):
        return None
    weights = sum(array.nbytes for arg in value.args[1:] if (array := const_array(arg)) is not None)
    steps = prod(dims)
    results = prod(value.shape) * value.dtype.itemsize
    return Work(2 * steps, steps, 0, weights + results, weights)


def _fields(work: Work) -> tuple[int, ...]:
    return tuple(v or 0 for v in (work.flops, work.steps, work.functions, work.bytes, work.constants))


def _is_product(value: Node) -> bool:
    if value.op in (PACKED, CONV) and any(const_array(arg) is None for arg in value.args[1:]):
        return False
    if value.op is CONV:
        return (value.attrs["groups"], value.attrs["layout"], value.attrs["kernel_layout"]) == (
            1,
            "NCX",
            "OIX",
        )
    if value.op is PACKED:
        return True
    if value.op is not MATMUL or value.attrs["transpose_a"] or value.attrs["transpose_b"]:
        return False
    weights = const_array(value.args[1])
    return weights is not None and weights.ndim == 2 and len(value.args[0].shape) >= 2


def _has_candidates(function: Function) -> bool:
    seen: set[Node] = set()
    for value in post_order(function.body):
        if value.op in PRODUCT_OPS and _is_product(value):
            if value.args[0] in seen:
                return True
            seen.add(value.args[0])
    return False


def _mergeable(grouping: Grouping) -> list[list[_Chain]]:
    """Return the groups of products of one value that can be merged with all of their kernels."""
    found: dict[Hashable, list[_Chain]] = {}
    for value in grouping.order:
        if value.op not in PRODUCT_OPS or not _is_product(value) or value not in grouping.groups:
            continue
        members = set(grouping.groups[value].members)
        axis = _axis(value)
        chain, keys = [value], [_merge_key(value, value.args[0], value.shape[axis], axis)]
        while chain[-1] is not grouping.groups[value].root:
            users = [m for m in members if chain[-1] in m.args]
            key = _merge_key(users[0], chain[-1], value.shape[axis], axis) if len(users) == 1 else None
            if key is None:
                break
            chain.append(users[0])
            keys.append(key)
        else:
            if len(chain) == len(members) and None not in keys:
                found.setdefault((value.args[0], *keys), []).append(_Chain(tuple(chain)))
    return [chains for chains in found.values() if len(chains) > 1]


def _axis(value: Node) -> int:
    """The axis of a product's columns, or of its output channels, from the right."""
    return 1 - len(value.shape) if value.op is CONV else -1


def _merge_key(value: Node, inside: Node, columns: object, axis: int) -> Hashable | None:
    """Return a key that two steps share if they can be merged; None if constants do not fit the columns."""
    if value.args.count(inside) != 1 or not isinstance(value.op, OpDecl):
        return None
    product = value.op in PRODUCT_OPS
    if not product and (value.op.kind not in POINTWISE or value.shape != inside.shape):
        return None
    parts: list[Hashable] = []
    for arg in value.args:
        array = const_array(arg)
        if arg is inside:
            parts.append("value")
        elif array is None:
            return None
        elif product:
            parts.append((arg.dtype, array.shape[1:] if value.op is CONV else array.shape[:-1]))
        elif array.size == 1 or (
            array.size == columns and array.ndim >= -axis and array.shape[axis] == columns
        ):
            parts.append((arg.dtype, array.ndim, array.tobytes() if array.size == 1 else None))
        else:
            return None
    if not product and len(value.args) > 1 and value.op.name not in ("add", "sub", "mul", "div"):
        return None
    return (value.op, tuple((k, attr_key(v)) for k, v in value.attrs.items()), tuple(parts))


def _merged(function: Function, selected: Sequence[Sequence[_Chain]]) -> tuple[Function, list[list[Node]]]:
    """Merge these GEMMs, and return the function with the slices that replace each."""
    owner = {chain.root: (number, chains) for number, chains in enumerate(selected) for chain in chains}
    made: dict[int, Node] = {}
    slices: list[list[Node]] = [[] for _ in selected]
    built: dict[Node, Node] = {}

    def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
        found = owner.get(old)
        if found is None:
            return None
        number, chains = found
        if number not in made:
            made[number] = _merged_chain(chains, built[chains[0].steps[0].args[0]])
        begin = 0
        for chain in chains:
            if chain.root is old:
                break
            begin += chain.columns
        end, axis = begin + chain.columns, len(old.shape) + chain.axis
        made[number].add_spans(tuple(s for step in chain.steps for s in step.spans))
        part = SLICE.build(made[number], begins=(begin,), ends=(end,), axes=(axis,))
        slices[number].append(part)
        return part

    return function.with_body(rewrite(function.body, visit, built)), slices


def _merged_chain(chains: Sequence[_Chain], x: Node) -> Node:
    value, before = x, chains[0].steps[0].args[0]
    for steps in zip(*(chain.steps for chain in chains), strict=True):
        first = steps[0]
        args = [
            value if arg is before else _joined([step.args[i] for step in steps], chains, first.op is CONV)
            for i, arg in enumerate(first.args)
        ]
        assert isinstance(first.op, OpDecl)
        value, before = first.op.build(*args, **first.attrs), first
    return value


def _joined(constants: Sequence[Node], chains: Sequence[_Chain], kernels: bool) -> Node:
    """Concatenate constants; a scalar that all chains share stays a scalar. Those of convolutions have their
    output channels first.
    """
    arrays: list[NDArray] = [array for c in constants if (array := const_array(c)) is not None]
    if all(array.size == 1 for array in arrays) and any(chain.columns != 1 for chain in chains):
        return constants[0]
    return constant(np.concatenate(arrays, axis=0 if kernels else chains[0].axis))


__all__ = ["MergeProducts"]
