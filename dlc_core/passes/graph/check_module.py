"""Checks of a module that a user made, before a compile.

Without these checks, a user's mistake would be reported as a defect of the first pass that meets it. Calls by
name are checked here, the types of op nodes later by the pass `infer`.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlc_core.diag import DlcError, TypeInferenceError, UsageError, VerifyError, similar
from dlc_core.graph.node import STRUCTURAL, Function, Node, node, nodes_of, rewrite
from dlc_core.graph.verify import verify_module
from dlc_core.ir.module import IRModule
from dlc_core.ir.plan import without_plan
from dlc_core.ir.types import TupleType, Type, may_be_equal
from dlc_core.op.declare import OpDecl
from dlc_core.op.lookup import registered_ops
from dlc_core.op.std.control import call_types
from dlc_core.op.std.programs import CALL_TIR
from dlc_core.passes.graph.resolve_calls import calls_by_name
from dlc_core.passes.tir.bounds.ranges import overflowing_indices
from dlc_core.schedule.layout import REPACK
from dlc_core.tir.attributes import stated
from dlc_core.tir.interface import is_scheduled
from dlc_core.tir.stmt import EMPTY, PrimFunc
from dlc_core.tir.verify import find_problems
from dlc_core.tir.verify_axes import race_problems, undefined_results
from dlc_core.tir.verify_given import given_problems, recursive_kernels


def check_module(module: IRModule) -> IRModule:
    """Check functions, ops, tensor programs and calls by name. Returns the module, whose programs have only
    attributes that programs may state (`tir.attributes`).

    Raises VerifyError for functions that violate a rule of the verifiers, UsageError for an op without a
    declaration and for calls that do not fit, TypeInferenceError for their arguments.
    """
    module = _with_stated(module)
    _check_calls(module)
    verify_module(module)
    for n in nodes_of(*module.of_kind(Function).values()):
        if isinstance(n.op, OpDecl):
            _check_use(n, n.op)
        elif n.op.name not in STRUCTURAL:
            close = similar(n.op.name, registered_ops())
            raise UsageError(
                f"the op {n.op.name!r} is not declared",
                spans=n.spans,
                hint=f"did you mean {close[0]!r}?" if close else "`dlc.ops()` has the declared ops",
            )
        if n.op is CALL_TIR:
            check_program(n.attrs["program"])
            _check_results(n, n.attrs["program"])
    programs: dict[str, PrimFunc] = module.of_kind(PrimFunc)
    for func in programs.values():
        check_program(func, module.functions)
    return module


def _with_stated(module: IRModule) -> IRModule:
    """The module with the stated attributes of its programs."""
    changed: dict[str, Function | PrimFunc] = {}
    for name, value in module.functions.items():
        made = stated(value) if isinstance(value, PrimFunc) else _with_stated_programs(value)
        if made is not value:
            changed[name] = made
    return module.with_functions(changed) if changed else module


def _with_stated_programs(function: Function) -> Function:
    """The function, in which the programs of `call_tir` have their stated attributes."""
    if not any(
        n.op is CALL_TIR and stated(n.attrs["program"]) is not n.attrs["program"] for n in nodes_of(function)
    ):
        return function

    def cleaned(value: object) -> object:
        if isinstance(value, Function):
            return _with_stated_programs(value)
        return stated(value) if isinstance(value, PrimFunc) else value

    def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
        attrs = {name: cleaned(value) for name, value in old.attrs.items()}
        same = all(attrs[name] is value for name, value in old.attrs.items())
        return None if same else node(old.op, args, attrs, old.type)

    return function.with_body(rewrite(function.body, visit))


def _check_use(n: Node, decl: OpDecl) -> None:
    """Check the number of arguments and the attributes of a node against its op's declaration."""
    own = without_plan(n.attrs)
    try:
        decl.check_arity(len(n.args))
        decl.canonical_attrs(own)
    except TypeInferenceError as error:
        raise error.at(n.spans) from error.__cause__
    missing = [name for name in decl.attrs if name not in own]
    if missing:
        raise UsageError(f"a node of op {decl.name!r} has no attribute {missing[0]!r}", spans=n.spans)


def check_program(func: PrimFunc, functions: Mapping[str, object] = EMPTY) -> None:
    """Check a tensor program that a user made. `functions` are those of its module, which it may call.

    Raises VerifyError for violated rules of the verifiers, and UsageError for a schedule that requires a
    parameter in another layout.
    """
    layouts = func.attrs.get(REPACK, {})
    repacked = [p.name for i, p in enumerate(func.params) if isinstance(layouts, Mapping) and i in layouts]
    if repacked:
        raise UsageError(
            f"the schedule of {func.name!r} requires {', '.join(repacked)} in another layout",
            why="only constants of a model are rearranged before a call",
            hint="cache_read the parameter, and transform the layout of the copy",
        )
    problems = [problem.message for problem in find_problems(func)] or given_problems(func, functions)
    if not problems:
        problems = [f"the index {e} overflows" for e in overflowing_indices(func)]
    if not problems and func.name in recursive_kernels(functions):
        problems.append(f"kernel {func.name} calls itself")
    if not is_scheduled(func):
        problems += [message for message, _ in race_problems(func)]
    if problems:
        raise VerifyError(
            f"the tensor program {func.name} is not well formed", spans=func.spans, details=problems[:10]
        )


def _check_results(call: Node, func: PrimFunc) -> None:
    """Raise UsageError for a called program that reads its results before it writes them."""
    problems = [] if is_scheduled(func) else [message for message, _ in undefined_results(func)]
    if problems:
        raise UsageError(
            f"the program {func.name!r} updates its results in place",
            spans=call.spans,
            details=problems[:10],
            hint="give it the old values as an input, and write all elements of the results",
        )


def _check_calls(module: IRModule) -> None:
    """Raise UsageError for a call of a function that the module does not have, and for a result of another
    dtype, rank or size than recorded; TypeInferenceError for arguments that do not fit.
    """
    for name, function in module.of_kind(Function).items():
        for call in calls_by_name(function):
            symbol = call.attrs["symbol"]
            callee = module.functions.get(symbol)
            if callee is None:
                raise UsageError(
                    f"{name} calls {symbol!r}, which the module does not have",
                    spans=call.spans,
                    hint=f"it has: {', '.join(module.functions)}",
                )
            if isinstance(callee, PrimFunc) and "dims" not in call.attrs:
                _check_results(call, callee)
            try:
                found = _result_type(call, callee)
            except DlcError as error:
                raise error.at(call.spans) from error.__cause__
            if found is not None and not may_be_equal(found, call.type):
                raise UsageError(
                    f"the call of {symbol!r} in {name} is recorded as {call.type}, but gives {found}",
                    spans=call.spans,
                )


def _result_type(call: Node, callee: Function | PrimFunc) -> Type | None:
    """The type that a call gives. None if the call passes all by-value parameters, as passes make it."""
    types = [a.type for a in call.args]
    if isinstance(callee, Function):
        found = call_types(callee, types, call.attrs["symbol"])
        return TupleType(found) if isinstance(callee.body.type, TupleType) else found[0]
    if "dims" in call.attrs:
        return None
    return CALL_TIR.infer_type(types, {"program": callee, "scalars": call.attrs.get("scalars", ())})


__all__ = ["check_module", "check_program"]
