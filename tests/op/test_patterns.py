"""Regular expressions of texts match in linear time by RE2."""

from __future__ import annotations

import time

import numpy as np
import pytest

from dlc_core.op.std import BY_NAME


def test_nested_repetitions_take_linear_time() -> None:
    pytest.importorskip("re2", reason="google-re2 is not installed")
    match, text = BY_NAME["text_match"].reference, np.array(["a" * 60, "a" * 60 + "b"], object)
    begin = time.perf_counter()
    assert match(text, pattern="(a*)*b").tolist() == [False, True]
    assert time.perf_counter() - begin < 5


def test_patterns_that_re2_refuses_are_matched_by_python() -> None:
    match = BY_NAME["text_match"].reference
    assert match(np.array(["aa", "ab"], object), pattern=r"(.)\1").tolist() == [True, False]
