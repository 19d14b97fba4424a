"""Level `core`: tests that need no target.

Texts and JSON parse back, inferred types are the types of results, and rewrite rules preserve results.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from dlc_core.graph.node import Node, param
from dlc_core.ir.dtype_decl import DTypeDecl
from dlc_core.ir.module import IRModule
from dlc_core.ir.structural import first_difference
from dlc_core.ir.types import TensorType, tensor_type
from dlc_core.op.declare import OpDecl
from dlc_core.op.lower import lower_node, result_types
from dlc_core.op.reference import evaluate
from dlc_core.op.samples import make_inputs, sample_dtypes
from dlc_core.passes.graph import RULES
from dlc_core.plugin.registry import registry
from dlc_core.rewrite.check import check_rule
from dlc_core.rewrite.rule import Rule
from dlc_core.schedule import TensorIntrin
from dlc_core.script import from_json, parse, script, to_json
from dlc_core.testing.cases import fits_type, module_of, outputs_of, symbolic_node
from dlc_core.testing.dtypes import check_dtype
from dlc_core.testing.intrins import check_intrin
from dlc_core.testing.levels.base import Level, Parameters, Settings
from dlc_core.testing.levels.ops import all_ops


def _ops(settings: Settings) -> Sequence[Any]:
    return [pytest.param(decl, id=decl.name) for decl in all_ops(settings)]


def _rules(settings: Settings) -> Sequence[Any]:
    found = dict.fromkeys((*RULES, *registry().rules.values()))
    return [pytest.param(rule, id=rule.name) for rule in found]


def _intrins(settings: Settings) -> Sequence[Any]:
    return [pytest.param(intrin, id=name) for name, intrin in registry().tensor_intrins.items()]


def _dtypes(settings: Settings) -> Sequence[Any]:
    return [pytest.param(decl, id=name) for name, decl in registry().dtypes.items()]


class CoreLevel(Level):
    """Tests of the declarations of the core and of plugins."""

    level: ClassVar[str] = "core"
    parameters: ClassVar[dict[str, Parameters]] = {
        "decl": _ops,
        "rule": _rules,
        "intrin": _intrins,
        "declared_dtype": _dtypes,
    }

    def test_declaration_is_complete(self, decl: OpDecl) -> None:
        assert decl.doc
        if not _may_lack_samples(decl):
            assert decl.samples
            assert decl.error_samples
        assert decl.lower is not None or decl.is_composite or decl.kind == "opaque"

    def test_dtypes_convert_as_declared(self, declared_dtype: DTypeDecl) -> None:
        check_dtype(declared_dtype)

    def test_inferred_types_are_the_types_of_results(self, decl: OpDecl) -> None:
        for sample in decl.samples:
            for dtype in sample_dtypes(decl, sample):
                arrays = make_inputs(sample, dtype)
                params = [param(f"x{i}", tensor_type(a.shape, a.dtype)) for i, a in enumerate(arrays)]
                node = decl.build(*params, **sample.attrs)
                with np.errstate(all="ignore"):
                    found = outputs_of(evaluate(node, dict(zip(params, arrays, strict=True))))
                types = [node.type] if isinstance(node.type, TensorType) else result_types(node.type)
                inferred = [t for t in types if isinstance(t, TensorType)]
                assert len(found) == len(inferred), (sample, dtype)
                assert all(map(fits_type, found, inferred)), (sample, dtype)

    def test_graphs_round_trip(self, decl: OpDecl) -> None:
        for module in _modules(decl):
            check_round_trip(module)

    def test_programs_round_trip(self, decl: OpDecl) -> None:
        if decl.lower is None:
            pytest.skip("it has no tensor lowering")
        for module in _modules(decl):
            node: Node = module[module.entry].body
            check_round_trip(IRModule({"kernel": lower_node(node, "kernel")}, entry="kernel"))

    def test_rule_preserves_results(self, rule: Rule) -> None:
        assert rule.doc
        assert check_rule(rule) > 0

    def test_intrinsic_computes_its_description(self, intrin: TensorIntrin) -> None:
        check_intrin(intrin)


def _may_lack_samples(decl: OpDecl) -> bool:
    """Whether an op calls foreign functions, or is from a plugin and runs only on the host. Its functions or
    inputs may exist only at run time.
    """
    if decl.calls_foreign:
        return True
    host_only = decl.kind == "opaque" and decl.lower is None and not decl.is_composite
    return host_only and registry().ops.provider(decl.name) != "core"


def _modules(decl: OpDecl) -> Iterator[IRModule]:
    """Modules of all samples in their first dtype, with constant and with symbolic dims."""
    for sample in decl.samples:
        arrays = make_inputs(sample, sample_dtypes(decl, sample)[0])
        params = [param(f"x{i}", tensor_type(a.shape, a.dtype)) for i, a in enumerate(arrays)]
        yield module_of(decl.build(*params, **sample.attrs), params)
        built = symbolic_node(decl, sample, arrays) if arrays else None
        if built is not None:
            yield module_of(built[0], built[1])


def check_round_trip(module: IRModule) -> None:
    """Check that the text and the JSON of a module parse back to the same module."""
    text = script(module)
    ast.parse(text)
    assert first_difference(module, parse(text)) is None
    arrays: list[Any] = []
    data = json.loads(json.dumps(to_json(module, arrays)))
    assert first_difference(module, from_json(data, registry().ops, arrays)) is None


__all__ = ["CoreLevel", "check_round_trip"]
