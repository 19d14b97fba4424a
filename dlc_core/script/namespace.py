"""`T`, `G` and `module`: programs written in Python files.

    from __future__ import annotations
    from dlc_core.script import T

    @T.prim_func
    def scale(A: T.Buffer((n,), "float32"), B: T.Buffer((n,), "float32"), n: T.int64):
        for i in T.parallel(n):
            B[i] = A[i] * 2.0

The decorators read the source of the decorated function, which is never executed. Numbers, strings and tuples
of the surrounding Python code can be used by name. Python evaluates annotations unless a file begins with the
future import. In files without it, symbolic dims, strides and offsets in annotations are quoted:
`T.Buffer(("n", 8), "float32", strides=("s", 1))`.
"""

from __future__ import annotations

import inspect
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any

from dlc_core.config import config
from dlc_core.diag import ScriptError
from dlc_core.graph.node import Function
from dlc_core.ir.dtype import scalar_dtypes
from dlc_core.ir.module import IRModule
from dlc_core.script.op_names import OpNames
from dlc_core.script.parser import MODULE_WORDS, parse
from dlc_core.tir.stmt import PrimFunc


class _Annotation:
    """The value of names in annotations that Python evaluates; it is not used."""

    def __call__(self, *_: Any, **__: Any) -> _Annotation:
        return self

    def __getitem__(self, _: Any) -> _Annotation:
        return self


class _Words:
    """The words of a level. Outside of a script only decorators and types can be used."""

    def __init__(self, level: str, types: Iterable[str]) -> None:
        self._level = level
        self._types = frozenset(types)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._types:
            return _Annotation()
        raise ScriptError(
            f"{self._level}.{name} is used outside a script",
            hint="scripts are read, not run: it belongs into a function with @T.prim_func or @G.function",
        )


class _T(_Words):
    def prim_func(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """The PrimFunc that a Python function describes. `check_well_formed=False` skips the verifier."""
        return _decorate(function, PrimFunc, options)


class _G(_Words):
    def function(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """The graph function that a Python function describes. Types that it leaves out are inferred."""
        return _decorate(function, Function, options)


T = _T("T", (*scalar_dtypes(), "dim", "handle", "Buffer"))
G = _G("G", ("Tensor", "Tuple", "dataflow"))


def module(cls: type[Any]) -> IRModule:
    """The module that a class of script functions describes: graph functions and tensor programs, which may
    call each other by name.
    """
    captured = {**vars(sys.modules[cls.__module__]), **_locals(sys._getframe(1))}
    made = _read(cls, captured, verify=True)
    assert isinstance(made, IRModule)
    return made


ir_module = module


def _decorate(function: Callable[..., Any] | None, kind: type[Any], options: Mapping[str, Any]) -> Any:
    if function is None:
        return lambda inner: _decorate(inner, kind, options)
    if _is_in_module(sys._getframe(2)):
        return function  # the decorator of the class reads the whole text
    # Names that only annotations mention are in no closure, so the caller's names are added.
    captured = {**getattr(function, "__globals__", {}), **_locals(sys._getframe(2))}
    closure = getattr(function, "__closure__", None) or ()
    for name, cell in zip(function.__code__.co_freevars, closure, strict=True):
        with suppress(ValueError):  # a cell that is not filled yet
            captured[name] = cell.cell_contents
    verify = options.get("check_well_formed", True) is not False
    made = _read(function, captured, verify=verify)
    if not isinstance(made, kind):
        raise ScriptError(f"{function.__name__} is a {type(made).__name__}, not a {kind.__name__}")
    return made


def _is_in_module(frame: FrameType) -> bool:
    """Whether a frame runs the body of a class that a decorator makes a module."""
    if "__qualname__" not in frame.f_locals:
        return False
    number = frame.f_code.co_firstlineno
    head = linecache.getline(frame.f_code.co_filename, number).strip()
    while head.startswith("@"):
        if head[1:].partition("(")[0].strip() in MODULE_WORDS:
            return True
        number += 1
        head = linecache.getline(frame.f_code.co_filename, number).strip()
    return False


def _locals(frame: FrameType) -> dict[str, Any]:
    """The names of a function that is running, also from the body of a class inside it."""
    found = dict(frame.f_locals)
    if "__qualname__" in found and frame.f_back is not None:
        found = {**frame.f_back.f_locals, **found}
    return found


def _read(thing: Any, captured: Mapping[str, Any], *, verify: bool) -> IRModule | Function | PrimFunc:
    try:
        lines, first = inspect.getsourcelines(thing)
        file = inspect.getsourcefile(thing) or "<script>"
    except (OSError, TypeError) as error:
        raise ScriptError(
            f"the source of {thing.__name__} cannot be read",
            why=str(error),
            hint="pass the text to parse(...)",
        ) from error
    whole = "".join(lines)
    indent = len(lines[0]) - len(lines[0].lstrip())
    try:
        return parse(
            textwrap.dedent(whole),
            captured=captured,
            file=file,
            first_line=max(1, first),
            indent=indent,
            verify=verify,
            ops=OpNames(strict=True),
        )
    except ScriptError as error:
        if config.debug:
            raise
        # The reader needs the position in the script, not in the parser.
        raise error.with_traceback(None) from None
