"""Bodies of composites have the inferred type, for any mixture of constant and symbolic dims."""

from __future__ import annotations

import random

import pytest

from dlc_core.diag import DlcError
from dlc_core.graph.node import Function, param
from dlc_core.ir.dtype import DType
from dlc_core.ir.types import TensorType
from dlc_core.op.samples import make_inputs, sample_dtypes
from dlc_core.passes.base import PassContext
from dlc_core.passes.graph.expand_composites import ExpandComposites
from dlc_core.plugin.registry import fresh_registry, registry
from tests.op.symbolic_types import symbolic

with fresh_registry({}):
    OPS = tuple(registry().ops.values())

ROUNDS = 24
EXPANDED = ("batch_norm", "layer_norm", "rms_norm", "softmax", "log_softmax")
"""Composites that are expanded although they have a lowering."""


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
    types = [TensorType(array.shape, DType.of(array.dtype)) for array in arrays]
    for _ in range(ROUNDS):
        given, _ = symbolic(types, rng, keep_ones=True)
        try:
            whole = decl.build(*(param(f"x{i}", t) for i, t in enumerate(given)), **sample.attrs)
        except DlcError:
            continue  # some of these sizes must be numbers
        function = Function("main", whole.args, whole)
        expanded = ExpandComposites(expand=EXPANDED).run_function(function, PassContext())
        assert expanded.body.type == whole.type, given
