"""The reference interpreter of PrimFuncs. It defines their semantics; speed is secondary.

A PrimFunc is translated to a Python function once, and the function is cached. Semantics:

* Floats are rounded to their dtype after each operation, integers wrap, loops of every kind run one after
  another.
* Fresh memory holds NaN (floats) or a pattern (integers); `check=True` reports the first read of undefined
  memory and any conflict between iterations of parallel, vectorized or thread loops.  `reverse=True` runs
  those loops backwards.
* Barriers synchronise the threads of each group (`tir/threads.py`). Accesses that a barrier orders are no
  race. A barrier that only some threads reach is a failure.
* Every access is checked against the buffer's shape, every block axis against its domain, unless the
  translation proves it.  Failures are `RuntimeFailure` with the buffer, the indices, the statement, its
  block and the loop variables.
* Index arithmetic with symbolic dims is assumed to stay below 2**40.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from dlc_core.arith import eval_expr
from dlc_core.diag import RuntimeFailure, UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.convert import convert, widened
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, Var, const, const_value, ramp, substitute
from dlc_core.ir.module import IRModule
from dlc_core.tir.interpreter.stmts import Program
from dlc_core.tir.interpreter.storage import CheckedMemory, Memory, Races, of_array
from dlc_core.tir.scopes import oversized
from dlc_core.tir.stmt import PrimFunc, Store
from dlc_core.tir.threads import launch_axes

Array = np.ndarray[Any, Any]
Extern = Callable[..., Any]
NO_CAPACITIES: Mapping[str, int] = MappingProxyType({})
_programs: weakref.WeakKeyDictionary[PrimFunc, dict[tuple[bool, bool], Program]] = weakref.WeakKeyDictionary()


def run(
    func: PrimFunc,
    *args: Array | int | float | bool,
    module: IRModule | None = None,
    externs: Mapping[str, Extern] | None = None,
    check: bool = False,
    reverse: bool = False,
    capacities: Mapping[str, int] = NO_CAPACITIES,
) -> None:
    """Run a PrimFunc. Each buffer parameter is an array that is changed in place; each scalar is a number.

    Trailing scalars may be omitted if they are dims of the arrays. An array has the buffer's shape and dtype;
    for a buffer with strides it is the flat memory from the pointer on. `module` has the kernels of
    `kernel.*` calls. `externs` has the functions of `extern.*` calls. They get NumPy arrays for handles, and
    are assumed to write all elements of these. `capacities` are the bytes of memory scopes, such as
    `Description.capacities`. Raises UsageError for wrong arguments, and RuntimeFailure for an error in the
    program, or for buffers that exceed their scope.
    """
    kernels_of_module = module.of_kind(PrimFunc).values() if module is not None else ()
    for each in (func, *kernels_of_module) if capacities else ():
        for buffer, size, free in oversized(each.body, capacities):
            raise RuntimeFailure(
                f"{each.name}: {buffer.name} of {size:,} bytes does not fit the scope {buffer.scope!r}",
                why=f"{free:,} of its {capacities[buffer.scope]:,} bytes are free",
            )
    races = Races() if check else None
    values = bind_arguments(func, args)
    pointers: list[Any] = []
    copies: list[tuple[Array, Array]] = []
    for param, value in zip(func.params, values, strict=True):
        if isinstance(param, Buffer):
            memory = np.ascontiguousarray(value)
            if not value.flags.c_contiguous:
                copies.append((value, memory))
            pointers.append((of_array(memory, races), 0, param.dtype))
        else:
            pointers.append(value)
    kernels = _Kernels(module, externs or {}, races, reverse)
    with np.errstate(all="ignore"):
        kernels.bound(func)(*pointers)
    for original, memory in copies:
        if original.flags.writeable:
            original[...] = memory


def evaluate(
    expr: Expr,
    values: Mapping[Var, int | float | bool] | None = None,
    arrays: Mapping[Buffer, Array] | None = None,
) -> Any:
    """The value of an expression: a Python number, or a list of numbers for a vector."""
    lanes = expr.dtype.lanes
    result = Buffer("result", (lanes,), expr.dtype.scalar)
    scalars = tuple(values or {})
    buffers = tuple(arrays or {})
    body = Store(result, (ramp(0, 1, lanes),), expr)
    out = np.zeros(lanes, expr.dtype.numpy)
    inputs = [(arrays or {})[b] for b in buffers]
    run(PrimFunc("evaluate", (result, *buffers, *scalars), body), out, *inputs, *(values or {}).values())
    listed = (convert(out, "float64") if expr.dtype.is_float else widened(out)).tolist()
    return listed if lanes > 1 else listed[0]


def source(func: PrimFunc) -> str:
    """The Python text that runs a PrimFunc, for inspection."""
    return _program(func, checked=False, reverse=False).source


class _Kernels(dict[str, Callable[..., int]]):
    """Programs of one run by symbol, translated when first called."""

    def __init__(
        self, module: IRModule | None, externs: Mapping[str, Extern], races: Races | None, reverse: bool
    ) -> None:
        super().__init__()
        self.module = module
        self.externs = externs
        self.races = races
        self.reverse = reverse

    def bound(self, func: PrimFunc) -> Callable[..., int]:
        program = _program(func, checked=self.races is not None, reverse=self.reverse)
        return program.bind(self, self.extern, self.races)

    def __missing__(self, symbol: str) -> Callable[..., int]:
        func = None if self.module is None else self.module.functions.get(symbol)
        if not isinstance(func, PrimFunc):
            known = (
                ", ".join(self.module.of_kind(PrimFunc)) if self.module is not None else "no module was given"
            )
            raise UsageError(
                f"the program calls kernel {symbol!r}, which is not there", hint=f"kernels: {known}"
            )
        self[symbol] = self.bound(func)
        return self[symbol]

    def launch(self, symbol: str, *args: Any) -> int:
        """Run a kernel. The extents of its thread axes follow its arguments."""
        kernel = self[symbol]
        assert self.module is not None
        func = self.module.functions[symbol]
        assert isinstance(func, PrimFunc)
        count = len(func.params)
        values = dict(zip(func.params, args))
        scalars = {var: values[var] for var in func.scalars}
        axes = launch_axes(func)
        found = [int(eval_expr(extent, scalars)) for extent in axes.values()]
        if found != list(args[count:]):
            raise RuntimeFailure(
                f"{symbol} is launched over ({', '.join(map(str, args[count:]))})",
                why=f"its axes {', '.join(axes)} have the extents ({', '.join(map(str, found))})",
            )
        return kernel(*args[:count])

    def extern(self, symbol: str, *args: Any) -> Any:
        function = self.externs.get(symbol)
        if function is None:
            known = ", ".join(self.externs) or "none"
            raise UsageError(
                f"the program calls extern {symbol!r}, which was not given", hint=f"given: {known}"
            )
        result = function(*(_as_array(arg) if isinstance(arg, tuple) else arg for arg in args))
        for arg in args:
            if isinstance(arg, tuple) and isinstance(arg[0], CheckedMemory):
                arg[0].define(arg[1])
        return result


def _as_array(pointer: tuple[Memory, int, DType]) -> Array:
    """The memory from a pointer on, as a flat array."""
    memory, offset, type_ = pointer
    size = type_.numpy.itemsize
    rest = memory.bytes[offset:]
    return np.frombuffer(rest[: len(rest) // size * size], type_.numpy)


def _program(func: PrimFunc, *, checked: bool, reverse: bool) -> Program:
    cached = _programs.setdefault(func, {})
    key = (checked, reverse)
    if key not in cached:
        cached[key] = Program(func, checked=checked, reverse=reverse)
    return cached[key]


def bind_arguments(func: PrimFunc, args: Sequence[Any]) -> list[Any]:
    """The values of all parameters: the given ones, then scalars that follow from the arrays' shapes.

    Raises UsageError, which names the parameter, for a wrong number, type, dtype or shape, and for a dim that
    is not within its bounds.
    """
    if len(args) > len(func.params):
        raise UsageError(f"{func.name} takes {len(func.params)} arguments, not {len(args)}")
    given: dict[Buffer | Var, Any] = dict(zip(func.params, args))
    found: dict[Var, Any] = {}
    for param, value in given.items():
        if isinstance(param, Var):
            found[param] = _number(param, value)
        else:
            _check_array(param, value)
    for param, value in given.items():
        if isinstance(param, Buffer) and param.strides is None:
            for dim, extent in zip(param.shape, value.shape, strict=True):
                if isinstance(dim, Var):
                    found.setdefault(dim, extent)
    missing = [p.name for p in func.params if p not in given and p not in found]
    if missing:
        raise UsageError(f"{func.name} lacks values for {', '.join(missing)}")
    for var, value in found.items():
        if var.bounds is not None and not var.bounds.admits(int(value)):
            raise UsageError(f"{var.name} is {value}, and {func.name} takes {var.name} in {var.bounds}")
    env = {var: const(value, var.dtype) for var, value in found.items() if not var.dtype.is_float}
    for param, value in given.items():
        if isinstance(param, Buffer) and param.strides is None:
            shape = tuple(const_value(substitute(dim, env)) for dim in param.shape)
            if shape != value.shape:
                raise UsageError(f"array for {param.name} has shape {value.shape}, not {shape}")
    return [given[p] if isinstance(p, Buffer) else found[p] for p in func.params]


def _number(param: Var, value: Any) -> int | float | bool:
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (bool, int, float)):
        raise UsageError(f"{param.name} takes a number, not {type(value).__name__}")
    return const(value, param.dtype).value


def _check_array(param: Buffer, value: Any) -> None:
    if not isinstance(value, np.ndarray):
        raise UsageError(f"{param.name} takes an array, not {type(value).__name__}")
    if DType.of(value.dtype) is not param.dtype:
        raise UsageError(f"array for {param.name} has dtype {value.dtype}, not {param.dtype}")
    rank = 1 if param.strides is not None else param.ndim
    if value.ndim != rank:
        flat = " (the flat memory of a buffer with strides)" if param.strides is not None else ""
        raise UsageError(f"array for {param.name} has {value.ndim} dims, not {rank}{flat}")
