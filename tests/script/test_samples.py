"""Graphs, lowerings and JSON of every sample of every standard op round-trip."""

from __future__ import annotations

from typing import Any

import pytest

from dlc_core.graph.node import Function, Node, constant, param
from dlc_core.graph.verify import verify_function
from dlc_core.ir.module import IRModule
from dlc_core.ir.structural import first_difference, structural_hash
from dlc_core.op.declare import NDArray, OpDecl, Sample
from dlc_core.op.lower import lower_node
from dlc_core.op.samples import make_inputs, sample_dtypes
from dlc_core.passes.watch import inferred_type
from dlc_core.plugin.registry import fresh_registry, registry
from dlc_core.script import from_json, parse, script, to_json, to_script
from dlc_core.tir.verify import verify_func

with fresh_registry({}):
    OPS = dict(registry().ops.items())


def held(array: NDArray) -> Node:
    """The array as a constant; strings are an attribute of the op `texts`."""
    if array.dtype.hasobject:
        return OPS["texts"].build(values=tuple(array.flat), shape=array.shape)
    return constant(array)


def module_of(decl: OpDecl, sample: Sample) -> IRModule:
    """The op on parameters and on constants, and its lowering."""
    arrays = make_inputs(sample, sample_dtypes(decl, sample)[0])
    constants = [held(a) for a in arrays]
    params = [param(f"x{i}", c.type) for i, c in enumerate(constants)]
    on_params = decl.build(*params, **sample.attrs)
    functions: dict[str, Any] = {
        "main": Function("main", tuple(params), on_params),
        "folded": Function("folded", (), decl.build(*constants, **sample.attrs)),
    }
    if decl.lower is not None:
        functions["kernel"] = lower_node(on_params, "kernel")
    return IRModule(functions)


@pytest.mark.parametrize(
    ("decl", "sample"),
    [pytest.param(d, s, id=f"{d.name}-{i}") for d in OPS.values() for i, s in enumerate(d.samples)],
)
def test_samples_round_trip(decl: OpDecl, sample: Sample) -> None:
    module = module_of(decl, sample)
    text, metadata = to_script(module)
    read = parse(text, metadata, ops=OPS)
    assert first_difference(module, read) is None
    assert script(read) == text
    assert structural_hash(read) == structural_hash(module)
    assert isinstance(read, IRModule)
    for name in ("main", "folded"):
        verify_function(read[name], infer=inferred_type, module=read)
    if "kernel" in read:
        verify_func(read["kernel"], level=2)
    if not any(key.startswith("object") for key in metadata):
        assert first_difference(module, from_json(to_json(module), ops=OPS)) is None
