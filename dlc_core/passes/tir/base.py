"""Base classes of passes that transform each PrimFunc independently, and a decorator that makes a pass of a
function.

@prim_func_pass(position="loops")
def twice(func, *, times: int = 2): ...

twice(times=3)(func)                              the pass on a program, or on a module
PassContext(passes=[twice(times=3)])              in every compile of this context
@hookimpl
def dlc_passes(): return [twice]                  in every compile, as part of a plugin
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import field, make_dataclass
from typing import Any, ClassVar, get_type_hints, overload

from dlc_core.cancel import checkpoint
from dlc_core.decisions import DECISIONS, Choice, is_forcing, scope
from dlc_core.diag import UsageError
from dlc_core.ir.module import IRModule
from dlc_core.passes.base import Pass, PassContext
from dlc_core.passes.positions import class_position
from dlc_core.support.record import record
from dlc_core.tir.stmt import PrimFunc


def map_prim_funcs(module: IRModule, change: Callable[[PrimFunc], PrimFunc]) -> IRModule:
    """Apply `change` to each PrimFunc of a module. Return the same module if none changes."""
    funcs: dict[str, PrimFunc] = module.of_kind(PrimFunc)
    changed = {name: change(func) for name, func in funcs.items()}
    if all(changed[name] is funcs[name] for name in funcs):
        return module
    return module.with_functions(changed)


@record(frozen=True)
class PrimFuncPass(Pass):
    """A pass that transforms each PrimFunc independently. It can be called with a PrimFunc or with a module.

    The choices that it makes for a PrimFunc are added to the attribute `decisions`, if the function has this
    attribute or any decision is forced.
    """

    stage: ClassVar[str] = "tir"
    separate: ClassVar[bool] = True

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        """Return the new program."""
        raise NotImplementedError(f"{type(self).__name__}.run_function")

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        def run(func: PrimFunc) -> PrimFunc:
            checkpoint()
            with scope(func.name) as choices:
                result = self.run_function(func, context)
            if not choices or not (DECISIONS in result.attrs or is_forcing()):
                return result  # no decisions to record: an unchanged program stays the same object
            known = result.attrs.get(DECISIONS, ())
            heads = {str(Choice.parse(text)) for text in known}
            new = [choice.full() for choice in choices if str(choice) not in heads]
            return result.with_attrs(**{DECISIONS: (*known, *new)}) if new else result

        return map_prim_funcs(module, run)

    @overload
    def __call__(self, program: PrimFunc, context: PassContext | None = None) -> PrimFunc: ...
    @overload
    def __call__(self, program: IRModule, context: PassContext | None = None) -> IRModule: ...
    def __call__(self, program: PrimFunc | IRModule, context: PassContext | None = None) -> Any:
        """Run this pass alone, in a context (by default the current one)."""
        context = PassContext.current() if context is None else context
        if isinstance(program, IRModule):
            return self.run(program, context)
        return self.run(IRModule({program.name: program}, entry=program.name), context)[program.name]


def prim_func_pass(
    *, name: str = "", position: str = "", min_level: int = 0, exact: bool = True
) -> Callable[[Callable[..., PrimFunc]], type[PrimFuncPass]]:
    """Make a function from PrimFunc to PrimFunc a pass class.

    `name` defaults to the function's name.  `position` is a phase of tensor lowering ("scheduled", "loops",
    "flat", "final"), "before NAME", "after NAME", "begin STAGE" or "end STAGE"; without it the pass runs only
    on request.  Keyword-only parameters, which need defaults and types, are the options of the pass; one
    called `context` gets the PassContext.  Raises UsageError for unsuitable functions and positions.
    """
    attrs = class_position(position) if position else {}

    def made(function: Callable[..., PrimFunc]) -> type[PrimFuncPass]:
        options, wants_context = _options(function)
        types = get_type_hints(function)
        fields = [(p.name, types.get(p.name, Any), field(default=p.default)) for p in options]

        def run_function(self: PrimFuncPass, func: PrimFunc, context: PassContext) -> PrimFunc:
            given = {p.name: getattr(self, p.name) for p in options}
            result = function(func, **given, **({"context": context} if wants_context else {}))
            if not isinstance(result, PrimFunc):
                raise UsageError(
                    f"pass {self.name!r} returns a {type(result).__name__} for {func.name}",
                    hint="return the program, also if it is unchanged",
                )
            return result

        about = {"min_level": min_level, "exact": exact, "name": name or function.__name__}
        namespace = {"run_function": run_function, "__doc__": function.__doc__, **about, **attrs}
        cls = make_dataclass(
            function.__name__, fields, bases=(PrimFuncPass,), frozen=True, namespace=namespace
        )
        cls.__module__, cls.__qualname__ = function.__module__, function.__qualname__
        return cls

    return made


def _options(function: Callable[..., PrimFunc]) -> tuple[list[inspect.Parameter], bool]:
    parameters = list(inspect.signature(function).parameters.values())
    first, rest = parameters[:1], parameters[1:]
    options = [p for p in rest if p.name != "context"]
    fits = bool(first) and first[0].kind in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    named = all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in options)
    if not fits or not named:
        raise UsageError(
            f"{function.__name__} does not fit as a pass",
            hint="write def name(func, *, option: int = 1, context): with a default for each option",
        )
    return options, len(options) < len(rest)


__all__ = ["PrimFuncPass", "map_prim_funcs", "prim_func_pass"]
