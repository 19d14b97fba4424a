"""Regular expressions of texts match in linear time by RE2."""

from __future__ import annotations

import time

import numpy as np
import pytest

from dlc_core.diag import TypeInferenceError
from dlc_core.graph.node import param
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.std import BY_NAME, patterns


def test_nested_repetitions_take_linear_time() -> None:
    pytest.importorskip("re2", reason="google-re2 is not installed")
    match, text = BY_NAME["text_match"].reference, np.array(["a" * 60, "a" * 60 + "b"], object)
    begin = time.perf_counter()
    assert match(text, pattern="(a*)*b").tolist() == [False, True]
    assert time.perf_counter() - begin < 5


def test_patterns_that_re2_refuses_are_refused() -> None:
    pytest.importorskip("re2", reason="google-re2 is not installed")
    with pytest.raises(TypeInferenceError, match="RE2 cannot match"):
        std.text_match(param("x", tensor_type((2,), "string")), pattern=r"(.)\1")


EXPONENTIAL = [
    "(a*)*b", "(a+)+$", "(a|aa)*b", "(a|a?)+b", "(.)\\1", "(?=a)a", "(a?){30}a{30}", "a?" * 30 + "a" * 30,
    ".*.*.*.*.*x", "(x+x+)+y", "([a-z]+)*!", "(\\w|\\d\\d)*x", "(?:ab?)*c?",
]  # fmt: skip
LINEAR = [
    "[a-z]+t", "(ab|cd)*", r"www\.[\w.-]+\.\bcom\b", r"(\W|^)[\w.\-]{0,25}@(yahoo|gmail)\.com(\W|$)", "",
    r"\d+-\d+-\d+-\d+-\d+", "(ab){3,5}", "[^,]*,[^,]*,[^,]*,[^,]*,x", ".*b",
]  # fmt: skip


@pytest.mark.parametrize("pattern", EXPONENTIAL)
def test_python_matches_no_pattern_of_exponential_time(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "has_re2", lambda: False)
    x = param("x", tensor_type((2,), "string"))
    with pytest.raises(TypeInferenceError, match="exponential time") as caught:
        std.text_match(x, pattern=pattern)
    assert "`texts`" in caught.value.hint
    with pytest.raises(TypeInferenceError, match="exponential time"):
        std.text_tokens(x, max_tokens=Var("n"), token=pattern)


@pytest.mark.parametrize("pattern", LINEAR)
def test_python_matches_simple_patterns(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "has_re2", lambda: False)
    assert std.text_match(param("x", tensor_type((2,), "string")), pattern=pattern).shape == (2,)
    begin = time.perf_counter()
    BY_NAME["text_match"].reference(np.array(["a" * 200, "1" * 200], object), pattern=pattern)
    assert time.perf_counter() - begin < 5
