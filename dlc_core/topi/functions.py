"""Functions of ops: signature, defaults and documentation come from the declaration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dlc_core.diag import TypeInferenceError, similar
from dlc_core.ir.dtype import DType
from dlc_core.op.declare import REQUIRED, Attr, OpDecl
from dlc_core.topi.apply import apply

LISTS = ("ints", "dims", "floats")
"""Kinds of attributes for which one number stands for a list of one."""

if TYPE_CHECKING:
    _Kind = inspect._ParameterKind


@lru_cache(maxsize=1024)
def function_of(
    decl: OpDecl, name: str = "", renamed: tuple[tuple[str, str], ...] = ()
) -> Callable[..., Any]:
    """The function of an op: tensors in, tensors out.

    `name` is its name if that differs from the op's. `renamed` are pairs of an input or attribute and its
    name as a parameter.
    """
    names = dict(renamed)
    signature = signature_of(decl, names)
    called = name or decl.name

    def function(*args: Any, **attrs: Any) -> Any:
        operands, values = _arguments(decl, called, signature, names, args, attrs)
        return apply(decl, operands, values)

    function.__name__ = function.__qualname__ = called
    function.__module__ = "dlc_core.topi"
    function.__doc__ = documentation(decl, called, names)
    function.__dict__["__signature__"] = signature
    function.__dict__["decl"] = decl
    return function


def signature_of(decl: OpDecl, names: Mapping[str, str]) -> inspect.Signature:
    """The parameters of an op's function: its inputs, then its attributes.

    After a parameter with a default, those without one are given by keyword, and so are all after `*inputs`.
    """
    parameters = []
    kind: _Kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    defaults = False
    for text in decl.inputs:
        own = text.strip("*?")
        if text.startswith("*"):
            parameters.append(inspect.Parameter(names.get(own, own), inspect.Parameter.VAR_POSITIONAL))
            kind = inspect.Parameter.KEYWORD_ONLY
            continue
        default = None if text.endswith("?") else inspect.Parameter.empty
        defaults = defaults or default is None
        parameters.append(inspect.Parameter(names.get(own, own), kind, default=default))
    for attr in decl.attrs.values():
        required = attr.default is REQUIRED
        if required and defaults:
            kind = inspect.Parameter.KEYWORD_ONLY
        defaults = defaults or not required
        default = inspect.Parameter.empty if required else _shown(attr.default)
        parameters.append(inspect.Parameter(names.get(attr.name, attr.name), kind, default=default))
    return inspect.Signature(parameters, return_annotation=inspect.Signature.empty)


def documentation(decl: OpDecl, called: str, names: Mapping[str, str]) -> str:
    """The docstring of an op's function, which is called `called`."""
    lines = [decl.doc.strip()]
    if decl.inputs:
        lines += ["", "Tensors (te tensors, or numbers of no dims):", *map(_input_line(names), decl.inputs)]
    if decl.attrs:
        lines += ["", "Attributes:", *(_attr_line(attr, names) for attr in decl.attrs.values())]
    lines += ["", f"Dtypes: {', '.join(decl.dtypes)}"]
    lines += ["", "Returns a te tensor, or a tuple of them if the op has several results. Raises"]
    lines += ["TypeInferenceError for arguments that do not fit."]
    if decl.name != called:
        lines += ["", f"The op is {decl.name!r}."]
    return "\n".join(lines)


def _shown(default: Any) -> Any:
    """A default as users write it."""
    return default.name if isinstance(default, DType) else default


def _input_line(names: Mapping[str, str]) -> Callable[[str], str]:
    def line(text: str) -> str:
        own = text.strip("*?")
        note = " (any number)" if text.startswith("*") else " (optional)" if text.endswith("?") else ""
        return f"    {names.get(own, own)}{note}"

    return line


def _attr_line(attr: Attr, names: Mapping[str, str]) -> str:
    default = "" if attr.default is REQUIRED else f" = {_shown(attr.default)!r}"
    choices = f"one of {', '.join(map(repr, attr.choices))}" if attr.choices else ""
    told = "; ".join(filter(None, (attr.help, choices)))
    return f"    {names.get(attr.name, attr.name)}: {attr.kind}{default}{f': {told}' if told else ''}"


def _arguments(
    decl: OpDecl,
    called: str,
    signature: inspect.Signature,
    names: Mapping[str, str],
    args: Sequence[Any],
    attrs: Mapping[str, Any],
) -> tuple[list[Any], dict[str, Any]]:
    """The operands and the attributes of a call."""
    unknown = [each for each in attrs if each not in signature.parameters]
    if unknown:
        near = similar(unknown[0], signature.parameters)
        suggestion = f"did you mean {near[0]!r}? " if near else ""
        raise TypeInferenceError(
            f"{called}: unknown argument {unknown[0]!r}", hint=f"{suggestion}{called}{signature}"
        )
    variadic = bool(decl.inputs) and decl.inputs[-1].startswith("*")
    if variadic and len(args) == 1 and isinstance(args[0], (list, tuple)):
        args = tuple(args[0])
    try:
        bound = signature.bind(*args, **attrs).arguments
    except TypeError as error:
        raise TypeInferenceError(f"{called}: {error}", hint=f"{called}{signature}") from None
    own = {names.get(name, name): name for name in (*_inputs(decl), *decl.attrs)}
    given = {own[parameter]: value for parameter, value in bound.items()}
    operands: list[Any] = []
    for name in _inputs(decl):
        operands += given.pop(name, ()) if variadic and name == _inputs(decl)[-1] else [given.pop(name, None)]
    while operands and operands[-1] is None and len(operands) > _required(decl):
        operands.pop()
    return operands, {name: _listed(decl.attrs[name], value) for name, value in given.items()}


def _inputs(decl: OpDecl) -> list[str]:
    return [text.strip("*?") for text in decl.inputs]


def _required(decl: OpDecl) -> int:
    return sum(1 for text in decl.inputs if text[0] != "*" and text[-1] != "?")


def _listed(attr: Attr, value: Any) -> Any:
    """The value of an attribute; a number stands for a list of one, a dtype may be text."""
    if attr.kind in LISTS and value is not None and not isinstance(value, (list, tuple)):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


__all__ = ["documentation", "function_of", "signature_of"]
