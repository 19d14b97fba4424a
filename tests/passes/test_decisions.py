"""Every alternative of each decision of graph passes, lowering and loops computes the same values."""

from __future__ import annotations

import pytest

import dlc_core as dlc
from dlc_core.decisions import DECISIONS, Choice, declared
from dlc_core.driver.target_list import find_target
from dlc_core.passes import PassContext
from dlc_core.passes.tir import HoistConditions, PartitionLoops
from dlc_core.testing.decision_coverage import executed
from tests.passes.decision_networks import NETWORKS, check_results, module_of

pytest.importorskip("dlc_backend_llvm", reason="the backend for this machine is not installed")

TARGET = "llvm -num-threads=2"
OPTIONS = {"square": {"precision": "fast"}}
CONFIG = {"streamed": {"stream_rows": 3}}
CASES = {
    "arena.share": {"largest_first": "block", "first_used_first": "block", "separate": "block"},
    "arena.symbolic": {"upper_bound": "bounded", "exact": "bounded"},
    "attention.form": {"tiled": "one_query", "one_query": "one_query", "unfused": "heads"},
    "concat.part": {"in_place": "symbolic", "copied": "symbolic"},
    "concat.write": {"in_place": "symbolic", "copied": "symbolic"},
    "conv.planes": {"images": "volume", "volume": "volume"},
    "conv_transpose.phases": {"together": "spread", "separate": "spread", "spread": "spread"},
    "dots.bytes": {"signed": "quantized", "unsigned": "quantized"},
    "dots.channels": {"padded": "quantized", "kept": "quantized"},
    "fuse.epilogue": {"fused": "symbolic", "separate": "symbolic"},
    "fuse.max_ops": {"default": "perceptron", "few": "perceptron", "one": "perceptron"},
    "fuse.data_movement": {"copied": "block", "read_through": "block"},
    "fuse.producer": {"fused": "chain", "separate": "chain"},
    "layout.windows": {"last": "spread", "first": "spread"},
    "loops.partition": {"split": "borders", "predicated": "borders"},
    "loops.prefetch": {"issued": "square", "omitted": "square"},
    "loops.unroll": {"rolled": "chain", "unrolled": "chain"},
    "loops.unswitch": {"hoisted": "large_windows", "inside": "large_windows"},
    "products.merge": {"merged": "symbolic", "separate": "symbolic"},
    "results.memory": {"over_input": "chain", "own": "chain"},
    "row_filter.strip": {"whole": "wide_rows", "strips": "wide_rows"},
    "row_filter.tile": {"direct": "wide_rows", "filtered": "wide_rows"},
    "steps.order": {"given": "symbolic", "least_memory": "wide_and_narrow", "depth_first": "block"},
    "strassen.form": {"direct": "square", "once": "square", "twice": "square", "blocks": "square"},
    "strassen.tile": {"by_panels": "square", "by_tiles": "square"},
    "stream_rows.part": {"whole": "streamed", "streamed": "streamed"},
    "temporaries.memory": {"stack": "perceptron", "arena": "perceptron"},
    "temporaries.slices": {
        "several_per_thread": "perceptron",
        "one_per_thread": "perceptron",
        "one": "perceptron",
    },
    "weights.stored": {"packed": "low_bits", "floats": "low_bits"},
    "winograd.group": {"groups": "two_images", "phases": "two_images", "parts": "two_images"},
    "winograd.tile": {"direct": "two_images", "tiles": "two_images"},
}
"""For each alternative a network for which it is a candidate."""
ALSO_FORCED = {
    "concat.part": "products.merge=separate",
    "concat.write": "products.merge=separate",
    "conv.planes": "winograd.tile=direct",
    "loops.prefetch": "strassen.form=once",
    "row_filter.strip": "row_filter.tile=filtered",
    "strassen.tile": "strassen.form=once",
    "temporaries.slices": "temporaries.memory=arena",
    "winograd.group": "winograd.tile=2x2",
}
"""Other forced decisions that an alternative needs."""
DOTS = ("dots.bytes", "dots.channels")
QUICK = ("perceptron", "symbolic", "heads", "block", "chain", "borders", "low_bits", "spread")


def compiled(name: str, decisions: str) -> dlc.Executable:
    """A network with forced decisions, also those of loop unswitching and loop partitioning."""
    config = {"decisions": decisions, **CONFIG.get(name, {})}
    with PassContext(passes=[("loops", HoistConditions()), ("loops", PartitionLoops())]):
        return dlc.compile(module_of(name), TARGET, config=config, cache=False, **OPTIONS.get(name, {}))


def check(name: str, exe: dlc.Executable) -> None:
    """It computes what the reference does, on one thread and on two."""
    for threads in (1, 2):
        check_results(name, exe.with_threads(threads))
    executed(exe.about[DECISIONS])


@pytest.mark.parametrize(
    ("decision", "alternative"), [(name, one) for name, found in CASES.items() for one in found]
)
def test_each_alternative_is_executed(decision, alternative):
    name = CASES[decision][alternative]
    also = f",{ALSO_FORCED[decision]}" if decision in ALSO_FORCED else ""
    if decision in DOTS and not find_target(TARGET).describe().dots:
        pytest.skip("this machine has no dot products of bytes")
    exe = compiled(name, f"{decision}={alternative}{also}")
    made = {
        choice.alternative
        for choice in map(Choice.parse, exe.about["decisions"])
        if choice.decision == decision
    }
    assert alternative in made
    check(name, exe)


def test_networks_cover_all_alternatives_of_decisions():
    for name, cases in CASES.items():
        assert sorted(cases) == sorted(declared()[name].alternatives)


@pytest.mark.parametrize("name", QUICK)
def test_random_choices(name):
    check(name, compiled(name, "*=random:5"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 32))
@pytest.mark.parametrize("name", NETWORKS)
def test_more_random_choices(name, seed):
    check(name, compiled(name, f"*=random:{seed}"))


def test_records_each_choice_once():
    told = compiled("symbolic", "products.merge=separate").about["decisions"]
    assert len(told) == len(set(told))
    assert "products.merge=separate (forced; preferred merged)" in told
    assert any(Choice.parse(text).decision == "schedule.rule" for text in told)
