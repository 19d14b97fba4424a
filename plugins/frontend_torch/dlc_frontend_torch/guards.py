"""Guards of torch as conditions on dims: `guard_conditions`.

torch.export takes the branches and broadcasts of the example sizes, and records what it relied on as guards:
ranges of symbols, and Python texts such as "L['x'].size()[0] % 8 == 0" over the arguments of `forward`. A
compiled program checks the same in each call. The texts are parsed, never executed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree
from torch.utils._sympy import functions as sizes

from dlc_core.diag import DlcError, UnsupportedError
from dlc_core.graph.node import Function
from dlc_core.ir.conditions import Condition, holding
from dlc_core.passes.graph.dim_conditions import determined_dims
from dlc_frontend_torch.locating import span_of
from dlc_frontend_torch.symbols import Symbols

_SCOPE = re.compile(r"\bL\['(?P<name>\w+)'\]")
_NUMBERED = re.compile(r"(?P<name>.+)_(?P<index>\d+)")
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: sizes.FloorDiv,
    ast.Mod: sizes.PythonMod,
    ast.Div: sizes.IntTrueDiv,
    ast.Pow: lambda a, b: a**b,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: sympy.Eq,
    ast.NotEq: sympy.Ne,
    ast.Lt: sympy.StrictLessThan,
    ast.LtE: sympy.LessThan,
    ast.Gt: sympy.StrictGreaterThan,
    ast.GtE: sympy.GreaterThan,
}
_MATH: Mapping[str, Callable[..., Any]] = {
    "trunc": sizes.TruncToInt,
    "floor": sizes.FloorToInt,
    "ceil": sizes.CeilToInt,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "max": sizes.Max,
    "min": sizes.Min,
    "float": sizes.ToFloat,
    "FloorDiv": sizes.FloorDiv,
    "PythonMod": sizes.PythonMod,
    "Mod": sizes.Mod,
    "CleanDiv": sizes.CleanDiv,
    "ModularIndexing": sizes.ModularIndexing,
    "Where": sizes.Where,
}


def guard_conditions(
    program: ExportedProgram, original: ExportedProgram, symbols: Symbols
) -> Iterator[Condition]:
    """The guards of a program as conditions on the dims of its inputs, in order. `original` is the program
    before it was decomposed, which has guards of its own.

    Raises UnsupportedError for a guard that is no integer arithmetic, because a program without it could
    compute a branch that torch did not trace.
    """
    texts = [text for each in (original, program) for text in getattr(each, "_guards_code", ())]
    found = _parsed(program, texts) if hasattr(program, "_guards_code") else _recorded(program)
    for cond, text in found:
        try:
            made = symbols.condition(cond)
        except UnsupportedError as error:
            raise _unsupported(text, error.what) from error
        yield holding(made, f"torch guards {text}")
    for size, known in program.range_constraints.items():
        if not size.is_symbol:
            for limit, cond in ((known.lower, size >= known.lower), (known.upper, size <= known.upper)):
                if limit.is_Integer:
                    yield holding(symbols.condition(cond), f"torch knows {size} in {known}")


def check_guards(program: ExportedProgram) -> None:
    """Raise UnsupportedError if a guard is not arithmetic of sizes of inputs. torch executes guards as Python
    code when it traces a program again, and a file may have any text as a guard.
    """
    for _ in _parsed(program, getattr(program, "_guards_code", ())):
        pass


def unknown_conditions(
    function: Function, conditions: Iterable[tuple[Any, Condition]]
) -> list[tuple[Any, DlcError]]:
    """The nodes whose conditions depend on numbers that a function neither gets nor makes, with errors."""
    known = determined_dims(function)
    return [
        (
            node,
            UnsupportedError(
                f"the assertion {condition.why!r} on a number that no tensor has", spans=[span_of(node)]
            ),
        )
        for node, condition in conditions
        if not known.issuperset(condition.dims)
    ]


def _parsed(program: ExportedProgram, texts: Iterable[str]) -> Iterator[tuple[Any, str]]:
    """The guards of texts as expressions of sympy, with the texts for messages."""
    reader = _Reader(_arguments(program))
    for text in dict.fromkeys(texts):
        shown = _without_scope(text)
        try:
            yield reader.read(ast.parse(text.strip(), mode="eval").body), shown
        except (SyntaxError, RecursionError, KeyError, TypeError, ValueError) as error:
            raise _unsupported(shown, str(error)) from error


def _recorded(program: ExportedProgram) -> Iterator[tuple[Any, str]]:
    """The guards that the symbols of a program recorded, for torch before 2.9, which has no texts. Programs
    that were read from files have none of them. torch before 2.8 does not make all of its deferred
    assertions nodes of the graph; those about sizes of inputs have the key None.
    """
    for place in program.graph.nodes:
        value = place.meta.get("val") if place.op == "placeholder" else None
        for size in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(size, torch.SymInt):
                env = size.node.shape_env
                for guard in (*env.guards, *env.deferred_runtime_asserts.get(None, ())):
                    yield guard.expr.xreplace(env.replacements), str(guard.expr)
                return


def _arguments(program: ExportedProgram) -> dict[str, Any]:
    """The fake values of the inputs by the names that guards have for them, such as "L['x']['k'][0]"."""
    user = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    given = [values.get(getattr(spec.arg, "name", None)) for spec in user]
    found = {f"L['flat_args'][{index}]": value for index, value in enumerate(given)}
    found.update((f"L[{spec.arg.name!r}]", value) for spec, value in zip(user, given))
    spec = program.call_spec.in_spec
    signature = program.module_call_graph[0].signature if program.module_call_graph else None
    names = None if signature is None else signature.forward_arg_names
    if spec is None or names is None or spec.num_leaves != len(given):
        return found
    paths, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(spec.num_leaves)), spec))
    for (path, _), value in zip(paths, given, strict=True):
        where, key = path[0].idx, path[1]
        name = names[key.idx] if where == 0 else key.key
        rest = pytree.keystr(path[2:])
        found[f"L[{name!r}]{rest}"] = value
        numbered = _NUMBERED.fullmatch(name)
        if numbered is not None:  # one of *args
            found.setdefault(f"L[{numbered['name']!r}][{numbered['index']}]{rest}", value)
    return found


class _Reader:
    """Reads the syntax trees of guards. `arguments` are fake values by name."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = arguments

    def read(self, e: ast.expr) -> Any:
        """An expression of sympy. Raises KeyError for other names, and ValueError for other syntax."""
        if isinstance(e, ast.Constant) and isinstance(e.value, (bool, int, float)):
            return sympy.sympify(e.value)
        if isinstance(e, ast.BinOp):
            return _BINARY[type(e.op)](self.read(e.left), self.read(e.right))
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, (ast.USub, ast.Not)):
            inner = self.read(e.operand)
            return -inner if isinstance(e.op, ast.USub) else sympy.Not(inner)
        if isinstance(e, ast.BoolOp):
            join = sympy.And if isinstance(e.op, ast.And) else sympy.Or
            return join(*map(self.read, e.values))
        if isinstance(e, ast.Compare):
            sides = [self.read(each) for each in (e.left, *e.comparators)]
            pairs = zip(e.ops, sides, sides[1:])
            return sympy.And(*(_COMPARE[type(op)](one, other) for op, one, other in pairs))
        if isinstance(e, ast.Call) and isinstance(e.func, ast.Name):
            return _FUNCTIONS[e.func.id](*map(self.read, e.args))
        if isinstance(e, ast.Call) and isinstance(e.func, ast.Attribute) and _is_name(e.func.value, "math"):
            return _MATH[e.func.attr](*map(self.read, e.args))
        return self._size(e)

    def _size(self, e: ast.expr) -> Any:
        """A size, a stride or the offset of an argument, or an argument that is a number."""
        axis = None
        if isinstance(e, ast.Subscript) and isinstance(e.value, ast.Call):
            axis, e = ast.literal_eval(e.slice), e.value
        if isinstance(e, ast.Call) and isinstance(e.func, ast.Attribute) and not e.args:
            if e.func.attr not in ("size", "stride", "storage_offset"):
                raise ValueError(f"{e.func.attr} is no size")
            found = getattr(self._arguments[ast.unparse(e.func.value)], e.func.attr)()
            value = found if axis is None else found[axis]
        else:
            value = self._arguments[ast.unparse(e)]
        return value.node.expr if isinstance(value, torch.SymInt) else sympy.sympify(value)


def _is_name(e: ast.expr, name: str) -> bool:
    return isinstance(e, ast.Name) and e.id == name


def _without_scope(text: str) -> str:
    """A guard as the user would write it: x.size()[0] instead of L['x'].size()[0]."""
    return _SCOPE.sub(r"\g<name>", text)


def _unsupported(text: str, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"the guard {text} of the program is no integer arithmetic that dlc knows", why=why
    )


__all__ = ["check_guards", "guard_conditions", "unknown_conditions"]
