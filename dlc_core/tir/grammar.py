"""The base class of statements. The declared types of a class's fields determine how they are walked and
rebuilt.

    Stmt, Stmt | None, tuple[Stmt, ...]    nested statements
    Expr, tuple[Expr, ...]                 expressions that the statement evaluates
    Var                                    a variable that it binds
    tuple[IterVar, ...]                    axes: it binds their variables and evaluates their domains
    tuple[Region, ...]                     regions that it declares to access
    Buffer                                 a buffer that it accesses
    Annotated[Buffer, BINDS]               a buffer that it makes; its shape, strides and offset are evaluated
    anything else                          plain data

Nested statements run in the order of the fields; one that is `Annotated[..., FIRST]` runs before the others.

The methods of a class are generated as source text when the class is created, as `dataclasses` does. They are
called in the compiler's innermost loops, and a loop over the fields would be several times slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var
from dlc_core.ir.text import Pickled
from dlc_core.tir.axes import IterVar, Range, Region

T = TypeVar("T")

BINDS = "binds"
"""Marks a buffer that exists only inside the statement."""
FIRST = "first"
"""Marks the nested statement that runs before the others."""


class Parts:
    """How the parts of a statement are mapped while it is rebuilt. Unchanged parts keep their identity."""

    __slots__ = ("buffer", "expr", "var")

    def __init__(
        self, expr: Callable[[Expr], Expr], buffer: Callable[[Buffer], Buffer], var: Callable[[Var], Var]
    ) -> None:
        self.expr = expr
        self.buffer = buffer
        self.var = var

    def exprs(self, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return _each(self.expr, exprs)

    def regions(self, regions: tuple[Region, ...]) -> tuple[Region, ...]:
        return _each(self._region, regions)

    def axes(self, axes: tuple[IterVar, ...]) -> tuple[IterVar, ...]:
        return _each(self._axis, axes)

    def _range(self, old: Range) -> Range:
        begin, extent = self.expr(old.begin), self.expr(old.extent)
        return old if begin is old.begin and extent is old.extent else Range(begin, extent)

    def _region(self, old: Region) -> Region:
        buffer, ranges = self.buffer(old.buffer), _each(self._range, old.ranges)
        return old if buffer is old.buffer and ranges is old.ranges else Region(buffer, ranges)

    def _axis(self, old: IterVar) -> IterVar:
        var, dom = self.var(old.var), self._range(old.dom)
        return old if var is old.var and dom is old.dom else IterVar(var, dom, old.kind)


STATEMENTS: list[type[Stmt]] = []
"""All statement classes in the order in which they were made."""


class Stmt(Pickled):
    """Base of statements.  A subclass is a frozen dataclass; its methods are derived from its fields."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        STATEMENTS.append(cls)
        for name, text in _methods(parts_of(cls)).items():
            if name not in vars(cls):
                space: dict[str, Any] = {"cls": cls, **_HELPERS}
                exec(text, space)  # noqa: S102 - the text is made of names of fields
                setattr(cls, name, space[name])

    def child_stmts(self) -> tuple[Stmt, ...]:
        """Directly nested statements in order of execution."""
        raise NotImplementedError

    def exprs(self) -> tuple[Expr, ...]:
        """Expressions that the statement itself evaluates, in the order of its fields."""
        raise NotImplementedError

    def regions(self) -> tuple[Region, ...]:
        """Regions that the statement declares to access."""
        raise NotImplementedError

    def bound_vars(self) -> tuple[Var, ...]:
        """Variables that the statement binds."""
        raise NotImplementedError

    def bound_buffers(self) -> tuple[Buffer, ...]:
        """Buffers that exist only inside the statement."""
        raise NotImplementedError

    def accessed_buffers(self) -> tuple[Buffer, ...]:
        """Buffers that the statement accesses itself, not through its expressions and regions."""
        raise NotImplementedError

    def with_parts(self, children: Sequence[Stmt], parts: Parts) -> Stmt:
        """The statement with other nested statements, and its other parts mapped. It is the same statement if
        nothing changes.
        """
        raise NotImplementedError


class Part(NamedTuple):
    """A field and its role, the name of a method of `Parts` or one of stmt, optional, stmts, local, data."""

    name: str
    role: str
    first: bool = False


def parts_of(cls: type[Stmt]) -> tuple[Part, ...]:
    """The fields of a statement class with their roles, in the order of declaration."""
    roles = {
        Stmt: "stmt",
        Stmt | None: "optional",
        tuple[Stmt, ...]: "stmts",
        Expr: "expr",
        tuple[Expr, ...]: "exprs",
        Var: "var",
        tuple[IterVar, ...]: "axes",
        tuple[Region, ...]: "regions",
        Buffer: "buffer",
    }
    found = []
    for name, hint in get_type_hints(cls, include_extras=True).items():
        marks: tuple[Any, ...] = ()
        if get_origin(hint) is Annotated:
            hint, *rest = get_args(hint)
            marks = tuple(rest)
        role = roles.get(hint, "data")
        found.append(Part(name, "local" if role == "buffer" and BINDS in marks else role, FIRST in marks))
    return tuple(found)


def buffer_exprs(buffer: Buffer) -> tuple[Expr, ...]:
    """Expressions of a buffer's description: shape, strides, offset."""
    return (*buffer.shape, *(buffer.strides or ()), buffer.offset)


def identical(new: Sequence[object], old: Sequence[object]) -> bool:
    """Whether both have the same objects in the same order."""
    return len(new) == len(old) and all(map(is_, new, old))


def _each(change: Callable[[T], T], items: tuple[T, ...]) -> tuple[T, ...]:
    new = tuple(map(change, items))
    return items if identical(new, items) else new


def _domains(axes: Sequence[IterVar]) -> list[Expr]:
    return [e for axis in axes for e in (axis.dom.begin, axis.dom.extent)]


_HELPERS: dict[str, Any] = {"buffer_exprs": buffer_exprs, "domains": _domains, "identical": identical}


def _methods(parts: Sequence[Part]) -> dict[str, str]:
    """The source text of each method for a class with these fields."""
    nested = sorted((p for p in parts if p.role in ("stmt", "optional", "stmts")), key=lambda p: not p.first)
    shown = {
        "exprs": {
            "expr": "self.{}",
            "exprs": "*self.{}",
            "axes": "*domains(self.{})",
            "local": "*buffer_exprs(self.{})",
        },
        "regions": {"regions": "*self.{}"},
        "bound_vars": {"var": "self.{}", "axes": "*[axis.var for axis in self.{}]"},
        "bound_buffers": {"local": "self.{}"},
        "accessed_buffers": {"buffer": "self.{}"},
    }
    texts = {name: _tuple([forms[p.role].format(p.name) for p in parts if p.role in forms])
             for name, forms in shown.items()}  # fmt: skip
    texts["child_stmts"] = _nested(nested)
    methods = {name: f"def {name}(self):\n    return {text}\n" for name, text in texts.items()}
    return {**methods, "with_parts": _with_parts(parts, nested)}


def _tuple(items: Sequence[str]) -> str:
    if len(items) == 1 and items[0].startswith("*self."):
        return items[0][1:]
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _nested(nested: Sequence[Part]) -> str:
    """The source text for the tuple of nested statements. It is a choice of two tuples if one statement may
    be missing.
    """
    for i, part in enumerate(nested):
        if part.role == "optional":
            without = _nested([*nested[:i], *nested[i + 1 :]])
            given = _nested([*nested[:i], part._replace(role="stmt"), *nested[i + 1 :]])
            return f"({without} if self.{part.name} is None else {given})"
    return _tuple([("*" if p.role == "stmts" else "") + f"self.{p.name}" for p in nested])


def _with_parts(parts: Sequence[Part], nested: Sequence[Part]) -> str:
    lines = ["def with_parts(self, children, parts):"]
    same = []
    given = {}
    for name, role, _ in parts:
        given[name] = name
        if role == "data":
            given[name] = f"self.{name}"
        elif role not in ("stmt", "optional", "stmts"):
            lines.append(f"    {name} = parts.{'buffer' if role == 'local' else role}(self.{name})")
            same.append(f"{name} is self.{name}")
    if [p.role for p in nested] == ["stmt"]:
        same.append(f"children[0] is self.{nested[0].name}")
        given[nested[0].name] = "children[0]"
    elif nested:
        same.append("identical(children, self.child_stmts())")
    lines += [f"    if {' and '.join(same) or 'True'}:", "        return self"]
    if len(nested) > 1 or any(p.role != "stmt" for p in nested):
        lines.append("    rest = list(children)")
        forms = {
            "stmt": "rest.pop(0)",
            "optional": "None if self.{0} is None else rest.pop(0)",
            "stmts": "tuple(rest.pop(0) for _ in self.{0})",
        }
        lines += [f"    {p.name} = {forms[p.role].format(p.name)}" for p in nested]
    lines.append(f"    return cls({', '.join(f'{name}={value}' for name, value in given.items())})")
    return "\n".join(lines) + "\n"
