"""Conformance cases of partitioners' patterns that consist of several operations.

The samples of ops are single operations, so they never match such a pattern. An instance of a pattern begins
with samples of its innermost op. Other operands of the ops above it are constants or inputs whose shapes
broadcast to the result below: one number for each channel, for each last index, for all, or for each element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from dlc_core.diag import DlcError
from dlc_core.graph.node import PARAM, Node, constant, param, post_order
from dlc_core.ir.types import TensorType, tensor_type
from dlc_core.op.declare import NDArray, OpDecl
from dlc_core.op.reference import evaluate
from dlc_core.op.samples import make_inputs, sample_dtypes
from dlc_core.plugin.registry import registry
from dlc_core.rewrite.pattern import NumberPattern, OpPattern, Pattern, VarPattern, match
from dlc_core.target import Target
from dlc_core.target.partitioner import Partitioner, RegionPattern
from dlc_core.testing.capability import taken
from dlc_core.testing.cases import Case, Tolerance, Trial, module_of, outputs_of

TOLERANCES: dict[str, Tolerance] = {
    "float32": (2e-4, 2e-5),
    "float64": (1e-11, 1e-12),
    "float16": (1e-2, 1e-2),
    "bfloat16": (4e-2, 4e-2),
}
"""(rtol, atol) of some operations on values of magnitude one."""

INSTANCES = 3
"""The maximum number of instances of a pattern that are tested."""

TRIED = 120
"""The maximum number of instances that are built to find some that the target takes."""


def patterns_of(target: Target) -> list[tuple[Partitioner, RegionPattern]]:
    """The patterns of a target's partitioners that have several operations."""
    known = registry().partitioners.values()
    own = [each for each in known if each.target == target.kind.name and each.replacement is None]
    return [(each, one) for each in own for one in each.patterns if _inner(one.pattern)]


def pattern_cases(partitioner: Partitioner, pattern: RegionPattern, target: Target) -> list[Case]:
    """Instances of a pattern that the target takes as a whole; empty if none is found."""
    found: list[Case] = []
    for built in islice(_instances(pattern.pattern), TRIED):
        if match(pattern.pattern, built.root) is None:
            continue
        params = [n for n in post_order(built.root) if n.op is PARAM]
        module = module_of(built.root, params)
        where = taken(module, target)
        if where is None or where.on < where.nodes or not where.nodes:
            continue
        with np.errstate(all="ignore"):
            expected = outputs_of(evaluate(built.root, built.feeds))
        name = f"ops/{partitioner.name}.{pattern.name}/{len(found)}/{built.root.tensor_type.dtype.name}"
        inputs = [built.feeds[p] for p in params]
        found.append(Case(name, module, [Trial(inputs, expected)], TOLERANCES))
        if len(found) == INSTANCES:
            break
    return found


class _Built:
    """A node that matches a pattern, and the arrays of its params."""

    def __init__(self, root: Node, feeds: dict[Node, NDArray]) -> None:
        self.root = root
        self.feeds = feeds


def _inner(pattern: Pattern) -> list[OpPattern]:
    """The operations that are arguments of a pattern's root."""
    args = pattern.args or () if isinstance(pattern, OpPattern) else ()
    return [each for each in args if isinstance(each, OpPattern)]


def _instances(pattern: Pattern) -> Iterator[_Built]:
    """Instances of a pattern of operations."""
    if not isinstance(pattern, OpPattern):
        return
    for op in pattern.ops:
        if isinstance(op, OpDecl):
            yield from _with_operands(op, pattern) if _inner(pattern) else _samples(op, pattern)


def _samples(op: OpDecl, pattern: OpPattern) -> Iterator[_Built]:
    """Samples of an op as instances of a pattern without further operations."""
    for sample in op.samples:
        if pattern.args is not None and len(pattern.args) != len(sample.inputs):
            continue
        kinds = pattern.args or [VarPattern(f"x{i}", i > 0) for i in range(len(sample.inputs))]
        for dtype in sample_dtypes(op, sample):
            feeds: dict[Node, NDArray] = {}
            arrays = make_inputs(sample, dtype)
            args = [_operand(kind, array, feeds) for kind, array in zip(kinds, arrays, strict=True)]
            yield from _built(op, args, {**sample.attrs, **_fixed(pattern)}, feeds)


def _with_operands(op: OpDecl, pattern: OpPattern) -> Iterator[_Built]:
    """An op above an instance of its first operation, with other operands that broadcast to it."""
    assert pattern.args is not None
    position = next(i for i, each in enumerate(pattern.args) if isinstance(each, OpPattern))
    if len(_inner(pattern)) > 1:
        return
    for inner in _instances(pattern.args[position]):
        if not isinstance(inner.root.type, TensorType):
            continue
        for shape in _shapes(inner.root) if len(pattern.args) > 1 else [()]:
            feeds = dict(inner.feeds)
            dtype = inner.root.tensor_type.dtype.numpy
            array = np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)
            args = [
                inner.root if i == position else _operand(each, array, feeds)
                for i, each in enumerate(pattern.args)
            ]
            yield from _built(op, args, _fixed(pattern), feeds)


def _shapes(value: Node) -> list[tuple[int, ...]]:
    """Shapes that broadcast to a value: of its channels, its last axis, one element, all elements."""
    shape = value.tensor_type.static_shape() or ()
    channels = [(shape[1], *(1 for _ in shape[2:]))] if len(shape) > 2 else []
    batched = [(1, *each) for each in channels]
    return list(dict.fromkeys([*batched, *channels, shape[-1:], (), shape]))


def _operand(pattern: Pattern, array: NDArray, feeds: dict[Node, NDArray]) -> Node:
    if isinstance(pattern, NumberPattern):
        return constant(np.full(array.shape, pattern.value, array.dtype))
    if isinstance(pattern, VarPattern) and pattern.constant:
        return constant(array)
    made = param(f"x{len(feeds)}", tensor_type(array.shape, array.dtype))
    feeds[made] = array
    return made


def _fixed(pattern: OpPattern) -> dict[str, object]:
    """The attributes that a pattern gives as values."""
    plain = (str, int, float, bool, tuple)
    return {name: value for name, value in pattern.attrs.items() if isinstance(value, plain)}


def _built(
    op: OpDecl, args: Sequence[Node], attrs: dict[str, object], feeds: dict[Node, NDArray]
) -> Iterator[_Built]:
    """The node, if its types fit."""
    try:
        yield _Built(op.build(*args, **attrs), feeds)
    except DlcError:
        return


__all__ = ["pattern_cases", "patterns_of"]
