"""Every op that te can express: its samples as te programs, built for the CPU, agree with its reference."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import te, topi
from dlc_core.graph.node import param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op.declare import OpDecl
from dlc_core.op.reference import evaluate
from dlc_core.op.samples import make_inputs, sample_dtypes
from dlc_core.plugin.registry import registry
from dlc_core.testing.cases import difference, outputs_of, tolerances_of
from dlc_core.topi.apply import computable

# tests/foreign calls foreign functions, which must be registered.
OPS = {n: decl for n, decl in registry().ops.items() if computable(decl) and not decl.calls_foreign}


def reference(decl: OpDecl, sample, arrays):
    params = [param(f"x{i}", tensor_type(a.shape, a.dtype)) for i, a in enumerate(arrays)]
    node = decl.build(*params, **sample.attrs)
    with np.errstate(all="ignore"):
        return outputs_of(evaluate(node, dict(zip(params, arrays, strict=True))))


@pytest.mark.parametrize("name", sorted(OPS))
def test_samples_agree_with_the_reference(name):
    decl = OPS[name]
    function = getattr(topi, name)
    programs, trials = {}, {}
    for number, sample in enumerate(decl.samples):
        arrays = make_inputs(sample, sample_dtypes(decl, sample)[0])
        inputs = [te.placeholder(a.shape, str(a.dtype), f"x{i}") for i, a in enumerate(arrays)]
        results = function(*inputs, **sample.attrs)
        outputs = list(results) if isinstance(results, tuple) else [results]
        programs[f"sample{number}"] = te.create_prim_func(inputs, outputs, f"sample{number}")
        trials[f"sample{number}"] = arrays, reference(decl, sample, arrays)
    exe = dlc.build(IRModule(programs), "llvm")
    for entry, (arrays, expected) in trials.items():
        found = outputs_of((exe[entry] if len(trials) > 1 else exe)(*arrays))
        assert difference(found, expected, tolerances_of(decl)) is None, entry


def test_the_directory_lists_exactly_the_ops_that_te_can_express():
    assert set(OPS) <= set(dir(topi))
    host = {name for name, decl in registry().ops.items() if not computable(decl)}
    assert {"nonzero", "unique", "while_", "random"} <= host
    assert host.isdisjoint(dir(topi))
    for name in host:
        with pytest.raises(AttributeError, match="te cannot express"):
            getattr(topi, name)
