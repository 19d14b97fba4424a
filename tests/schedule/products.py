# ruff: noqa: N803, F821
"""Tensor intrinsics for products of 16 by 16 tiles: by loops, and by a call."""

from __future__ import annotations

from dlc_core.schedule import TensorIntrin
from dlc_core.script import T


@T.prim_func
def desc(
    A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")
):
    for i, j, k in T.grid(16, 16, 16):
        with T.block("update"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(A[vi, vk], B[vk, vj])
            T.writes(C[vi, vj])
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def loops(
    A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")
):
    for k, i in T.grid(16, 16):
        for j in T.vectorized(16):
            C[i, j] = C[i, j] + A[i, k] * B[k, j]


@T.prim_func
def call(
    A: T.Buffer((16, 16), "float32", strides=(sa, 1)),
    B: T.Buffer((16, 16), "float32", strides=(sb, 1)),
    C: T.Buffer((16, 16), "float32", strides=(sc, 1)),
    sa: T.int64,
    sb: T.int64,
    sc: T.int64,
):
    T.evaluate(
        T.call_extern(
            "mma16",
            T.address_of(C[0, 0]),
            T.address_of(A[0, 0]),
            T.address_of(B[0, 0]),
            sc,
            sa,
            sb,
            dtype="int32",
        )
    )


def product(a, b, c):
    c += a @ b


SCRIPTED = TensorIntrin("mma_loops", desc, loops, product)
EXTERN = TensorIntrin("mma_extern", desc, call, product)


@T.prim_func
def tiny_desc(A: T.Buffer((2, 2), "float32"), B: T.Buffer((2, 2), "float32"), C: T.Buffer((2, 2), "float32")):
    for i, j, k in T.grid(2, 2, 2):
        with T.block("update"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(A[vi, vk], B[vk, vj])
            T.writes(C[vi, vj])
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def tiny_loops(
    A: T.Buffer((2, 2), "float32"), B: T.Buffer((2, 2), "float32"), C: T.Buffer((2, 2), "float32")
):
    for k, i, j in T.grid(2, 2, 2):
        C[i, j] = C[i, j] + A[i, k] * B[k, j]


@T.prim_func
def tiny_call(
    A: T.Buffer((2, 2), "float32", strides=(ai, ak)),
    B: T.Buffer((2, 2), "float32", strides=(bk, bj)),
    C: T.Buffer((2, 2), "float32", strides=(ci, cj)),
    ai: T.int64,
    ak: T.int64,
    bk: T.int64,
    bj: T.int64,
    ci: T.int64,
    cj: T.int64,
):
    T.evaluate(
        T.call_extern(
            "mma2",
            T.address_of(A[0, 0]),
            T.address_of(B[0, 0]),
            T.address_of(C[0, 0]),
            ai,
            ak,
            bk,
            bj,
            ci,
            cj,
            dtype="int32",
        )
    )


TINY = TensorIntrin("mma2_loops", tiny_desc, tiny_loops, product)
TINY_EXTERN = TensorIntrin("mma2_extern", tiny_desc, tiny_call, product)
