"""Tests of rules by evaluation: both sides on values where floating-point identities break.

`check_rule(rule)` is the complete test of a rule. Plugins use it for their rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dlc_core.diag import UsageError, VerifyError
from dlc_core.graph.node import PARAM, Node, constant, param, post_order
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.types import TensorType, tensor_type
from dlc_core.op.declare import ALL, OpDecl
from dlc_core.rewrite.pattern import AttrVar, NumberPattern, OpPattern, Pattern, VarPattern
from dlc_core.rewrite.rule import Example, Rule
from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    from dlc_core.op import reference
else:
    reference = lazy("dlc_core.op.reference")

NDArray = np.ndarray[Any, Any]
SHAPE = (4, 24)
SEEDS = (0, 1, 2)
TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 8e-2}


def special_values(type_: DType) -> NDArray:
    """Values for which identities often fail: zeros of both signs, infinities, NaN, denormals, extremes."""
    if type_.is_bool:
        return np.array([False, True])
    if type_.is_int:
        low, high = type_.int_range()
        return np.array([low, low + 1, max(low, -1), 0, 1, 2, 3, high - 1, high], type_.numpy)
    tiny = {16: 6e-8, 32: 1e-45, 64: 5e-324}[type_.bits] if type_.name != "bfloat16" else 1e-40
    large = {16: 6e4, 32: 3e38, 64: 1e308}[type_.bits] if type_.name != "bfloat16" else 3e38
    values = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        tiny,
        -tiny,
        large,
        -large,
        1.0,
        -1.0,
        0.5,
        2.0,
        -1.5,
        6.0,
        1e-3,
    ]
    return np.array(values, np.float64).astype(type_.numpy)


def special_array(type_: TensorType, rng: np.random.Generator, *, finite: bool = False) -> NDArray:
    """An array of special and ordinary values. With `finite` the special ones are zeros and NaN."""
    shape = type_.static_shape()
    if shape is None:
        raise UsageError(f"no array for the symbolic type {type_}")
    kind = type_.dtype
    if kind.is_float:
        ordinary = rng.standard_normal(shape).astype(kind.numpy)
        special = np.array([0.0, -0.0, np.nan]).astype(kind.numpy) if finite else special_values(kind)
    elif kind.is_bool:
        return rng.integers(0, 2, shape).astype(bool)
    else:
        low, high = kind.int_range()
        ordinary = rng.integers(max(low, -100), min(high, 100), shape, endpoint=True).astype(kind.numpy)
        special = special_values(kind)
    drawn: NDArray = np.where(rng.random(shape) < 0.7, rng.choice(special, shape), ordinary)
    return drawn


def same_bits(a: NDArray, b: NDArray) -> NDArray:
    """Where two arrays hold the same value: the same bits, or both NaN."""
    if DType.of(a.dtype).is_float:
        both_nan = np.isnan(a) & np.isnan(b)
        raw = f"u{a.dtype.itemsize}"
        equal = np.ascontiguousarray(a).view(raw) == np.ascontiguousarray(b).view(raw)
        either: NDArray = both_nan | equal.reshape(a.shape)
        return either
    return np.asarray(a == b)


def check_rule(rule: Rule, dtypes: Sequence[str] = ()) -> int:
    """Evaluate both sides of a rule on each of its examples. Returns the number of comparisons.

    Raises VerifyError if the rule does not match one of its own examples, or if the sides differ: in any bit,
    or for an approximate rule by more than the tolerance of the dtype.
    """
    compared = 0
    for name in dtypes or rule.dtypes or _common_dtypes(rule.pattern):
        for example in rule.examples or (_example_of(rule),):
            before = example(name)
            applied = rule.apply(before)
            if applied is None:
                raise VerifyError(f"rule {rule.name!r} does not fire on its example of {name}")
            for feeds in _feeds(before, finite=rule.approximate):
                _compare(rule, reference.evaluate(before, feeds), reference.evaluate(applied, feeds), name)
                compared += 1
    return compared


def _feeds(root: Node, *, finite: bool) -> Iterator[dict[Node, NDArray]]:
    params = [n for n in post_order(root) if n.op is PARAM]
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        yield {p: special_array(p.tensor_type, rng, finite=finite) for p in params}


def _compare(rule: Rule, before: Any, after: Any, name: str) -> None:
    if isinstance(before, tuple):
        for a, b in zip(before, after, strict=True):
            _compare(rule, a, b, name)
        return
    equal = same_bits(before, after)
    if rule.approximate and DType.of(before.dtype).is_float:
        tolerance = TOLERANCE[str(dtype(before.dtype))]
        wide_before, wide_after = before.astype(np.float64), after.astype(np.float64)
        equal = equal | np.isclose(wide_before, wide_after, rtol=tolerance, atol=tolerance)
    if not equal.all():
        index = tuple(int(i) for i in np.argwhere(~equal)[0])
        raise VerifyError(
            f"rule {rule.name!r} changes a {name} at {index}: {before[index]} becomes {after[index]}",
            why=rule.doc,
            hint="" if rule.approximate else "correct it, or mark it `approximate`",
        )


def _common_dtypes(pattern: OpPattern) -> tuple[str, ...]:
    root = pattern.ops[0]
    allowed = list(root.dtypes) if isinstance(root, OpDecl) else list(ALL)
    for arg in pattern.args or ():
        if isinstance(arg, OpPattern):
            inner = _common_dtypes(arg)
            allowed = [name for name in allowed if name in inner]
        elif isinstance(arg, NumberPattern):
            kind = type(arg.value)
            allowed = [n for n in allowed if _holds(DType(n), kind)]
    return tuple(allowed)


def _holds(type_: DType, kind: type) -> bool:
    return type_.is_bool if kind is bool else type_.is_int if kind is int else type_.is_float


def _example_of(rule: Rule) -> Example:
    """An example made from the pattern itself: variables become params of one shape."""

    def example(name: str) -> Node:
        made: dict[str, Node] = {}

        def build(pattern: Pattern) -> Node:
            if isinstance(pattern, VarPattern):
                if pattern.name not in made:
                    type_ = tensor_type(SHAPE, name)
                    values = special_array(type_, np.random.default_rng(len(made)), finite=rule.approximate)
                    made[pattern.name] = constant(values) if pattern.constant else param(pattern.name, type_)
                return made[pattern.name]
            if isinstance(pattern, NumberPattern):
                return constant(pattern.value, name)
            assert isinstance(pattern, OpPattern)
            captures = any(isinstance(v, AttrVar) or callable(v) for v in pattern.attrs.values())
            if captures or pattern.args is None:
                raise UsageError(
                    f"rule {rule.name!r} needs examples",
                    why="its pattern does not determine all attributes and arguments",
                )
            made_op = pattern.ops[0]
            assert isinstance(made_op, OpDecl)
            return made_op.build(*map(build, pattern.args), **pattern.attrs)

        return build(rule.pattern)

    return example
