"""Calls by descriptors: checks of the arrays of callers outside of Python, before anything runs.

A descriptor (`DLTensor` of DLPack) has an array's address, device, dtype, shape and strides. A code generator
copies these values of all arguments, inputs then outputs, into a table of 64-bit words. The tensor program
that this module makes compares the table with the signature. It does not depend on the machine.

    status, dim 0, dim 1, … = checks(table)

The status is 0, or `status_of(argument, reason)` of the first wrong argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlc_core.arith import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX, DType
from dlc_core.ir.expr import (
    Expr,
    Load,
    Var,
    as_expr,
    const,
    const_value,
    eq,
    free_vars,
    load,
    logical_and,
    ne,
    substitute,
)
from dlc_core.runtime.interface.dim_program import given_symbols, in_bounds
from dlc_core.runtime.interface.signature import Signature, Value
from dlc_core.runtime.memory.dlpack import HOST_TYPES, dtype_code
from dlc_core.tir.stmt import If, PrimFunc, Stmt, Store, seq

DATA, DEVICE, RANK, DTYPE, STRIDED, SHAPE = range(6)
"""The words of an argument: its address, device type, rank, dtype (code + bits * 2**8 + lanes * 2**16),
whether strides are given; then its shape and its strides in elements, which are valid only if the rank is the
expected one.
"""

REASONS = ("NULL", "device", "rank", "dtype", "shape", "strides", "alignment")
"""The possible errors of an argument."""


def status_of(argument: int, reason: str) -> int:
    """The status of a call with a wrong argument. `argument` is its number: inputs, then outputs."""
    return -(100 * (argument + 1) + REASONS.index(reason) + 1)


def row_size(value: Value) -> int:
    """The number of words of an argument in the table."""
    return SHAPE + 2 * value.type.ndim


def descriptor_checks(name: str, signature: Signature) -> PrimFunc:
    """The program `name` over the table (int64) and the results (int64): the status, then the symbolic dims.

    Shapes must match the signature for some values of its symbols that meet its conditions. Arrays must be in
    host memory, row-major, contiguous, and aligned to the size of their elements. An array without elements
    may have the address 0. If DLPack lacks a dtype of the signature, or the shapes of the inputs do not
    determine its symbols, every call is refused. Host-computed dims must be in the results before the call
    (see `dim_program`). The checks of `inputs_only` run before the elements are read from which these dims
    are computed.
    """
    return _Checks(name, signature).func()


def inputs_only(signature: Signature) -> Signature:
    """A signature for checking the inputs before their elements are read."""
    return replace(
        signature, outputs=(), symbols=given_symbols(signature), data_dims=(), elements=(), conditions=()
    )


class _Checks:
    def __init__(self, name: str, signature: Signature) -> None:
        self.name = name
        self.signature = signature
        self.values = (*signature.inputs, *signature.outputs)
        self.table = Buffer("table", (max(1, sum(map(row_size, self.values))),), INDEX)
        self.results = Buffer("results", (1 + len(signature.symbols),), INDEX)
        self.known: dict[Var, Expr] = {}
        self.out: list[Stmt] = [Store(self.results, (const(0),), const(0))]

    def func(self) -> PrimFunc:
        begin = 0
        begins: list[int] = []
        for number, value in enumerate(self.values):
            begins.append(begin)
            self._check_type(number, value, begin)
            begin += row_size(value)
        inputs = len(self.signature.inputs)
        computed = {var for var, _, _ in self.signature.data_dims}
        for index, symbol in enumerate(self.signature.symbols):
            if symbol in computed:
                self.known[symbol] = load(self.results, (const(1 + index),))
        self._check_dims(range(inputs), begins, "first")
        self._check_dims(range(inputs), begins, "rest")
        if any(s not in self.known for s in self.signature.symbols):
            self.require(const(False, "bool"), 0, "shape")
            return PrimFunc(self.name, (self.table, self.results), seq(*self.out))
        self._check_conditions()
        self._check_dims(range(inputs, len(self.values)), begins, "all")
        for number, value in enumerate(self.values):
            self._check_memory(number, value, begins[number])
        return PrimFunc(self.name, (self.table, self.results), seq(*self.out))

    def word(self, index: int) -> Load:
        found = load(self.table, (const(index),))
        assert isinstance(found, Load)
        return found

    def require(self, cond: Expr, number: int, reason: str) -> None:
        """Append a check that sets the status if `cond` does not hold and no earlier check failed."""
        no_error = eq(load(self.results, (const(0),)), 0)
        store = Store(self.results, (const(0),), const(status_of(number, reason)))
        self.out.append(
            If(no_error, If(~cond, store))
        )  # nested, because a condition may divide by a value that an earlier one checks

    def _check_type(self, number: int, value: Value, begin: int) -> None:
        device = self.word(begin + DEVICE)
        on_host = eq(device, HOST_TYPES[0])
        for other in HOST_TYPES[1:]:
            on_host = on_host | eq(device, other)
        self.require(on_host, number, "device")
        self.require(eq(self.word(begin + RANK), value.type.ndim), number, "rank")
        self.require(eq(self.word(begin + DTYPE), dtype_word(value.type.dtype)), number, "dtype")

    def _check_dims(self, numbers: Sequence[int], begins: Sequence[int], which: str) -> None:
        """Check sizes against the dims of the signature. The "first" pass handles numbers and new symbols,
        the "rest" the other dims.
        """
        for number in numbers:
            for axis, dim in enumerate(self.values[number].type.shape):
                size = self.word(begins[number] + SHAPE + axis)
                expected = as_expr(dim)
                if which == "first" and isinstance(expected, Var) and expected not in self.known:
                    self._bind(expected, size, number)
                elif which == "all" or (which == "first") == (const_value(expected) is not None):
                    self._compare(number, size, expected)

    def _bind(self, symbol: Var, size: Expr, number: int) -> None:
        """Write the value of a symbol to the results, and check that it is within the symbol's bounds."""
        index = (const(1 + self.signature.symbols.index(symbol)),)
        self.out.append(Store(self.results, index, size))
        self.known[symbol] = load(self.results, index)
        self.require(in_bounds(symbol, self.known[symbol]), number, "shape")

    def _check_conditions(self) -> None:
        """Check the conditions on dims; an error names the input with the first dim of a condition."""
        for condition in self.signature.conditions:
            if self.known.keys() >= set(condition.dims):
                symbols = ({*value.type.symbols()} for value in self.signature.inputs)
                number = next((k for k, dims in enumerate(symbols) if not dims.isdisjoint(condition.dims)), 0)
                self.require(substitute(condition.expr(), self.known), number, "shape")

    def _compare(self, number: int, size: Expr, expected: Expr) -> None:
        """Check a size against a dim. If the dim has one unknown symbol in a linear term, solve for it."""
        free = [v for v in free_vars(expected) if v not in self.known]
        if len(free) == 1:
            analyzer = Analyzer()
            slope = analyzer.coefficient_of(expected, free[0])
            factor = None if slope is None else const_value(slope)
            if factor:
                rest = size - substitute(analyzer.simplify(expected - free[0] * factor), self.known)
                self.require(eq(rest % abs(factor), 0), number, "shape")
                self._bind(free[0], rest // factor, number)
                return
        if not free:
            self.require(eq(size, substitute(expected, self.known)), number, "shape")

    def _check_memory(self, number: int, value: Value, begin: int) -> None:
        rank = value.type.ndim
        sizes = [self.word(begin + SHAPE + d) for d in range(rank)]
        empty: Expr = const(False, "bool")
        for size in sizes:
            empty = empty | eq(size, 0)
        dense_stride: Expr = const(1)
        dense: Expr = const(True, "bool")
        for d in reversed(range(rank)):
            stride = self.word(begin + SHAPE + rank + d)
            dense = logical_and(dense, (sizes[d] <= 1) | eq(stride, dense_stride))
            dense_stride = dense_stride * sizes[d]
        self.require(eq(self.word(begin + STRIDED), 0) | empty | dense, number, "strides")
        address = self.word(begin + DATA)
        self.require(empty | ne(address, 0), number, "NULL")
        self.require(eq(address % value.type.dtype.itemsize, 0), number, "alignment")


def dtype_word(type_: DType) -> int:
    """A dtype as a word of the table. A dtype that DLPack lacks is -1, which no descriptor has."""
    found = dtype_code(type_)
    return -1 if found is None else found[0] | found[1] << 8 | 1 << 16


__all__ = [
    "DATA",
    "DEVICE",
    "DTYPE",
    "RANK",
    "REASONS",
    "SHAPE",
    "STRIDED",
    "descriptor_checks",
    "dtype_word",
    "inputs_only",
    "row_size",
    "status_of",
]
