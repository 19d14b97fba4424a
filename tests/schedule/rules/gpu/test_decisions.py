"""All alternatives of the decisions of these rules compute the same. Each is forced on a small kernel in the
interpreter, where races are errors. Random combinations are tested too.
"""

from __future__ import annotations

import pytest

from dlc_core.decisions import Choice, declared, forced, scope
from dlc_core.testing.decision_coverage import executed
from dlc_core.testing.launches import Launched, check_launches
from tests.schedule.rules.gpu.small_kernels import CASES

FORCED: dict[str, dict[str, tuple[str, ...]]] = {
    "gpu.tile": {
        "square": ("batches", "product", "units", "attention by units"),
        "tall": ("thin product", "convolution", "units"),
        "wide": ("batches", "few rows", "attention", "units", "attention by units"),
    },
    "gpu.split_k": {
        "whole": ("sum", "units of many steps"),
        "split": ("sum", "sums of columns", "small product", "few rows", "few rows transposed", "units"),
    },
    "gpu.stages": {
        "single": ("product", "units", "attention by units"),
        "double": ("product", "units"),
        "multi": ("small units",),
    },
    "gpu.epilogue": {
        "fused": ("small product",),
        "separate": (
            "small product",
            "few rows",
            "few rows transposed",
            "convolution",
            "units",
            "unknown rows",
        ),
    },
    "gpu.tile_order": {
        "row_major": ("small product",),
        "swizzled": ("small product", "unknown rows", "units"),
    },
    "gpu.shared_layout": {
        "dense": ("small product", "attention", "units", "attention by units"),
        "padded": ("small product",),
    },
    "gpu.vector_width": {
        "scalar": ("elementwise", "softmax", "depthwise", "small product", "few rows transposed", "units"),
        "vector": ("elementwise", "softmax", "layer norm", "pooling"),
    },
    "gpu.threads_per_group": {
        "one_subgroup": ("elementwise", "pooling", "sums of columns"),
        "several_subgroups": ("elementwise", "transposition"),
        "max": ("elementwise", "depthwise"),
    },
    "gpu.grid_stride": {
        "group_per_tile": ("elementwise",),
        "grid_stride": ("elementwise", "elementwise of unknown sizes", "softmax over columns", "depthwise"),
    },
    "gpu.rows": {
        "thread": ("softmax", "layer norm", "argmax", "sums of rows", "sum", "softmax of unknown length"),
        "column_group": ("short columns", "softmax on a larger machine", "sums on a larger machine"),
        "subgroup": ("softmax", "layer norm", "argmax", "softmax over columns", "sums of columns"),
        "group": ("softmax", "softmax over columns", "sums of columns", "softmax of unknown rows"),
    },
    "gpu.rows_per_group": {
        "one": ("softmax",),
        "several": ("softmax", "sums of rows"),
    },
    "gpu.row_stages": {
        "one_launch": ("softmax",),
        "launch_per_stage": ("softmax", "softmax over columns", "layer norm", "argmax"),
    },
    "gpu.results_per_thread": {
        "one": ("pooling",),
        "several": ("pooling", "depthwise"),
    },
}
"""By decision and alternative, the kernels for which it is forced. Fast tests run the first one."""
LONG = {"units", "attention by units", "attention", "convolution", "unknown rows"}
"""Kernels that take seconds."""
MIXED = (
    "small product", "few rows transposed", "softmax", "softmax over columns", "layer norm", "sums of rows",
    "sums of columns", "elementwise", "elementwise of unknown sizes", "pooling",
)  # fmt: skip
"""The kernels of the fast tests with random decisions."""


def run(name: str, text: str) -> tuple[Launched, list[Choice]]:
    """Check a kernel with forced decisions, and return its choices."""
    case = CASES[name]
    with forced(f"{case.besides},{text}"), scope(name) as before:
        launched = check_launches(case.make(), case.machine, case.sizes)
    executed(before)
    return launched, [*before, *map(Choice.parse, launched.scheduled.attrs["decisions"])]


def run_at_random(name: str, seed: int) -> None:
    """Check a kernel with random decisions. They differ from those of other kernels for the same seed."""
    run(name, f"*=random:{seed * len(CASES) + list(CASES).index(name)}")


def forced_cases() -> list[object]:
    return [
        pytest.param(
            decision,
            alternative,
            name,
            marks=[pytest.mark.slow] if number or name in LONG else [],
            id=f"{decision}={alternative}-{name.replace(' ', '_')}",
        )
        for decision, alternatives in FORCED.items()
        for alternative, names in alternatives.items()
        for number, name in enumerate(names)
    ]


@pytest.mark.parametrize(("decision", "alternative", "name"), forced_cases())
def test_alternatives_compute_the_same(decision, alternative, name):
    launched, made = run(name, f"{decision}={alternative}")
    assert launched.scheduled.attrs["why_not"] == ()
    assert (decision, alternative) in {(choice.decision, choice.alternative) for choice in made}


def test_every_alternative_is_forced():
    found = {name: one.alternatives for name, one in declared().items() if name.startswith("gpu.")}
    assert {name: tuple(alternatives) for name, alternatives in FORCED.items()} == found
    assert all(names and names[0] not in LONG for kinds in FORCED.values() for names in kinds.values())


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 20))]
)
@pytest.mark.parametrize("name", MIXED)
def test_mixtures_compute_the_same(name, seed):
    run_at_random(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", sorted({*CASES} - {*MIXED}))
def test_mixtures_of_all_kernels_compute_the_same(name, seed):
    run_at_random(name, seed)
