"""Calls of foreign functions in tensor programs, and the implementations that code generators take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dlc_core.diag import CodegenError, ForeignError, UnsupportedError
from dlc_core.foreign.declare import CSymbol, ForeignFunction, Implementation, PythonCallable, Source
from dlc_core.foreign.needed import CALLBACK
from dlc_core.foreign.prototype import Param
from dlc_core.ir.expr import Call, Expr, Load, post_order
from dlc_core.support.record import record
from dlc_core.tir.functor import exprs_of, stmts
from dlc_core.tir.intrinsics import EXTERN, PURE_EXTERN, STATUS
from dlc_core.tir.stmt import Eval, Stmt


def foreign_name(expr: Expr) -> str | None:
    """The name of the function outside of the module that a call runs, or None."""
    if isinstance(expr, Call):
        for prefix in (EXTERN, PURE_EXTERN):
            if expr.name.startswith(prefix):
                return expr.name[len(prefix) :]
    return None


def foreign_calls(root: Stmt) -> Iterator[tuple[Call, Stmt]]:
    """The calls of functions outside of the module, each with the statement that it is in."""
    for stmt in stmts(root):
        for expr in exprs_of(stmt):
            if isinstance(expr, Call) or expr.children:
                for each in post_order(expr):
                    if isinstance(each, Call) and foreign_name(each) is not None:
                        yield each, stmt


def check_call(function: ForeignFunction, call: Call, stmt: Stmt, where: str) -> None:
    """Raise ForeignError unless a call fits the signature of its function, and may be where it is."""
    prototype = function.prototype
    what = f"{where}: the call of foreign function {function.name!r}"
    details = [f"call: {call}", f"signature: {prototype}"]
    if len(call.args) != len(prototype.params):
        why = f"it has {len(call.args)} arguments, and the function takes {len(prototype.params)}"
        raise ForeignError(f"{what} does not fit its signature", why=why, details=details)
    for number, (param, arg) in enumerate(zip(prototype.params, call.args)):
        found = _argument(param, arg)
        if found:
            why = f"argument {number} is {found}, and {param.name} is {_wanted(param)}"
            raise ForeignError(f"{what} does not fit its signature", why=why, details=details)
    result = prototype.result or STATUS
    if call.dtype.scalar is not result:
        hint = f'write dtype="{result}"'
        raise ForeignError(f"{what} has the dtype {call.dtype}, not {result}", details=details, hint=hint)
    is_statement = isinstance(stmt, Eval) and stmt.value is call
    if call.name.startswith(PURE_EXTERN) and not function.pure:
        hint = "write T.evaluate(T.call_extern(...)), or declare the function as pure"
        raise ForeignError(f"{what} assumes that it is pure, which it is not", details=details, hint=hint)
    if call.name.startswith(EXTERN) and not is_statement:
        hint = "write T.call_pure_extern" if function.pure else "write T.evaluate(T.call_extern(...))"
        raise ForeignError(f"{what} is part of an expression", details=details, hint=hint)


def _argument(param: Param, arg: Expr) -> str:
    """The kind of an argument that does not fit a parameter; empty if it fits."""
    if not param.is_pointer:
        return "" if arg.dtype.scalar is param.dtype else f"a value of {arg.dtype}"
    if arg.dtype.kind != "handle":
        return f"a value of {arg.dtype}"
    target = arg.args[0] if isinstance(arg, Call) and arg.name == "address_of" else None
    if isinstance(target, Load) and target.buffer.dtype is not param.dtype:
        return f"an address of {target.buffer.dtype}"
    return ""


def _wanted(param: Param) -> str:
    return f"an address of {param.dtype}" if param.is_pointer else f"a value of {param.dtype}"


@record(frozen=True)
class Chosen:
    """The implementation that a code generator takes, and the symbol that code calls."""

    function: ForeignFunction
    implementation: Implementation
    symbol: str

    @property
    def linked(self) -> bool:
        """Whether the symbol is defined outside of the generated code."""
        return not isinstance(self.implementation, Source)


def choose(
    function: ForeignFunction,
    languages: Sequence[str],
    where: str,
    *,
    links: bool,
    refusal: Callable[[Source], str] = lambda source: "",
) -> Chosen:
    """The first implementation that a code generator can use: text in one of its languages, or, if it `links`
    to this machine's functions, a symbol or a Python callable.

    `refusal` gives the reason why a text cannot be compiled. Raises UnsupportedError, which lists what there
    is.
    """
    details = []
    for one in function.implementations:
        why = ""
        if isinstance(one, Source) and one.language in languages:
            why = refusal(one)
            if not why:
                return Chosen(function, one, one.symbol)
        elif links and isinstance(one, CSymbol):
            return Chosen(function, one, one.symbol)
        elif links and isinstance(one, PythonCallable):
            return Chosen(function, one, CALLBACK + function.name.replace(".", "_"))
        details.append(f"it has {_described(one)}" + (f": {why}" if why else ""))
    wanted = [f"a Source in {language!r}" for language in languages]
    wanted += ["a CSymbol", "a PythonCallable"] if links else []
    raise UnsupportedError(
        f"{where} calls foreign function {function.name!r}, which has no implementation for this target",
        details=details,
        hint=f"add {' or '.join(wanted)}" if wanted else "this target calls no foreign functions",
    )


def _described(one: Implementation) -> str:
    match one:
        case Source():
            return f"a Source in {one.language!r}"
        case CSymbol():
            return f"the C symbol {one.symbol}"
    return "a Python callable"


def check_symbols(chosen: Sequence[Chosen]) -> None:
    """Raise CodegenError if two functions of one module have the same symbol."""
    owners: dict[str, Chosen] = {}
    for one in chosen:
        other = owners.setdefault(one.symbol, one)
        if other.function.name != one.function.name:
            names = f"{other.function.name!r} and {one.function.name!r}"
            raise CodegenError(
                f"the foreign functions {names} have the same symbol {one.symbol}",
                hint="they cannot be in one module; rename one symbol",
            )


def needed_entries(chosen: Sequence[Chosen]) -> list[list[str]]:
    """The functions that code must be linked to, as the entry `foreign` of an artefact's metadata: name,
    signature and symbol of each.
    """
    return [[c.function.name, str(c.function.prototype), c.symbol] for c in chosen if c.linked]


__all__ = [
    "Chosen",
    "check_call",
    "check_symbols",
    "choose",
    "foreign_calls",
    "foreign_name",
    "needed_entries",
]
