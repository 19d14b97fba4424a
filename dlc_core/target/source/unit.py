"""A source file under construction: it collects the types and helpers that its functions use; `text()`
returns the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from dlc_core.diag import CodegenError
from dlc_core.foreign.prototype import READ
from dlc_core.ir.dtype import DType, dtype
from dlc_core.target.source.dialect import Dialect
from dlc_core.target.source.foreign import ForeignTexts
from dlc_core.target.source.formulas import FORMULAS, formula_text
from dlc_core.target.source.helpers import (
    LANE_HELPERS,
    MINMAX,
    PREFIX,
    fixed_text,
    lanewise_text,
    needs,
    scalar_text,
    short,
    storage_lanes,
    vector_needs,
    vector_text,
)
from dlc_core.target.source.tokens import RESERVED, Names
from dlc_core.tir.stmt import PrimFunc


class Unit:
    """A file of functions in one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.names = Names(RESERVED | dialect.reserved)
        """Names at the file's level."""
        self.functions: list[str] = []
        self.writes: dict[str, frozenset[int]] = {}
        """The parameters that each function of this file writes."""
        self.foreign = ForeignTexts(dialect)
        self._symbols: dict[str, str] = {}
        self._types: dict[str, str] = {}
        self._helpers: dict[str, str] = {}

    def take_foreign(self, funcs: Iterable[PrimFunc]) -> None:
        """Choose the implementations of foreign functions that programs call. It precedes their text."""
        self.foreign.find(funcs)
        for name, chosen in self.foreign.chosen.items():
            self.names.take([chosen.symbol])
            params = chosen.function.prototype.params
            self.writes[name] = frozenset(k for k, p in enumerate(params) if p.is_pointer and p.how != READ)

    def symbol(self, name: str) -> str:
        """The name of a module's function in this file."""
        if name not in self._symbols:
            self._symbols[name] = self.names.fresh("model" if name == "main" else name)
        return self._symbols[name]

    def scalar_type(self, type_: DType) -> str:
        """The type in which a scalar is computed."""
        return self._named(type_, self.dialect.scalars)

    def stored_type(self, type_: DType) -> str:
        """The type of an element in memory."""
        name = type_.scalar.name
        if name not in self.dialect.stored and (type_.bits < 8 or name.startswith("float8")):
            return "uint8_t"
        return self._named(type_, self.dialect.stored)

    def _named(self, type_: DType, table: Mapping[str, str]) -> str:
        found = table.get(type_.scalar.name)
        if found is None and type_.decl is not None:
            found = f"{type_.decl.codes}_t"
        if found is None:
            raise CodegenError(
                f"dtype {type_.scalar} has no code in {self.dialect.name}",
                hint="cast it to float32 or int32 first",
            )
        return found

    def value_type(self, type_: DType) -> str:
        """The type of a value, including vectors."""
        if type_.lanes == 1:
            return self.scalar_type(type_)
        if not self.dialect.vectors:
            raise CodegenError(
                f"{self.dialect.name} has no vectors",
                why=f"a value of {type_} reached code generation",
                hint="describe the target with vector_bits=0",
            )
        if type_.is_bool:
            raise CodegenError("a vector of bools has the type of its mask")
        held = dtype("float32").with_lanes(type_.lanes) if type_.is_float and type_.bits < 32 else type_
        name = short(held)
        if name not in self._types:
            size = storage_lanes(held.lanes) * held.bits // 8
            scalar = self.scalar_type(held.scalar)
            self._types[name] = f"typedef {scalar} {name} __attribute__((vector_size({size})));"
        return name

    def mask_type(self, bits: int, lanes: int) -> str:
        """The type of a comparison of vectors whose elements have `bits` bits."""
        return self.value_type(dtype(f"int{bits}").with_lanes(lanes))

    def helper(self, op: str, type_: DType | None = None) -> str:
        """The name of a helper. The helper is added to the file; see `helpers`."""
        if type_ is None:
            for needed in needs(op):
                self.helper(needed)
            own = self.dialect.fixed.get(op)
            return self._define(op, lambda: own or fixed_text(op, self.dialect.inline))
        scalar = type_.scalar
        if scalar.is_float and scalar.bits < 32:
            scalar = dtype("float32")
        if type_.lanes == 1:
            c_type, full = self.scalar_type(scalar), f"{op}_{short(scalar)}"
            held = self.dialect.fixed.get(full)
            return self._define(
                full,
                lambda: (
                    held or scalar_text(op, scalar, c_type, self.dialect.inline, self.dialect.float_suffix)
                ),
            )
        vector = scalar.with_lanes(type_.lanes)
        name = self.value_type(vector)
        if op in (*MINMAX, "select"):
            self.mask_type(vector.bits, vector.lanes)
        for needed in vector_needs(op):
            self.helper(needed, vector)
        if op in ("reduce_min", "reduce_max"):
            self.helper(op.removeprefix("reduce_"), scalar)
        inline = self.dialect.inline
        make: Callable[[], str]
        if op in FORMULAS:
            make = partial(formula_text, op, vector, inline, self.helper, self.value_type)
        elif op in self.dialect.math or op in LANE_HELPERS:
            make = partial(lanewise_text, op, vector, self.library(op, scalar), inline)
        else:
            make = partial(vector_text, op, vector, self.scalar_type(scalar), inline)
        return self._define(f"{op}_{name}", make)

    def library(self, op: str, type_: DType) -> str:
        """The name of the scalar function that computes a float intrinsic."""
        if op in LANE_HELPERS:
            return self.helper(op, type_)
        function = self.dialect.math.get(op)
        if function is None:
            raise CodegenError(f"intrinsic {op} has no code in {self.dialect.name}")
        named = function.format(type=f"f{max(32, type_.bits)}")
        return named if type_.bits == 64 else named + self.dialect.float_suffix

    def _define(self, name: str, make: Callable[[], str]) -> str:
        full = PREFIX + name
        if full not in self._helpers:
            self._helpers[full] = make()
        return full

    def prelude(self) -> str:
        """The text before the functions: headers, types, helpers."""
        parts = ["\n".join(f"#include <{header}>" for header in self.dialect.headers)]
        if self.dialect.preamble:
            parts.append(self.dialect.preamble.rstrip("\n"))
        if self._types:
            parts.append("\n".join(self._types.values()))
        parts += [text.rstrip("\n") for text in self._helpers.values()]
        parts.append(self.foreign.text(self.scalar_type, self.stored_type))
        return "\n\n".join(part for part in parts if part) + "\n"

    def text(self) -> str:
        """The whole file."""
        return "\n".join([self.prelude(), *self.functions])


__all__ = ["Unit"]
