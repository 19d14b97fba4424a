"""Tensor intrinsics: a description of a computation, an implementation that replaces it, and a reference."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Call, Expr, Load, Var, const_value, free_vars, post_order
from dlc_core.support.record import record
from dlc_core.tir.functor import exprs_of, stmts
from dlc_core.tir.intrinsics import EXTERN
from dlc_core.tir.stmt import Block, PrimFunc, Stmt, loop

Array = np.ndarray[Any, Any]


def over_its_axes(block: Block) -> Stmt:
    """Put a block into one loop per axis, which is the form of descriptions."""
    nest: Stmt = block
    for var, axis in zip(reversed(block.values), reversed(block.axes), strict=True):
        assert isinstance(var, Var)
        nest = loop(var, axis.dom.extent, nest)
    return nest


@record(frozen=True, eq=False)
class TensorIntrin:
    """A computation on tiles that a machine executes as one instruction or function.

    `desc` is the description: one block in its loops, over buffers of constant shapes without strides.
    `impl` is the replacement: a program over the same buffers.  Its accesses become accesses to the matched
    windows.  If `impl` takes addresses, the strides of its buffers are requirements: constants must match,
    by-value parameters get the window's strides, and without strides the window must be row-major.  An
    `offset` that is a parameter gets the number of elements from the pointer to the window.

    `reference` takes an array for each buffer, in order, and updates those that are written.  The interpreter
    uses it for calls of an external symbol in `impl`.  `externs` has other functions by symbol, which get the
    arguments of the call; for a handle they get the memory from there on as a flat array.

    Raises UsageError if desc and impl do not match.
    """

    name: str
    desc: PrimFunc
    impl: PrimFunc
    reference: Callable[..., object]
    externs: Mapping[str, Callable[..., Any]] = field(default_factory=lambda: MappingProxyType({}))
    doc: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise UsageError("a tensor intrinsic without a name")
        if not callable(self.reference):
            raise UsageError(f"intrinsic {self.name}: the reference is not a function")
        if len(self.desc.buffers) != len(self.impl.buffers):
            raise UsageError(
                f"intrinsic {self.name}: desc has {len(self.desc.buffers)} buffers, "
                f"impl {len(self.impl.buffers)}"
            )
        for described, own in zip(self.desc.buffers, self.impl.buffers, strict=True):
            shape = described.static_shape()
            if shape is None or described.strides is not None:
                raise UsageError(
                    f"intrinsic {self.name}: buffer {described.name} of desc must be plain, of constant shape"
                )
            if (shape, described.dtype, described.scope) != (own.static_shape(), own.dtype, own.scope):
                raise UsageError(
                    f"intrinsic {self.name}: buffer {described.name} is {described!r} in {described.scope} "
                    f"in desc, and {own!r} in {own.scope} in impl"
                )
        known = {*self.layout_params, *(v for v in self.impl.scalars if v.name in self._scalars)}
        unknown = [v.name for v in self.impl.scalars if v not in known]
        if unknown:
            raise UsageError(
                f"intrinsic {self.name}: parameter {unknown[0]} of impl is no stride or offset of a buffer "
                "and no parameter of desc"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """Raises UsageError for functions that cannot be pickled, such as those inside of functions."""
        for function in (self.reference, *self.externs.values()):
            try:
                pickle.dumps(function)
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise UsageError(
                    f"the functions of intrinsic {self.name!r} cannot be pickled",
                    why=str(error),
                    hint="define them in a module, not inside of a function",
                ) from None
        return TensorIntrin, (self.name, self.desc, self.impl, self.reference, dict(self.externs), self.doc)

    @property
    def _scalars(self) -> set[str]:
        return {v.name for v in self.desc.scalars}

    @property
    def layout_params(self) -> dict[Var, tuple[Buffer, int | None]]:
        """Map by-value parameters of `impl` to (buffer, dim) of a stride, or (buffer, None) of an offset."""
        found: dict[Var, tuple[Buffer, int | None]] = {}
        for buffer in self.impl.buffers:
            for dim, stride in enumerate(buffer.strides or ()):
                if isinstance(stride, Var):
                    found.setdefault(stride, (buffer, dim))
            if isinstance(buffer.offset, Var):
                found.setdefault(buffer.offset, (buffer, None))
        return found

    def functions(self) -> dict[str, Callable[..., Any]]:
        """The Python functions of impl's external symbols, for the interpreter."""
        found = dict(self.externs)
        for call in _extern_calls(self.impl):
            symbol = call.name.removeprefix(EXTERN)
            found.setdefault(symbol, self._by_reference(call))
        return found

    def _by_reference(self, call: Call) -> Callable[..., Any]:
        """Make a function of a call's arguments that applies the reference to the arrays they describe."""
        handles: dict[Buffer, int] = {}
        for position, arg in enumerate(call.args):
            taken = arg.args[0] if isinstance(arg, Call) and arg.name == "address_of" else None
            if isinstance(taken, Load) and all(const_value(i) == 0 for i in taken.indices):
                handles[taken.buffer] = position
        scalars = {arg: position for position, arg in enumerate(call.args) if isinstance(arg, Var)}
        what = f"intrinsic {self.name}: the reference cannot stand for a call of {call.name}"
        for buffer in self.impl.buffers:
            if buffer not in handles:
                raise UsageError(f"{what}: it gets no address of {buffer.name}", hint="give it in externs")
            unknown = [v for s in buffer.strides or () for v in free_vars(s) if v not in scalars]
            if unknown:
                raise UsageError(
                    f"{what}: it does not get the stride {unknown[0].name}", hint="give it in externs"
                )

        def run(*args: Any) -> Any:
            env = {var: args[position] for var, position in scalars.items()}

            def number(expr: Expr) -> int:
                value = const_value(expr)
                return int(env[expr]) if isinstance(expr, Var) else int(value or 0)

            arrays = []
            for buffer in self.impl.buffers:
                flat = args[handles[buffer]]
                steps = [number(s) * flat.itemsize for s in buffer.element_strides()]
                arrays.append(np.lib.stride_tricks.as_strided(flat, buffer.static_shape(), steps))
            self.reference(*arrays)
            return 0

        return run

    def __repr__(self) -> str:
        return f"<tensor intrinsic {self.name}>"


def _extern_calls(func: PrimFunc) -> Iterator[Call]:
    for stmt in stmts(func.body):
        for e in post_order(*exprs_of(stmt)):
            if isinstance(e, Call) and e.name.startswith(EXTERN):
                yield e


__all__ = ["TensorIntrin"]
