"""Further rules for programs that users give, as scripts or as objects: what they may call and address.

Code generators turn calls of kernels into calls of symbols, and addresses into pointers. These rules ensure
that such a program reaches only its own memory and its own module:
  * a called kernel is a PrimFunc of the module, and no kernel calls itself, directly or through others;
  * a call passes whole buffers that are not windows, are not smaller and not less aligned than the kernel's,
    and are different ones; and literals or own parameters with the same bounds for by-value parameters;
  * an address is passed to a call where it is taken; it is no value that is named, stored or converted;
  * launches, clocks and notes are made by passes alone;
  * a buffer has elements of one lane, an alignment that is a power of two, and integers as sizes.

The bounds of other accesses are proved or checked in every compile (`prove_bounds`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dlc_core.diag import DlcError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.conditions import conditions_of
from dlc_core.ir.dtype import HANDLE
from dlc_core.ir.expr import Call, Const, Expr, Load, Var, const_value, post_order, substitute
from dlc_core.ir.plan import Plan
from dlc_core.tir.functor import exprs_of, stmts
from dlc_core.tir.intrinsics import BULK, EXTERN, KERNEL, LAUNCH, NOTE, kernel_symbol
from dlc_core.tir.stmt import Alloc, Eval, PrimFunc, Stmt, View

MAX_ALIGN = 4096
"""The largest alignment of a buffer in bytes."""
_INTERNAL = frozenset({"clock", NOTE})
_KINDS = {"conditions": tuple, "plan": Plan, "repack": Mapping, "scheduled": bool}
"""The classes of attributes that programs may state."""
_TAKE_ADDRESSES = ("prefetch", BULK, EXTERN, KERNEL)


def given_problems(func: PrimFunc, functions: Mapping[str, object]) -> list[str]:
    """The violated rules. `functions` are those of the module."""
    found = [
        f"the attribute {name!r} is {func.attrs[name]!r}"
        for name, kind in _KINDS.items()
        if name in func.attrs and not isinstance(func.attrs[name], kind)
    ]
    if not found:
        found += _condition_problems(func)
    found += [message for b in func.buffers for message in _buffer_problems(b)]
    windows = {s.buffer for s in stmts(func.body) if isinstance(s, View)}
    for stmt in stmts(func.body):
        if isinstance(stmt, (Alloc, View)):
            found += _buffer_problems(stmt.buffer)
        if isinstance(stmt, Alloc) and const_value(stmt.buffer.offset) != 0:
            found.append(f"buffer {stmt.buffer.name} begins at an offset in its own memory")
        found += _address_problems(stmt)
        if isinstance(stmt, Eval) and (symbol := kernel_symbol(stmt.value)) is not None:
            assert isinstance(stmt.value, Call)
            found += _call_problems(func, stmt.value, functions.get(symbol), symbol, windows)
    return list(dict.fromkeys(found))


def _condition_problems(func: PrimFunc) -> Iterator[str]:
    try:
        conditions_of(func.attrs.get("conditions", ()))
    except (DlcError, TypeError, ValueError, LookupError) as error:
        yield f"the attribute 'conditions' has another row: {error}"


def recursive_kernels(functions: Mapping[str, object]) -> list[str]:
    """The programs of a module that call themselves, directly or through others."""
    calls = {name: _called(f.body) for name, f in functions.items() if isinstance(f, PrimFunc)}
    found = []
    for name in calls:
        seen: set[str] = set()
        work = list(calls[name])
        while work:
            one = work.pop()
            if one not in seen:
                seen.add(one)
                work += calls.get(one, ())
        if name in seen:
            found.append(name)
    return found


def _called(root: Stmt) -> list[str]:
    symbols = (kernel_symbol(s.value) for s in stmts(root) if isinstance(s, Eval))
    return [symbol for symbol in symbols if symbol is not None]


def _buffer_problems(buffer: Buffer) -> Iterator[str]:
    name, align = buffer.name, buffer.align
    if buffer.dtype.lanes != 1 or buffer.dtype is HANDLE:
        yield f"buffer {name} has elements of {buffer.dtype}"
    if align > MAX_ALIGN or align & (align - 1):
        yield f"buffer {name} is aligned to {align} bytes, which is no power of two up to {MAX_ALIGN}"
    sizes = (*buffer.shape, *(buffer.strides or ()), buffer.offset)
    if any(not e.dtype.is_int or e.dtype.lanes != 1 for e in sizes):
        yield f"a size of buffer {name} is no integer"


def _address_problems(stmt: Stmt) -> Iterator[str]:
    roots = exprs_of(stmt)
    for e in roots:
        if e.dtype is HANDLE:
            yield f"the address {e} is a value"
    for e in post_order(*roots):
        if isinstance(e, Call) and (e.name in _INTERNAL or e.name.startswith(LAUNCH)):
            yield f"the intrinsic {e.name} is for passes alone"
        for child in e.children:
            if child.dtype is HANDLE and not (_takes_addresses(e) and _is_address(child)):
                yield f"the address {child} is a value in {e}"
        if isinstance(e, Call) and e.name.startswith(KERNEL) and e not in roots:
            yield f"the call {e} is part of an expression"


def _takes_addresses(e: Expr) -> bool:
    return isinstance(e, Call) and e.name.startswith(_TAKE_ADDRESSES)


def _is_address(e: Expr) -> bool:
    return isinstance(e, Call) and e.name == "address_of" and isinstance(e.args[0], Load)


def _call_problems(
    func: PrimFunc, call: Call, kernel: object, symbol: str, windows: set[Buffer]
) -> Iterator[str]:
    if not isinstance(kernel, PrimFunc):
        yield f"a call of kernel {symbol}, which the module does not have"
        return
    if len(call.args) != len(kernel.params):
        yield f"kernel {symbol} takes {len(kernel.params)} arguments, not {len(call.args)}"
        return
    pairs = list(zip(kernel.params, call.args, strict=True))
    scalars = {p: a for p, a in pairs if isinstance(p, Var) and p.dtype is a.dtype}
    passed: list[Buffer] = []
    for param, arg in pairs:
        what = f"argument {param.name} of kernel {symbol}"
        if isinstance(param, Var):
            if param.dtype is not arg.dtype or not _fits(param, arg, func.scalars):
                yield f"{what} is {arg}: pass a literal, or a parameter with the same bounds"
            continue
        address = arg.args[0] if isinstance(arg, Call) and _is_address(arg) else None
        if not isinstance(address, Load) or any(const_value(i) != 0 for i in address.indices):
            yield f"{what} is {arg}: pass a whole buffer"
            continue
        given = address.buffer
        passed.append(given)
        if given in windows or not _contains(given, param, scalars):
            yield f"{what} is {param!r}, and {given!r} is passed: pass a buffer of this shape and dtype"
    if len(set(passed)) < len(passed):
        yield f"kernel {symbol} gets a buffer twice"


def _fits(param: Var, arg: Expr, own: Iterable[Var]) -> bool:
    """Whether a by-value argument is in the bounds of a parameter. Parameters are not negative."""
    bounds = param.bounds
    low, high = (0, None) if bounds is None else (max(0, bounds.low), bounds.high)
    if isinstance(arg, Const) and arg.dtype.is_int:
        return bool(low <= arg.value and (high is None or arg.value <= high))
    return isinstance(arg, Var) and arg in own and (bounds is None or arg.bounds == bounds)


def _contains(given: Buffer, param: Buffer, scalars: Mapping[Var, Expr]) -> bool:
    """Whether a buffer has the memory that a kernel's parameter has."""
    plain = all(b.strides is None and const_value(b.offset) == 0 for b in (given, param))
    same = given.dtype is param.dtype and given.scope == param.scope and given.align >= param.align
    shape = tuple(substitute(d, scalars) for d in param.shape)
    return plain and same and shape == tuple(given.shape)


__all__ = ["given_problems", "recursive_kernels"]
