"""Declared dtypes for tests: the posit of the example, integers of 6 and 3 bits, a float of 12 bits whose
arithmetic is not emulated, and a type of ml_dtypes."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dlc_backend_c.plugin
import dlc_backend_llvm.plugin
import numpy as np

from dlc_core.hooks import hookimpl
from dlc_core.ir.codes import codec
from dlc_core.ir.dtype_decl import DTypeDecl
from dlc_core.ir.expr import cast_to, const, eq, maximum, minimum, select
from dlc_core.plugin.registry import Registry, fresh_registry
from dlc_core.tir.intrinsics import reinterpret

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "dtypes"


def example(name: str) -> Any:
    """The module of an example of this folder."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


POSIT8: DTypeDecl = example("posit8").POSIT8

SAT6 = DTypeDecl(
    "sat6", 6, "int",
    lambda codes: (codes.astype(np.int32) << 26) >> 26,
    lambda values: np.clip(values, -32, 31) & 63,
    lambda code: (cast_to("int32", code) << 26) >> 26,
    lambda value: minimum(maximum(value, -32), 31) & 63,
    special=(0, 31, -32, 100), doc="integers of 6 bits that saturate",
)  # fmt: skip
UINT3 = DTypeDecl(
    "uint3", 3, "uint",
    lambda codes: codes,
    lambda values: values & 7,
    lambda code: code,
    lambda value: value & 7,
    special=(0, 7, 8), doc="integers of 3 bits that wrap",
)  # fmt: skip


def _bits12(values: Any) -> Any:
    bits = values.view(np.uint32)
    return np.where(np.isnan(values), 0x7FC, (bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20)


def _encode12(value: Any) -> Any:
    bits = reinterpret("uint32", value)
    rounded = (bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20
    return select(eq(value, value), rounded, const(0x7FC, "uint32"))


FLOAT12 = DTypeDecl(
    "float12", 12, "float",
    lambda codes: (codes.astype(np.uint32) << 20).view(np.float32),
    _bits12,
    lambda code: reinterpret("float32", cast_to("uint32", code) << 20),
    _encode12,
    emulated=False, doc="the upper 12 bits of a float32",
)  # fmt: skip
FLOAT6 = DTypeDecl(
    "float6_e2m3fn", 6, "float", *codec(6, lambda code: _float6(code)), numpy="float6_e2m3fn",
    doc="a float of ml_dtypes without a tensor-level form",
)  # fmt: skip


def _float6(code: int) -> float:
    exponent, mantissa = (code >> 3) & 3, code & 7
    size = mantissa / 8 if exponent == 0 else 2.0 ** (exponent - 1) * (1 + mantissa / 8)
    return -size if code >> 5 else size


DECLARED = (POSIT8, SAT6, UINT3, FLOAT12, FLOAT6)


class Declares:
    """A plugin that declares dtypes."""

    DLC_API = "0.1"

    def __init__(self, *given: Any) -> None:
        self.given = given

    @hookimpl
    def dlc_dtypes(self) -> Any:
        return self.given


@contextmanager
def declaring(*given: DTypeDecl, **plugins: Any) -> Iterator[Registry]:
    """The core, the backends for C and LLVM, and a plugin "numbers" that declares dtypes."""
    known = {
        "llvm": dlc_backend_llvm.plugin,
        "c": dlc_backend_c.plugin,
        "numbers": Declares(*given),
        **plugins,
    }
    with fresh_registry(known) as registry:
        yield registry
