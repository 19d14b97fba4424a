"""Bodies of composites have the type that inference says, whichever sizes are numbers and which are dims."""

from __future__ import annotations

import random

import pytest

from dlc_core.diag import DlcError
from dlc_core.graph.node import Function, param
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Var
from dlc_core.ir.types import TensorType
from dlc_core.op.samples import make_inputs, sample_dtypes
from dlc_core.op.std import OPS
from dlc_core.passes.base import PassContext
from dlc_core.passes.graph.expand_composites import ExpandComposites

ROUNDS = 24
EXPANDED = ("batch_norm", "layer_norm", "rms_norm", "softmax", "log_softmax")
"""Composites that have a lowering beside those that have none."""


def symbolic(arrays, rng):
    """Types of the arrays with dims in place of some sizes; equal sizes may become one dim."""
    made, sizes = [], {}
    for array in arrays:
        shape = []
        for size in array.shape:
            same = [v for v, n in sizes.items() if n == size]
            if size == 1 or rng.random() < 0.4:
                shape.append(size)
            elif same and rng.random() < 0.5:
                shape.append(rng.choice(same))
            else:
                shape.append(Var(f"d{len(sizes)}"))
                sizes[shape[-1]] = size
        made.append(TensorType(tuple(shape), DType.of(array.dtype)))
    return made


@pytest.mark.parametrize(
    ("decl", "sample"),
    [
        pytest.param(decl, sample, id=f"{decl.name}-{k}")
        for decl in OPS
        if decl.compose is not None
        for k, sample in enumerate(decl.samples)
    ],
)
def test_bodies_of_composites(decl, sample):
    rng = random.Random(f"{decl.name} {sample}")
    arrays = make_inputs(sample, sample_dtypes(decl, sample)[0])
    for _ in range(ROUNDS):
        given = symbolic(arrays, rng)
        try:
            whole = decl.build(*(param(f"x{i}", t) for i, t in enumerate(given)), **sample.attrs)
        except DlcError:
            continue  # some of these sizes must be numbers
        function = Function("main", whole.args, whole)
        expanded = ExpandComposites(expand=EXPANDED).run_function(function, PassContext())
        assert expanded.body.type == whole.type, given
