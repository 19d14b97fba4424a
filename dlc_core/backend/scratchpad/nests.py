"""Nests: the loops around a store as a template of commands.

A nest is a perfect loop nest around one store, or around the initialisation and the update of a sum.
Everything that depends on the loops around the nest is an expression; `Nest.command` evaluates these for
one iteration of these loops. Expects the final form of programs, with flat buffers.

    for i, j, r in grid(min(10 - t * 4, 4), 8, 16):      extents    (min(10 - t * 4, 4), 8, 16)
        if r == 0: acc[i * 8 + j] = 0                    fresh      0 == 0
        acc[i * 8 + j] += a[i * 16 + r] * w[r * 8 + j]   strides    (8, 1, 0), (16, 0, 1), (0, 1, 8)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc_core.arith import Analyzer, eval_expr
from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    conjuncts,
    const_value,
    free_vars,
    loads_in,
    substitute,
)  # fmt: skip
from dlc_core.support.record import record
from dlc_core.target.description import Description
from dlc_core.target.units import LOAD, PRODUCT, STORE, VECTOR
from dlc_core.tir.scopes import in_main_memory
from dlc_core.tir.stmt import For, If, Seq, Stmt, Store

CHIP = "units compute on memory on the chip"
Bound = tuple[Expr, int]
"""The condition `value + factor * index >= 0` on the index of one loop."""


@record(frozen=True, eq=False)
class Access:
    """An affine access: the buffer, the element at which the first iteration is, and a stride per loop."""

    buffer: Buffer
    first: Expr
    strides: tuple[int, ...]


@record(frozen=True, eq=False)
class Nest:
    """A template of commands. `border` has the conditions on each loop under which a source is read."""

    unit: str
    work: str
    extents: tuple[Expr, ...]
    accesses: tuple[Access, ...]
    value: tuple[str, ...]
    border: tuple[tuple[Bound, ...], ...]
    outside: tuple[Expr, ...]
    """Conditions on the loops around the nest under which the source is read."""
    fresh: tuple[Expr, ...] | None
    """Conditions under which a product overwrites its target; None: never."""

    def sizes(self, env: Mapping[Var, int]) -> tuple[int, ...]:
        """The extents for values of the loops around the nest."""
        return tuple(max(0, eval_expr(extent, env)) for extent in self.extents)

    def inside(self, sizes: Sequence[int], env: Mapping[Var, int]) -> tuple[tuple[int, int], ...]:
        """The iterations of each loop that read the source of a copy with a border. Empty: all."""
        if not self.border:
            return ()
        if not all(eval_expr(cond, env) for cond in self.outside):
            return tuple((0, 0) for _ in sizes)
        found = []
        for bounds, size in zip(self.border, sizes, strict=True):
            low, high = 0, size
            for value, factor in bounds:
                rest = eval_expr(value, env)
                if factor > 0:
                    low = max(low, -(rest // factor))
                else:
                    high = min(high, rest // -factor + 1)
            found.append((low, max(low, high)))
        return tuple(found)


def nest_of(stmt: Stmt, machine: Description, where: str) -> Nest | None:
    """The nest that begins at a statement; None if the statement is no perfect nest.

    Raises CodegenError, which names the function `where`, for a nest that no unit of the machine can execute.
    """
    loops: list[For] = []
    body = stmt
    while isinstance(body, For):
        loops.append(body)
        body = body.body
    init: If | None = None
    if isinstance(body, Seq) and len(body.stmts) == 2 and isinstance(body.stmts[0], If):
        init, body = body.stmts[0], body.stmts[1]
    if not isinstance(body, Store):
        return None
    return _Reader(loops, machine, where).nest(body, init)


class _Reader:
    def __init__(self, loops: Sequence[For], machine: Description, where: str) -> None:
        self.loops = loops
        self.machine = machine
        self.where = where
        self.variables = [loop.var for loop in loops]
        self.begin = {loop.var: loop.begin for loop in loops}
        self.analyzer = Analyzer()

    def error(self, what: str, why: str = "", hint: str = "") -> CodegenError:
        return CodegenError(f"{self.where}: {what}", why=why, hint=hint)

    def nest(self, store: Store, init: If | None) -> Nest:
        target = self.access(store.buffer, store.indices)
        terms = _product(store)
        if terms is not None:
            return self.product(target, terms, init)
        if init is not None:
            raise self.error(
                f"{store.buffer.name} is accumulated by {store.value}", why="units sum products only"
            )
        value, fill = store.value, ""
        border: tuple[tuple[Bound, ...], ...] = ()
        outside: tuple[Expr, ...] = ()
        if isinstance(value, Call) and value.name == "if_then_else":
            cond, value, other = value.args
            if not isinstance(value, Load) or not isinstance(other, Const):
                raise self.error(f"{store.buffer.name} is computed under the condition {cond}")
            border, outside = self.border(cond)
            fill = f"#{other.value!r}:{other.dtype}"
        if isinstance(value, Load) and in_main_memory(value.buffer) != in_main_memory(store.buffer):
            work = LOAD if in_main_memory(value.buffer) else STORE
            source = self.access(value.buffer, value.indices)
            if value.dtype is not store.buffer.dtype:
                raise self.error(f"the copy to {store.buffer.name} converts {value.dtype}")
            return self.made(work, (target, source), (fill,) if fill else (), border, outside)
        if border:
            raise self.error(
                f"{store.buffer.name} is computed under a condition", why="only copies have a border"
            )
        return self.vector(target, value)

    def made(
        self,
        work: str,
        accesses: tuple[Access, ...],
        value: tuple[str, ...] = (),
        border: tuple[tuple[Bound, ...], ...] = (),
        outside: tuple[Expr, ...] = (),
        fresh: tuple[Expr, ...] | None = None,
    ) -> Nest:
        extents = tuple(loop.extent for loop in self.loops)
        if any(v in self.begin for extent in extents for v in free_vars(extent)):
            raise self.error("the extent of a loop depends on another loop of its nest")
        unit = self.machine.unit_for(work).name
        return Nest(unit, work, extents, accesses, value, border, outside, fresh)

    def access(self, buffer: Buffer, indices: Sequence[Expr]) -> Access:
        linear = self.analyzer.simplify(buffer.linear_index(indices))
        strides = []
        for var in self.variables:
            factor = self.analyzer.coefficient_of(linear, var)
            known = None if factor is None else const_value(factor)
            if known is None:
                raise self.error(
                    f"{buffer.name} is accessed at {linear}",
                    why=f"units walk {var.name} with a constant stride",
                )
            strides.append(int(known))
        return Access(buffer, self.analyzer.simplify(substitute(linear, self.begin)), tuple(strides))

    def product(self, target: Access, terms: tuple[Load, Load], init: If | None) -> Nest:
        left, right = (self.access(term.buffer, term.indices) for term in terms)
        for each in (target, left, right):
            if in_main_memory(each.buffer):
                raise self.error(
                    f"the product accesses {each.buffer.name} in main memory",
                    why=CHIP,
                    hint="copy it by cache_read or cache_write into a scope",
                )
        summed = [v for v, stride in zip(self.variables, target.strides, strict=True) if stride == 0]
        fresh = None if init is None else self.fresh(init, target, summed)
        return self.made(PRODUCT, (target, left, right), fresh=fresh)

    def fresh(self, init: If, target: Access, summed: Sequence[Var]) -> tuple[Expr, ...]:
        """The conditions of the initialisation in the first iteration of the nest."""
        store, what = init.then, f"the initialisation of {target.buffer.name}"
        is_zero = isinstance(store, Store) and isinstance(store.value, Const) and store.value.value == 0
        if not is_zero or init.orelse is not None or not isinstance(store, Store):
            raise self.error(f"{what} is not zero")
        conds, seen = [], set()
        for cond in conjuncts(init.cond):
            used = [v for v in free_vars(cond) if v in self.begin]
            # A sum of indices with positive factors is zero in the first iteration only.
            if not isinstance(cond, Binary) or cond.op != "eq" or any(v not in summed for v in used):
                raise self.error(f"{what} is under the condition {cond}")
            factors = [self.analyzer.coefficient_of(cond.a - cond.b, v) for v in used]
            if any(f is None or (const_value(f) or 0) <= 0 for f in factors):
                raise self.error(f"{what} is under the condition {cond}")
            seen.update(used)
            conds.append(substitute(cond, self.begin))
        extents = {loop.var: const_value(loop.extent) for loop in self.loops}
        missing = [v.name for v in summed if v not in seen and extents[v] != 1]
        if missing:
            raise self.error(f"{what} does not depend on {', '.join(missing)}")
        return tuple(conds)

    def border(self, cond: Expr) -> tuple[tuple[tuple[Bound, ...], ...], tuple[Expr, ...]]:
        """Bounds on the index of each loop, and conditions on outer loops, from a conjunction."""
        bounds: list[list[Bound]] = [[] for _ in self.loops]
        outside: list[Expr] = []
        for each in conjuncts(cond):
            used = [i for i, var in enumerate(self.variables) if var in free_vars(each)]
            if not used:
                outside.append(each)
                continue
            value = _at_least_zero(each)
            factor = None if value is None else self.analyzer.coefficient_of(value, self.variables[used[0]])
            known = None if factor is None else const_value(factor)
            if value is None or known is None or len(used) > 1:
                raise self.error(
                    f"a copy is under the condition {each}", why="a border is a range of one loop"
                )
            bounds[used[0]].append((self.analyzer.simplify(substitute(value, self.begin)), int(known)))
        return tuple(map(tuple, bounds)), tuple(outside)

    def vector(self, target: Access, value: Expr) -> Nest:
        loads = list(dict.fromkeys(loads_in(value)))
        hint = "copy it by cache_read or cache_write into a scope"
        if in_main_memory(target.buffer):
            raise self.error(f"{target.buffer.name} in main memory is computed as {value}", CHIP, hint)
        for load in loads:
            if in_main_memory(load.buffer):
                raise self.error(f"{load.buffer.name} in main memory is used by {value}", CHIP, hint)
        if any(v in free_vars(value) for v in self.variables):
            uses = [v for v in free_vars(value) if v in self.begin and v not in _index_vars(loads)]
            if uses:
                raise self.error(f"the value {value} depends on the loop {uses[0].name}")
        accesses = tuple(self.access(load.buffer, load.indices) for load in loads)
        return self.made(VECTOR, (target, *accesses), tuple(self.postfix(value, loads)))

    def postfix(self, value: Expr, loads: Sequence[Load]) -> list[str]:
        """An expression as a postfix program: `x1` is the first source, `#` a number with its dtype."""
        match value:
            case Load():
                return [f"x{loads.index(value) + 1}"]
            case Const():
                return [f"#{value.value!r}:{value.dtype}"]
            case Binary():
                return [*self.postfix(value.a, loads), *self.postfix(value.b, loads), value.op]
            case Unary():
                return [*self.postfix(value.a, loads), value.op]
            case Cast():
                return [*self.postfix(value.a, loads), f"cast:{value.dtype}"]
            case Select():
                return [word for e in (value.cond, value.a, value.b) for word in self.postfix(e, loads)] + [
                    "select"
                ]
            case Call() if value.args:
                return [word for e in value.args for word in self.postfix(e, loads)] + [value.name]
        raise self.error(f"no unit computes {value}")


def _index_vars(loads: Sequence[Load]) -> set[Var]:
    return {v for load in loads for index in load.indices for v in free_vars(index)}


def _product(store: Store) -> tuple[Load, Load] | None:
    """The factors of `target = target + a * b`, also with casts; None for other stores."""
    value = store.value
    if not isinstance(value, Binary) or value.op != "add":
        return None
    for own, term in ((value.a, value.b), (value.b, value.a)):
        same = isinstance(own, Load) and own.buffer is store.buffer and own.indices == store.indices
        if same and isinstance(term, Binary) and term.op == "mul":
            factors = [f.a if isinstance(f, Cast) else f for f in (term.a, term.b)]
            if all(isinstance(f, Load) and f.buffer is not store.buffer for f in factors):
                return factors[0], factors[1]  # type: ignore[return-value]
    return None


def _at_least_zero(cond: Expr) -> Expr | None:
    """An expression that is at least zero exactly if a comparison of integers holds; None for others."""
    if not isinstance(cond, Binary) or cond.a.dtype is not INDEX:
        return None
    difference = {
        "lt": cond.b - cond.a - 1,
        "le": cond.b - cond.a,
        "gt": cond.a - cond.b - 1,
        "ge": cond.a - cond.b,
    }
    return difference.get(cond.op)


__all__ = ["Access", "Nest", "nest_of"]
