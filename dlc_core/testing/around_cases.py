"""Conformance cases of operations that a partial target takes, followed by operations that it may not take.

Random graphs may have nothing that a target with few operations takes. These graphs begin with a sample that
it takes. Random operations follow, which exist in every numeric dtype. The target or the host computes them,
so that values pass between both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np

from dlc_core.diag import DlcError
from dlc_core.graph.node import PARAM, Node, make_tuple, post_order
from dlc_core.ir.types import TensorType
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.plugin.registry import registry
from dlc_core.target import COMPUTED, Target
from dlc_core.testing.capability import taken
from dlc_core.testing.cases import Case, Trial, module_of, op_cases, outputs_of, with_constants
from dlc_core.testing.pattern_cases import TOLERANCES, pattern_cases, patterns_of

CASES = 12
"""The number of samples that are surrounded."""

TRIED = 400
"""The maximum number of samples that are tried to find some that the target takes."""

STEPS = 5
"""The number of random operations after a sample."""

Step = Callable[[Node], Node]
STEPS_OF_ANY_DTYPE: Sequence[Step] = (
    lambda x: std.relu(x),
    lambda x: std.add(x, x),
    lambda x: std.maximum(x, std.mul(x, x)),
    lambda x: std.concat(x, x, axis=x.tensor_type.ndim - 1),
    lambda x: std.transpose(x, axes=tuple(reversed(range(x.tensor_type.ndim)))),
    lambda x: std.reduce_max(x, axes=(x.tensor_type.ndim - 1,), keepdims=True),
    lambda x: std.reshape(x, shape=(-1,)),
)


def around_cases(target: Target) -> Iterator[Case]:
    """Graphs around samples that a target takes; none if it takes none of those that are tried."""
    for number, case in enumerate(islice(_taken_cases(target), CASES)):
        yield _surrounded(case, number)


def _taken_cases(target: Target) -> Iterator[Case]:
    """Instances of patterns of several operations, then samples, contractions first."""
    for partitioner, pattern in patterns_of(target):
        yield from pattern_cases(partitioner, pattern, target)[:1]
    dtypes = target.describe().dtypes or COMPUTED
    decls = sorted(registry().ops.values(), key=lambda decl: decl.kind != "contraction")
    samples = (case for decl in decls if not decl.calls_foreign for case in op_cases(decl, dtypes))
    for case in islice(samples, TRIED):
        for each in filter(None, (case, with_constants(case))):
            found = taken(each.module, target)
            if found is not None and found.on:
                yield each
                break


def _surrounded(case: Case, number: int) -> Case:
    """The graph of a case with random operations after it; each third value is a result."""
    rng = random.Random(number)
    body = case.module[case.module.entry].body
    results = [body]
    if isinstance(body.type, TensorType):
        for _ in range(STEPS):
            results += _step(results[-1], rng)
    kept = [*results[:-1:3], results[-1]]
    root = make_tuple(list(dict.fromkeys(kept)))
    params = [n for n in post_order(root) if n.op is PARAM]
    own = case.module[case.module.entry].params
    feeds = dict(zip(own, case.trials[0].inputs, strict=True))
    inputs = [feeds[p] for p in params]
    with np.errstate(all="ignore"):
        expected = outputs_of(evaluate(root, dict(zip(params, inputs, strict=True))))
    return Case(f"graphs/around/{number}", module_of(root, params), [Trial(inputs, expected)], TOLERANCES)


def _step(value: Node, rng: random.Random) -> list[Node]:
    """A random operation that the value's dtype and shape allow; none if there is none."""
    for step in rng.sample(STEPS_OF_ANY_DTYPE, len(STEPS_OF_ANY_DTYPE)):
        try:
            return [step(value)]
        except DlcError:
            continue
    return []


__all__ = ["around_cases"]
