"""Compile requests: made of keywords, equal by value, stored as JSON data in executables."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from typing import ClassVar

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import te
from dlc_core.config import config
from dlc_core.diag import UsageError
from dlc_core.driver import CompileRequest, compile_request
from dlc_core.driver.request import REQUEST
from dlc_core.graph.node import Function, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op.lookup import registered_ops
from dlc_core.passes.base import GraphPass
from dlc_core.support.record import record

TENSOR = "reference -level=tir"


def doubled() -> IRModule:
    x = param("x", tensor_type((2, 3)))
    return IRModule({"main": Function("main", (x,), registered_ops()["add"].build(x, x))})


REQUESTS = {
    "plain": {},
    "several targets": {"targets": [TENSOR, "reference"], "place": {"softmax": "reference"}},
    "settings": {"precision": "bf16", "opt_level": 1, "config": {"traces": True}, "num_threads": 2},
    "shapes": {"shapes": {"image": ("n", 3, (64, 512), None), "n": 8}, "donate": {"past_*": 1024}},
    "reading": {"frontend": "onnx", "taps": ["conv1"], "cache": None},
}


@pytest.mark.parametrize("options", REQUESTS.values(), ids=REQUESTS)
def test_a_request_is_the_same_after_json(options):
    request = CompileRequest.of(**options)
    assert request == CompileRequest.of(**options)
    assert CompileRequest.of_record(json.loads(json.dumps(request.record()))) == request


def test_requests_differ_in_each_part():
    requests = [CompileRequest.of(**options) for options in REQUESTS.values()]
    for i, one in enumerate(requests):
        assert [one == other for other in requests] == [i == j for j in range(len(requests))]
    with pytest.raises(FrozenInstanceError):
        requests[0].opt_level = 1


def test_a_request_is_printed_without_defaults():
    request = CompileRequest.of(TENSOR)
    assert repr(request) == f"CompileRequest('{TENSOR}')"
    assert repr(replace(request, opt_level=1, taps=("a",))) == (
        f"CompileRequest('{TENSOR}', opt_level=1, taps=('a',))"
    )


def test_decisions_are_text_or_a_mapping():
    forced = {"gemm.tile": "8x1", "gemm.k_block": "whole"}
    request = CompileRequest.of(TENSOR, config={"decisions": forced})
    assert request.config["decisions"] == "gemm.tile=8x1,gemm.k_block=whole"


def test_a_request_reads_the_settings_and_the_context_once():
    with config.override(check_bounds=True, disabled=("fuse",)), dlc.PassContext(opt_level=2) as context:
        request = CompileRequest.of(TENSOR, config={"check_bounds": False})
    assert request.config == {"check_bounds": False, "disabled": ("fuse",), "precision": "float32"}
    assert request.pass_context is context


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": TENSOR, "targets": ["reference"]}, "both `target` and `targets` are given"),
        ({"targets": []}, "there is no target in the list"),
        ({"precision": "half"}, "precision 'half'"),
        ({"config": {"decisions": 7}}, "decisions must be text"),
        ({"config": {"disabled": 7}}, "disabled must be names"),
    ],
)
def test_wrong_requests_are_refused_when_they_are_made(options, said):
    with pytest.raises(UsageError, match=said):
        CompileRequest.of(**options)
    with pytest.raises(UsageError, match=said):
        dlc.compile(doubled(), **options)


def test_one_request_compiles_several_models_and_is_stored_in_them(tmp_path):
    request = CompileRequest.of(TENSOR, num_threads=1, config={"check_indices": False, "traces": print})
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    exe = compile_request(doubled(), request)
    np.testing.assert_array_equal(exe(x), 2 * x)
    assert exe.about[REQUEST]["config"]["traces"] == repr(print)
    exe.save(tmp_path / "doubled.dlc")
    kept = CompileRequest.of_record(dlc.open(tmp_path / "doubled.dlc").about[REQUEST])
    assert kept == replace(request, config={**request.config, "traces": repr(print)})


def test_guard_mode_of_arguments_overrides_the_environment():
    with config.override(guard="begin"):
        assert CompileRequest.of("reference").config["guard"] == "begin"
        assert CompileRequest.of("reference", config={"guard": "end"}).config["guard"] == "end"
        assert "guard" not in CompileRequest.of("reference", config={"guard": "off"}).config
    with pytest.raises(UsageError, match="guard is 'middle'"):
        CompileRequest.of("reference", config={"guard": "middle"})


UNKNOWN_NAMES = {
    "a pass in arguments": (
        {"config": {"disabled": ("winogrd",)}},
        {},
        "pass or rule 'winogrd'(.|\n)*'winograd'",
    ),
    "a setting in arguments": (
        {"config": {"check_indexes": 1}},
        {},
        "compiles 'check_indexes'(.|\n)*'check_indices'",
    ),
    "a pass of the context": ({}, {"disabled": ["fuze"]}, "pass or rule 'fuze'(.|\n)*did you mean 'fuse'"),
    "a setting of the context": (
        {},
        {"config": {"qantized": "float"}},
        "setting of compiles 'qantized'(.|\n)*'quantized'",
    ),
    "a setting like no other": (
        {},
        {"config": {"xyz": 1}},
        "there are bounded_results, check_bounds, check_indices, decisions",
    ),
}


@pytest.mark.parametrize(("options", "context", "said"), UNKNOWN_NAMES.values(), ids=UNKNOWN_NAMES)
def test_unknown_names_are_refused_with_suggestions(options, context, said):
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] + 1.0, "y")
    with dlc.PassContext(**context):
        for use in (
            lambda: dlc.compile(doubled(), TENSOR, **options),
            lambda: dlc.build([x, y], TENSOR, **options),
            lambda: dlc.lower([x, y], **options),
            lambda: dlc.lower([x, y], target=TENSOR, **options),
        ):
            with pytest.raises(UsageError, match=said):
                use()


def test_passes_declare_the_settings_that_they_read():
    @record(frozen=True)
    class Reads(GraphPass):
        name: ClassVar[str] = "reads"
        settings: ClassVar[tuple[str, ...]] = ("own_setting",)

        def run_function(self, function, context):
            found.append(context.config["own_setting"])
            return function

    found = []
    with dlc.PassContext(passes=[("begin graph", Reads())], config={"own_setting": 5}):
        dlc.compile(doubled(), TENSOR, cache=False)
    assert found == [5]
