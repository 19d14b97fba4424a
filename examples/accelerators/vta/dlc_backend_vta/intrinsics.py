"""The machine's blocks as tensor intrinsics, which schedules name in `tensorize`.

Programs that use them have their tensors in blocks, `[..., rows, columns]`, and their caches in the scopes
`inp`, `wgt` and `acc`.
"""
# mypy: disable-error-code="valid-type,no-untyped-def,misc"
# (the annotations of programs are script)

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from dlc_backend_vta.config import Config
from dlc_core.schedule import TensorIntrin
from dlc_core.script import T

NDArray = np.ndarray[Any, Any]
GEMM, ZERO, LOAD_INP, LOAD_WGT, STORE = "vta_gemm", "vta_zero", "vta_load_inp", "vta_load_wgt", "vta_store"
"""The functions of the machine that programs call."""


@lru_cache(maxsize=64)
def intrinsics(config: Config) -> dict[str, TensorIntrin]:
    """The intrinsics of a machine by the function that each calls; their names tell the block."""
    rows, inner, columns = config.batch, config.block_in, config.block_out
    made = (
        _gemm(rows, inner, columns),
        _zero(rows, columns),
        _copy(LOAD_INP, rows, inner, "int8", "global", "inp"),
        _copy(LOAD_WGT, columns, inner, "int8", "global", "wgt"),
        _copy(STORE, rows, columns, "int32", "acc", "global"),
    )
    return {one.name.partition(".")[0]: one for one in made}


def _gemm(rows: int, inner: int, columns: int) -> TensorIntrin:
    @T.prim_func
    def desc(
        a: T.Buffer((rows, inner), "int8", scope="inp"),
        w: T.Buffer((columns, inner), "int8", scope="wgt"),
        c: T.Buffer((rows, columns), "int32", scope="acc"),
    ):
        for i, j, k in T.grid(rows, columns, inner):
            with T.block("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                c[vi, vj] = c[vi, vj] + T.int32(a[vi, vk]) * T.int32(w[vj, vk])

    @T.prim_func
    def impl(
        a: T.Buffer((rows, inner), "int8", scope="inp"),
        w: T.Buffer((columns, inner), "int8", scope="wgt"),
        c: T.Buffer((rows, columns), "int32", scope="acc"),
    ):
        T.evaluate(
            T.call_extern(
                GEMM, T.address_of(c[0, 0]), T.address_of(a[0, 0]), T.address_of(w[0, 0]), dtype="int32"
            )
        )

    def reference(a: NDArray, w: NDArray, c: NDArray) -> None:
        c += a.astype(np.int32) @ w.astype(np.int32).T

    return TensorIntrin(f"{GEMM}.{rows}x{inner}x{columns}", desc, impl, reference, doc="c += a w^T")


def _zero(rows: int, columns: int) -> TensorIntrin:
    @T.prim_func
    def desc(c: T.Buffer((rows, columns), "int32", scope="acc")):
        for i, j in T.grid(rows, columns):
            with T.block("zero"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = 0

    @T.prim_func
    def impl(c: T.Buffer((rows, columns), "int32", scope="acc")):
        T.evaluate(T.call_extern(ZERO, T.address_of(c[0, 0]), dtype="int32"))

    def reference(c: NDArray) -> None:
        c[...] = 0

    return TensorIntrin(f"{ZERO}.{rows}x{columns}", desc, impl, reference, doc="c = 0")


def _copy(name: str, rows: int, columns: int, dtype: str, source: str, target: str) -> TensorIntrin:
    @T.prim_func
    def desc(
        s: T.Buffer((rows, columns), dtype, scope=source),
        d: T.Buffer((rows, columns), dtype, scope=target),
    ):
        for i, j in T.grid(rows, columns):
            with T.block("copy"):
                vi, vj = T.axis.remap("SS", [i, j])
                d[vi, vj] = s[vi, vj]

    @T.prim_func
    def impl(
        s: T.Buffer((rows, columns), dtype, scope=source),
        d: T.Buffer((rows, columns), dtype, scope=target),
    ):
        T.evaluate(T.call_extern(name, T.address_of(d[0, 0]), T.address_of(s[0, 0]), dtype="int32"))

    def reference(s: NDArray, d: NDArray) -> None:
        d[...] = s

    return TensorIntrin(f"{name}.{rows}x{columns}", desc, impl, reference, doc=f"{source} to {target}")


__all__ = ["GEMM", "LOAD_INP", "LOAD_WGT", "STORE", "ZERO", "intrinsics"]
