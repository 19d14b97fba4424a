"""Numbers of a target's description that a user sets."""

from __future__ import annotations

from dataclasses import fields

import pytest

from dlc_core.diag import TargetError
from dlc_core.target import Description, Target, TargetKind
from dlc_core.target.facts import BY_USER, NUMBERS, facts_of, with_facts
from dlc_core.target.target import Option

KIND = TargetKind(
    "npu", "a machine", "", "", (Option("num-threads", "int", 0, "threads"),),
    describe=lambda options: Description(caches=(1 << 15, 1 << 18), origins={"caches": "detected"}),
)  # fmt: skip
KINDS = {"npu": KIND}


def test_numbers_are_fields_of_descriptions():
    assert set(NUMBERS) <= {each.name for each in fields(Description)}


def test_an_override_replaces_a_fact_and_its_source():
    target = Target(KIND).with_facts({"l2_bytes": "1048576", "fma_latency": 5})
    description = target.describe()
    assert description.caches == (1 << 15, 1 << 20)
    assert description.rates.fma_latency == 5.0
    assert description.origins["caches"] == description.origins["fma_latency"] == BY_USER
    assert KIND.describe({}).origins["caches"] == "detected"
    assert target != Target(KIND)


@pytest.mark.parametrize(
    "given", [{"l1_bytes": 4096}, {"caches": (1, 2, 3)}, {"cache_bandwidths": "64,32.5"}]
)
def test_the_text_of_a_target_keeps_numbers(given):
    target = Target(KIND).with_facts(given).with_options(num_threads=2)
    assert Target.parse(str(target), KINDS) == target
    assert Target.parse(target.to_json(), KINDS) == target
    assert target.with_facts({}) is target


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"l2_byte": 1}, "did you mean 'l2_bytes'"),
        ({"value_align": 8}, "cannot be set"),
        ({"vector_units": "two"}, "not a positive whole number"),
        ({"vector_units": "1.5"}, "not a positive whole number"),
        ({"frequency": -1}, "not a positive number"),
        ({"caches": "1,,2"}, "not positive whole numbers"),
        ({"fma_latency": "4,5"}, "not a positive number"),
        ({"fma_latency": "nan"}, "not a positive number"),
        ({"frequency": "inf"}, "is above"),
        ({"cache_ways": float("inf")}, "not a positive whole number"),
        ({"vector_registers": 1 << 40}, "is above 65536"),
        ({"cache_line": 96}, "not a power of two"),
    ],
)
def test_facts_that_cannot_be_set_are_refused(given, words):
    with pytest.raises(TargetError) as caught:
        facts_of(given)
    assert words in str(caught.value)


def test_a_missing_cache_level_is_refused():
    with pytest.raises(TargetError, match="there is no l3_bytes"):
        with_facts(KIND.describe({}), facts_of({"l3_bytes": 1}))
