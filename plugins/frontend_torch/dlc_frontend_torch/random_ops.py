"""Operators that draw random numbers from torch's generator and read only the shapes of their operands."""

from __future__ import annotations

DRAWN = frozenset(
    f"aten.{name}" for name in (
        "bernoulli.p", "cauchy.default", "exponential.default", "geometric.default", "log_normal.default",
        "normal.float_float", "rand.default", "rand_like.default", "randint.default", "randint.low",
        "randint_like.default", "randint_like.low_dtype", "randn.default", "randn_like.default",
        "randperm.default", "uniform.default",
    )
)  # fmt: skip

__all__ = ["DRAWN"]
