"""Inference records its assumptions on symbolic dims: a call is refused if and only if it violates one.

Each sample of each op is inferred with symbolic dims in place of its sizes.  Inference of numbers gives the
valid calls and their results.
"""

from __future__ import annotations

import random

import pytest

from dlc_core.diag import DlcError, TypeInferenceError, UsageError
from dlc_core.graph.node import Function, param
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import const
from dlc_core.ir.types import TensorType, TupleType
from dlc_core.op.reference import evaluate_dim
from dlc_core.op.samples import make_inputs, sample_dtypes
from dlc_core.passes.graph.dim_conditions import dim_conditions
from dlc_core.passes.lower.describe import with_conditions
from dlc_core.plugin.registry import fresh_registry, registry
from dlc_core.runtime.interface.signature import Signature, Value
from tests.op.symbolic_types import symbolic

with fresh_registry({}):
    OPS = tuple(registry().ops.values())

TRIALS = 12
SIZES = (0, 1, 2, 3, 4, 5, 7, 12)


def shape_at(type_, sizes):
    return tuple(evaluate_dim(d, sizes) for d in type_.shape)


def shapes_at(type_, sizes):
    """The shapes of a result; a data-dependent dim is None."""
    if isinstance(type_, TupleType):
        return [shape for field in type_.fields for shape in shapes_at(field, sizes)]
    static = [set(TensorType((d,), type_.dtype).symbols()) <= set(sizes) for d in type_.shape]
    return [[evaluate_dim(d, sizes) if k else None for d, k in zip(type_.shape, static, strict=True)]]


def signature_of(params, made):
    """The conditions on the sizes of a call."""
    function = Function("main", tuple(params), made)
    values = tuple(Value(p.attrs["name"], p.tensor_type) for p in params)
    bare = Signature(values, (), (), const(0), 0)
    return with_conditions(bare, function.with_attrs(conditions=dim_conditions(function)))


def refusal(signature, shapes):
    try:
        signature.bind_symbols(shapes)
    except UsageError as error:
        return error
    return None


def inferred(decl, types, attrs):
    try:
        return decl.infer_type(types, attrs, [param(f"x{i}", t) for i, t in enumerate(types)])
    except TypeInferenceError:
        return None


def same(shapes, others):
    """Whether shapes agree in the dims that are known in both; None if their ranks differ."""
    pairs = list(zip(shapes, others, strict=True))
    if any(len(a) != len(b) for a, b in pairs):
        return None
    return all(x in (None, y) or y is None for a, b in pairs for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(
    ("decl", "sample"),
    [pytest.param(decl, s, id=f"{decl.name}-{k}") for decl in OPS for k, s in enumerate(decl.samples)],
)
def test_refuses_calls_that_violate_assumptions(decl, sample):
    rng = random.Random(f"{decl.name} {sample}")
    arrays = make_inputs(sample, sample_dtypes(decl, sample)[0])
    types = [TensorType(a.shape, DType.of(a.dtype)) for a in arrays]
    attrs = decl.canonical_attrs(sample.attrs)
    for _ in range(TRIALS):
        given, sizes = symbolic(types, rng)
        params = [param(f"x{i}", t) for i, t in enumerate(given)]
        try:
            made = decl.build(*params, **sample.attrs)
        except DlcError:
            continue  # some of these sizes must be numbers
        signature = signature_of(params, made)
        changed = [{**sizes, var: size} for var in sizes for size in SIZES]
        for values in (sizes, *changed):
            shapes = [shape_at(t, values) for t in given]
            error = refusal(signature, shapes)
            types_now = [TensorType(shape, t.dtype) for shape, t in zip(shapes, given, strict=True)]
            found = inferred(decl, types_now, attrs)
            fits = None if found is None else same(shapes_at(made.type, values), shapes_at(found, {}))
            if found is None or fits is False:
                assert error is not None, (
                    f"{decl.name} of {given} runs with {values}: {made.type}, not {found}"
                )
            elif fits:
                assert error is None, f"{decl.name} of {given} with {values}: {error}"
