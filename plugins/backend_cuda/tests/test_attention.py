"""Attention by tensor cores: results and races in the simulator, code for several architectures, its cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_cuda import codegen

import dlc_core as dlc
from dlc_core.backend.compiler import compiler_problem
from dlc_core.diag import RuntimeFailure
from dlc_core.graph.node import param
from dlc_core.ir.dtype import dtype
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.testing import Golden
from dlc_core.testing.cases import module_of

GOLDEN = Path(__file__).parent / "golden"
CHECKED = "cuda_simulated -arch=sm_80 -check=true"
needs_c = pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))
NEAR = {"float16": 2e-3, "bfloat16": 2e-2}


def compiled(
    of: str, heads: int, groups: int, n: Any, m: Any, size: int, target: str = CHECKED,
    mask: Any = None, **attrs: Any
) -> dlc.Executable:  # fmt: skip
    """Attention over [1, heads, tokens, size]."""
    shapes = (heads, n), (groups, m), (groups, m)
    given = [
        param(name, tensor_type((1, *shape, size), of)) for name, shape in zip("qkv", shapes, strict=True)
    ]
    if mask:
        given.append(param("mask", tensor_type(*mask)))
    return dlc.compile(module_of(std.attention(*given, **attrs), given), target, cache=False)


def expected(q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False, past: int = 0) -> Any:
    """The definition of attention, in float64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask.astype(np.float64)
    n, m = scores.shape[-2:]
    if causal:
        scores = np.where(np.arange(m) <= np.arange(n)[:, None] + past, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def check(exe: dlc.Executable, of: str, shapes: Any, mask: Any = None, **hidden: Any) -> None:
    """Check the results of one launch that uses matrix units."""
    assert [kernel.rule for kernel in exe.explain().kernels] == ["gpu.attention_matrix"]
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape).astype(dtype(of).numpy) for shape in shapes]
    masks = [] if mask is None else [mask]
    found = exe(*given, *masks)
    np.testing.assert_allclose(
        found.astype(np.float64), expected(*given, *masks, **hidden), NEAR[of], NEAR[of]
    )


def shapes_of(heads: int, groups: int, n: int, m: int, size: int) -> list[tuple[int, ...]]:
    return [(1, heads, n, size), (1, groups, m, size), (1, groups, m, size)]


@needs_c
@pytest.mark.parametrize(
    ("of", "heads", "groups", "n", "m", "size", "hidden"),
    [
        ("float16", 1, 1, 70, 90, 64, {}),
        ("bfloat16", 2, 1, 33, 100, 32, {"causal": True, "past": 67}),
        pytest.param("float16", 2, 2, 40, 40, 80, {"causal": True}, marks=pytest.mark.slow),
        pytest.param("bfloat16", 1, 1, 130, 70, 96, {}, marks=pytest.mark.slow),
        pytest.param("float16", 4, 2, 64, 64, 128, {"causal": True}, marks=pytest.mark.slow),
        pytest.param("bfloat16", 1, 1, 20, 130, 128, {}, marks=pytest.mark.slow),
        pytest.param("float16", 1, 1, 10, 30, 72, {}, marks=pytest.mark.slow),
    ],
)
def test_attention_matches_numpy(
    of: str, heads: int, groups: int, n: int, m: int, size: int, hidden: dict[str, Any]
) -> None:
    exe = compiled(of, heads, groups, n, m, size, **hidden)
    check(exe, of, shapes_of(heads, groups, n, m, size), **hidden)


@needs_c
@pytest.mark.slow
@pytest.mark.parametrize("of", ["float16", "bool"])
def test_masks_match_numpy(of: str) -> None:
    rng = np.random.default_rng(1)
    mask = rng.random((20, 50)) < 0.7 if of == "bool" else rng.standard_normal((20, 50)).astype(np.float16)
    exe = compiled("float16", 2, 1, 20, 50, 32, mask=((20, 50), of))
    check(exe, "float16", shapes_of(2, 1, 20, 50, 32), mask)


@needs_c
@pytest.mark.slow
def test_a_very_low_mask_hides_all_keys_equally() -> None:
    """Scores near the lowest float overflow if they are scaled."""
    mask = np.full((20, 20), -3e38).astype(dtype("bfloat16").numpy)
    exe = compiled("bfloat16", 1, 1, 20, 20, 32, mask=((20, 20), "bfloat16"))
    check(exe, "bfloat16", shapes_of(1, 1, 20, 20, 32), mask)


@needs_c
def test_symbolic_lengths_and_past() -> None:
    """One kernel computes a prompt and, in several calls, the tokens after it."""
    n, past = Var("n"), Var("past")
    exe = compiled("float16", 2, 1, n, n + past, 32, causal=True, past=past)
    for tokens, before in ((70, 0), (9, 75)):
        shapes = shapes_of(2, 1, tokens, tokens + before, 32)
        check(exe, "float16", shapes, causal=True, past=before)


@needs_c
@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_removed_barrier_is_found(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each barrier of the kernel is necessary: without it there is a race."""
    whole, barrier = codegen.with_words, "    __syncthreads();\n"

    def without(text: str, *more: Any) -> str:
        parts = text.split(barrier)
        assert len(parts) == 3
        return whole("".join(p + barrier * (i == 1 - number) for i, p in enumerate(parts)), *more)

    monkeypatch.setattr(codegen, "with_words", without)
    exe = compiled("float16", 1, 1, 20, 200, 32)
    with pytest.raises(RuntimeFailure, match="race"):
        exe(*(np.ones(shape, np.float16) for shape in shapes_of(1, 1, 20, 200, 32)))


@needs_c
@pytest.mark.parametrize("added", [False, True])
def test_reduced_precision_uses_matrix_units(added: bool) -> None:
    """With reduced precision, attention of float32 uses narrower values, except for additive masks."""
    shapes = shapes_of(2, 1, 20, 30, 32)
    given = [param(name, tensor_type(shape)) for name, shape in zip("qkv", shapes, strict=True)]
    mask = np.random.default_rng(1).random((20, 30)) < 0.5
    if added:
        mask = np.where(mask, 0, -3e38).astype(np.float32)
    given.append(param("mask", tensor_type((20, 30), str(mask.dtype))))
    exe = dlc.compile(module_of(std.attention(*given), given), CHECKED, precision="fp16", cache=False)
    rules = [kernel.rule for kernel in exe.explain().kernels]
    assert ("gpu.attention" if added else "gpu.attention_matrix") in rules
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    np.testing.assert_allclose(exe(*arrays, mask), expected(*arrays, mask), 3e-3, 3e-3)


def test_text_is_the_golden_one(bless: bool) -> None:
    exe = compiled("float16", 2, 1, 20, 40, 16, "cuda_simulated -arch=sm_80", causal=True, past=20)
    Golden(GOLDEN, bless).check("attention_float16.cu", exe.source("cu"))


def test_float32_uses_no_matrix_units() -> None:
    exe = compiled("float32", 1, 1, 64, 64, 64, "cuda_simulated -arch=sm_80")
    assert [kernel.rule for kernel in exe.explain().kernels] == ["gpu.attention"]


MODELS = {"bert-base": (12, 128, 64, False), "gpt-2": (12, 1024, 64, True), "vit": (12, 197, 64, False)}


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("model", "arch"),
    [
        pytest.param(model, arch, marks=[] if (model, arch) == ("gpt-2", "sm_80") else pytest.mark.slow)
        for model in (*MODELS, "128")
        for arch in ("sm_80", "sm_90")
    ],
)
def test_no_registers_are_spilt(model: str, arch: str) -> None:
    heads, tokens, size, causal = MODELS.get(model, (8, 512, 128, True))
    exe = compiled("float16", heads, heads, tokens, tokens, size, f"cuda -arch={arch}", causal=causal)
    (facts,) = exe.explain().compiled.values()
    assert facts["spill bytes"] == facts["stack bytes"] == 0
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in exe.source("ptx")
    # Shared memory is only written by copies, and read by block loads.
    kernel = exe.source("ptx").split(".entry", 1)[1]
    assert "st.shared" not in kernel
    assert "ld.shared" not in kernel


def test_the_estimate_uses_the_rate_of_matrix_units() -> None:
    """The cost model counts products at the rate of matrix units."""
    kernels = {}
    for arch in ("sm_70", "sm_80"):
        exe = compiled("float16", 12, 12, 1024, 1024, 64, f"cuda_simulated -arch={arch}")
        (kernels[arch],) = exe.explain().kernels
    scalar, tiles = kernels["sm_70"].work, kernels["sm_80"].work
    assert kernels["sm_70"].rule == "gpu.attention"
    assert 10 * tiles.steps < scalar.steps
    assert tiles.functions < scalar.functions
