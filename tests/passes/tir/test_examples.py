"""The example in each pass's docstring is the result of the pass, and keeps results."""

from __future__ import annotations

import pytest

from dlc_core.passes.tir import PASSES
from dlc_core.passes.tir.thread_base import ThreadPass
from dlc_core.script import parse
from dlc_core.testing.pass_examples import example_of
from dlc_core.tir.verify import verify_func

EXAMPLES = {cls.name: example for cls in PASSES if (example := example_of(cls)) is not None}


def test_every_pass_that_needs_no_target_has_an_example():
    of_threads = {cls.name for cls in PASSES if issubclass(cls, ThreadPass)}
    others = {
        "schedule_kernels",
        "predict_cycles",
        "split_host_device",
        "inject_software_pipeline",
        "launch_rest",
    }
    assert {cls.name for cls in PASSES} - EXAMPLES.keys() <= others | of_threads


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_pass_makes_the_program_of_its_docstring(name):
    example = EXAMPLES[name]
    assert example.result() == example.expected()
    verify_func(parse(example.after))
