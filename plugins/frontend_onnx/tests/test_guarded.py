"""Guard mode: models access only their own memory."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx.testing import score
from dlc_frontend_onnx.testing.random_models import differential
from onnx.reference import ReferenceEvaluator

import dlc_core as dlc
from dlc_core.runtime.guard.mode import MODES

pytest.importorskip("dlc_backend_llvm", reason="the backend for this machine is not installed")

# The expected values were rounded to float16 after every step; dlc's are closer to float64.
KNOWN_WRONG = {"test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded"}


def wrong(tests, target="llvm", **options):
    """The failures of some tests."""
    found = score.score_of(tests, target=target, **options)
    bad = [verdict for outcome in ("wrong", "crashed", "late") for verdict in found.of(outcome)]
    return [f"{v.name}: {v.outcome}: {v.reason}" for v in bad if v.name not in KNOWN_WRONG]


def random_models(seeds):
    """Comparisons of random models; every other one with forced random decisions of the compiler."""
    judge = partial(differential.judge, target="llvm", ops=differential.TRUSTED)
    return {f"random {n}": partial(judge, n, decisions=bool(n % 2)) for n in seeds}


@pytest.mark.parametrize("mode", MODES)
def test_random_models(mode, monkeypatch):
    monkeypatch.setenv("DLC_GUARD", mode)
    assert wrong(random_models(range(5000, 5040))) == []


RECURRENT = """<ir_version: 10, opset_import: ["": 14]>
g (float[seq, batch, 5] x, float[dirs, batch, hidden] h)
    => (float[s, dirs, batch, hidden] y, float[dirs, batch, hidden] last)
<float[2, 3, 5] w = {%s}, float[2, 3, 3] r = {%s}>
{ y, last = RNN <direction = "bidirectional", hidden_size = 3> (x, w, r, "", "", h) }"""


@pytest.mark.parametrize(
    ("mode", "decisions"),
    [
        *((mode, each) for mode in ("off", *MODES) for each in ("", "*=random:1", "*=random:2")),
        ("off", "arena.share=separate"),  # in guard mode values share nothing
    ],
)
def test_arena_slots_with_sizes_that_must_be_equal(mode, decisions):
    """Arena slots are disjoint for all valid sizes; invalid sizes need not be considered."""
    rng = np.random.default_rng(0)
    texts = [", ".join(map(str, rng.standard_normal(size).round(2))) for size in (30, 18)]
    model = onnx.parser.parse_model(RECURRENT % tuple(texts))
    feeds = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in (("x", (4, 2, 5)), ("h", (2, 2, 3)))
    }
    exe = dlc.compile(model, "llvm", cache=False, config={"guard": mode, "decisions": decisions})
    expected = ReferenceEvaluator(model).run(None, feeds)
    for one, other in zip(exe.run(feeds).values(), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_many_random_models(mode, monkeypatch):
    monkeypatch.setenv("DLC_GUARD", mode)
    assert wrong(random_models(range(6000, 8000)), limit=120.0) == []


@pytest.mark.slow
@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("mode", MODES)
def test_the_suite_of_onnx(mode, target, monkeypatch):
    if target == "c":
        pytest.importorskip("dlc_backend_c", reason="the backend for C is not installed")
    monkeypatch.setenv("DLC_GUARD", mode)
    assert wrong(score.load_tests(), target, limit=120.0) == []
