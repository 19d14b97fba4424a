"""`placement="cost"`: networks on a simulated board and the host, divided by predicted time."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend import RegionPattern
from dlc_core.cli.main import main
from dlc_core.diag import TargetError, UsageError
from dlc_core.graph.node import Function, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.plugin.registry import fresh_registry
from dlc_core.rewrite import match_op, var
from dlc_core.script import script
from dlc_core.target import Description
from dlc_core.testing.networks import cifar, feed, keywords, mlp
from tests.backend.test_broken_plugins import Board, Codegen, kind, part, partitioner

TARGETS = ["board", "reference"]


def board(seconds=1e-6, bandwidth=1e9, **declared):
    """A fast board whose memory is as far from the host's as `seconds` and `bandwidth` say."""
    machine = Description(
        parallel=False, vector_bits=2048, fma=True, transfer_seconds=seconds, transfer_bandwidth=bandwidth
    )
    return Board(targets=[kind(describe=lambda options: machine)], **declared)


def costs(exe):
    return exe.explain().costs[0]


def ops_on_the_board(exe):
    return [op for region in exe.about["placed"]["regions"] for op in region["ops"]]


@pytest.mark.parametrize("seconds", [1e-9, 1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize("network", [mlp, cifar, keywords])
def test_networks_compute_the_same_and_are_predicted_to_be_no_slower(network, seconds):
    with fresh_registry({"board": board(seconds, 1e9 if seconds < 1e-5 else 1e7)}):
        exe = dlc.compile(network(), targets=TARGETS, placement="cost")
        found = costs(exe)
        assert found.seconds <= min(found.preference, *found.alone.values()) * (1 + 1e-9)
        assert found.copy_seconds == pytest.approx(sum(one.seconds for one in found.copies))
        assert bool(exe.regions) == bool(found.copies)
        x = feed(network())
        np.testing.assert_allclose(exe(x), dlc.compile(network(), "reference")(x), rtol=1e-4, atol=1e-6)


def test_slow_copies_keep_a_network_on_the_host_and_fast_ones_do_not():
    with fresh_registry({"board": board(seconds=1.0)}):
        exe = dlc.compile(cifar(), targets=TARGETS, placement="cost")
        assert not exe.regions
        assert "copies would take" in exe.explain().refusals()[0]
    with fresh_registry({"board": board(seconds=1e-9, bandwidth=1e12)}):
        exe = dlc.compile(cifar(), targets=TARGETS, placement="cost")
        assert "conv" in ops_on_the_board(exe)


def test_the_explanation_says_what_was_gained(tmp_path):
    with fresh_registry({"board": board()}):
        exe = dlc.compile(cifar(), targets=TARGETS, placement="cost")
        text = str(exe.explain())
        assert "placed   by cost: predicted " in text
        assert "by preference it would take " in text
        assert "reference alone: " in text
        assert "copy     x from the host's memory to board: 12 KiB, " in text
        assert json.loads(exe.explain().to_json())["costs"][0]["alone"]["reference"] > 0
        exe.save(tmp_path / "m.dlc")
        assert costs(dlc.open(tmp_path / "m.dlc")) == costs(exe)
        assert not dlc.compile(cifar(), targets=TARGETS).explain().costs


def test_a_code_generator_and_a_partitioner_predict_their_times():
    def cost(self, n, target):
        return 1e-9 if n.op.name == "softmax" else 1.0

    with fresh_registry({"board": board(1e-12, 1e15, codegens=[part(Codegen, cost=cost)])}):
        exe = dlc.compile(mlp(), targets=TARGETS, placement="cost")
        assert ops_on_the_board(exe) == ["softmax"]
    relu = RegionPattern("relu", match_op("relu", var("x")))
    both = partitioner(patterns=[relu], cost=lambda found, target: 1e-12)
    slow = part(Codegen, cost=lambda self, n, target: 1.0)
    with fresh_registry({"board": board(1e-12, 1e15, codegens=[slow], partitioners=both)}):
        exe = dlc.compile(mlp(), targets=TARGETS, placement="cost")
        assert ops_on_the_board(exe) == ["relu"]


def test_wrong_arguments_and_costs_are_errors():
    with pytest.raises(UsageError, match="placement 'speed'"):
        dlc.compile(mlp(), "reference", placement="speed")
    broken = part(Codegen, cost=lambda self, n, target: None)
    with fresh_registry({"board": board(codegens=[broken])}):
        with pytest.raises(TargetError, match="`cost` of code generator 'board' failed") as caught:
            dlc.compile(mlp(), targets=TARGETS, placement="cost")
        assert "it returned None" in str(caught.value)
        assert "plugin board" in str(caught.value)


def test_place_is_on_top_of_the_costs():
    with fresh_registry({"board": board(seconds=1.0)}):
        exe = dlc.compile(mlp(), targets=TARGETS, placement="cost", place={"softmax": "board"})
        assert "softmax" in ops_on_the_board(exe)
        assert len(costs(exe).copies) == 2
        pinned = {"softmax": "board", "matmul": "reference"}
        exe = dlc.compile(mlp(), targets=TARGETS, placement="cost", place=pinned)
        assert "matmul" not in ops_on_the_board(exe)
        assert len(costs(exe).copies) == 2
        assert not dlc.compile(mlp(), targets=TARGETS, placement="cost").regions


def test_the_command_line_takes_the_placement(tmp_path, capsys):
    x = param("x", tensor_type((4, 8)))
    (tmp_path / "m.py").write_text(script(IRModule({"main": Function("main", (x,), std.exp(x))})))
    arguments = ["explain", str(tmp_path / "m.py"), "-t", "board", "-t", "reference", "--placement", "cost"]
    with fresh_registry({"board": board(seconds=1.0)}):
        main(arguments)
    assert "placed   by cost: predicted " in capsys.readouterr().out


def test_the_key_of_the_cache_has_the_placement():
    with fresh_registry({"board": board()}):
        answers = [
            dlc.driver.CompileRequest.of(targets=TARGETS, placement=one).record()["placement"]
            for one in ("preference", "cost")
        ]
        assert answers == ["preference", "cost"]
        request = dlc.driver.CompileRequest.of(targets=TARGETS, placement="cost")
        assert dlc.driver.CompileRequest.of_record(request.record()).targets == request.targets
