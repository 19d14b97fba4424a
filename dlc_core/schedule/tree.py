"""A program under transformation: positions of its parts, their replacement, and errors that show the loop
nest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, count
from typing import Any, TypeAlias

from dlc_core.arith.analyzer import Analyzer
from dlc_core.diag import ScheduleError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, const, const_value, free_vars, loads_in, substitute, transform
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.tir.functor import (
    block_list,
    bound_buffers,
    bound_vars,
    child_stmts,
    copy_buffer,
    exprs_of,
    rename_bound,
    stmts,
    stmts_of,
    substitute_stmt,
    transform_each,
    transform_stmt,
)
from dlc_core.tir.functor import with_children as rebuilt
from dlc_core.tir.stmt import Alloc, Block, Eval, For, If, PrimFunc, Seq, Stmt, Store, While, seq

EMPTY_STMT = Seq(())
_LEAVES = frozenset({Store, Eval})
"""The statements without nested ones, which are most of a program."""


def is_empty(stmt: Stmt) -> bool:
    return isinstance(stmt, Seq) and not stmt.stmts


def with_children(stmt: Stmt, children: list[Stmt]) -> Stmt:
    """Return the statement with other children; an empty statement if it has nothing left to run."""
    match stmt:
        case Seq():
            return seq(*(c for c in children if not is_empty(c)))
        case Block():
            return rebuilt(stmt, children)
        case If():
            then, orelse = children[0], children[1] if len(children) > 1 else None
            orelse = None if orelse is not None and is_empty(orelse) else orelse
            return EMPTY_STMT if is_empty(then) and orelse is None else If(stmt.cond, then, orelse)
    return EMPTY_STMT if is_empty(children[0]) else rebuilt(stmt, children)


def touched(stmt: Stmt) -> set[Buffer]:
    """The buffers that a statement loads, stores or views directly, without those of nested statements."""
    found = {e.buffer for e in loads_in(*exprs_of(stmt))}
    found.update(stmt.accessed_buffers())
    return found


def touches(stmt: Stmt, buffer: Buffer) -> bool:
    return buffer in touched(stmt)


class Tree:
    """An index of the body of one function.  It finds statements by identity."""

    __slots__ = ("_outermost", "_users", "allocs", "blocks", "loops", "parent", "root")

    def __init__(self, root: Stmt) -> None:
        self.root = root
        self._users: dict[Buffer, list[Stmt]] | None = None
        self._outermost: list[Block] | None = None
        self.parent: dict[Stmt, Stmt | None] = {root: None}
        self.loops: dict[Var, For] = {}
        self.blocks: dict[str, Block] = {}
        self.allocs: dict[Buffer, Alloc] = {}
        work = [root]
        while work:
            stmt = work.pop()
            self._add(stmt)
            children = stmt.child_stmts()
            self.parent.update(dict.fromkeys(children, stmt))
            work += [child for child in children[::-1] if type(child) not in _LEAVES]

    def with_fields(self, old: For | Block, new: For | Block) -> Tree:
        """The index after a loop or block got other fields; its variable or name and its nested statements
        are unchanged.

        The positions of all statements stay, so nothing is searched again.
        """
        replaced: dict[Stmt, Stmt] = {old: new}
        below: Stmt = old
        for above in self.ancestors(old):
            replaced[above] = rebuilt(
                above, [replaced[below] if child is below else child for child in above.child_stmts()]
            )
            below = above
        get = replaced.get
        tree = Tree.__new__(Tree)
        tree.root = replaced[below]
        tree._users = tree._outermost = None
        tree.parent = {
            get(s, s): None if above is None else get(above, above) for s, above in self.parent.items()
        }
        tree.loops, tree.blocks, tree.allocs = self.loops.copy(), self.blocks.copy(), self.allocs.copy()
        for stmt in replaced.values():
            tree._add(stmt)
        return tree

    def _add(self, stmt: Stmt) -> None:
        """Make a statement known by what it binds."""
        if isinstance(stmt, For):
            self.loops[stmt.var] = stmt
        elif isinstance(stmt, Block):
            self.blocks[stmt.name] = stmt
        elif isinstance(stmt, Alloc):
            self.allocs[stmt.buffer] = stmt

    @property
    def outermost(self) -> list[Block]:
        """The blocks that no other block contains, in order of execution.  Dataflow is between these."""
        if self._outermost is None:
            blocks = self.blocks.values()
            self._outermost = [b for b in blocks if not any(isinstance(s, Block) for s in self.ancestors(b))]
        return self._outermost

    def users(self, buffer: Buffer) -> list[Stmt]:
        """The statements that load, store or view a buffer directly."""
        if self._users is None:
            self._users = {}
            for stmt in self.parent:
                for found in touched(stmt):
                    self._users.setdefault(found, []).append(stmt)
        return self._users.get(buffer, [])

    def touching(self, buffer: Buffer) -> set[Stmt]:
        """`users`, and all statements between them and the buffer's allocation."""
        marked: set[Stmt] = set()
        alloc = self.allocs.get(buffer)
        for stmt in self.users(buffer):
            marked.add(stmt)
            for above in self.ancestors(stmt):
                if above is alloc or above in marked:
                    break
                marked.add(above)
        return marked

    def ancestors(self, stmt: Stmt) -> Iterator[Stmt]:
        """The statements around a statement, innermost first."""
        above = self.parent[stmt]
        while above is not None:
            yield above
            above = self.parent[above]

    def path(self, stmt: Stmt) -> list[Stmt]:
        """The statements from the root to this one, itself included."""
        return [*reversed(list(self.ancestors(stmt))), stmt]

    def loops_above(self, stmt: Stmt) -> list[For]:
        """The loops between a statement and the block that contains it, outer to inner."""
        found: list[For] = []
        for above in self.ancestors(stmt):
            if isinstance(above, Block):
                break
            if isinstance(above, For):
                found.append(above)
        return found[::-1]

    def common(self, found: Iterable[Stmt]) -> Stmt:
        """The innermost statement that contains all given ones; it may be one of them."""
        paths = [self.path(stmt) for stmt in found]
        last = self.root
        for level in zip(*paths):
            if any(stmt is not level[0] for stmt in level):
                break
            last = level[0]
        return last

    def replace(self, new: Mapping[Stmt, Stmt]) -> Stmt:
        """Return the root with statements replaced; remove empty ones, and all that contain only these."""
        touched: set[Stmt] = set()
        for stmt in new:
            touched.add(stmt)
            for above in self.ancestors(stmt):
                if above in touched:
                    break
                touched.add(above)

        def rebuild(stmt: Stmt) -> Stmt:
            if stmt in new:
                return new[stmt]
            if stmt not in touched:
                return stmt
            return with_children(stmt, [rebuild(child) for child in child_stmts(stmt)])

        return rebuild(self.root)


class Program:
    """A function and the index of its current body.  Primitives read and change it."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self._tree: Tree | None = None
        self._given: list[Expr] | None = None
        self._needed: dict[Expr, list[Expr]] = {}

    @property
    def tree(self) -> Tree:
        if self._tree is None:
            self._tree = Tree(self.func.body)
        return self._tree

    def set_body(self, body: Stmt) -> None:
        self.func = replace(self.func, body=body)
        self._tree = None

    def set_func(self, func: PrimFunc) -> None:
        self.func = func
        self._tree = None
        self._given = None
        self._needed = {}

    def replace(self, new: Mapping[Stmt, Stmt]) -> None:
        self.set_body(self.tree.replace(new))

    def set_fields(self, old: For | Block, **fields: Any) -> None:
        """Change fields of a loop or block that neither bind nor nest, such as a loop's kind."""
        tree = self.tree.with_fields(old, replace(old, **fields))
        self.set_body(tree.root)
        self._tree = tree

    # Looking up.

    def loop(self, handle: LoopRV) -> For:
        if not isinstance(handle, LoopRV):
            raise self.error(f"{handle!r} is no handle of a loop", hint="get_loops gives those of a block")
        found = self.tree.loops.get(handle.var)
        if found is None:
            raise self.error(
                f"the program has no loop {handle.name!r}",
                why="it was removed, or replaced by other loops, by an earlier primitive",
                hint="take the handles that the primitive returned",
            )
        return found

    def block(self, handle: BlockRV) -> Block:
        if not isinstance(handle, BlockRV):
            raise self.error(f"{handle!r} is no handle of a block", hint="get_block gives one by name")
        found = self.tree.blocks.get(handle.name)
        if found is None:
            known = ", ".join(self.tree.blocks) or "none"
            raise self.error(f"the program has no block {handle.name!r}", hint=f"its blocks: {known}")
        return found

    def fresh_block_name(self, base: str, taken: Iterable[str] = ()) -> str:
        names = {*self.tree.blocks, *taken}
        if base not in names:
            return base
        number = 1
        while f"{base}_{number}" in names:
            number += 1
        return f"{base}_{number}"

    def analyzer(self, *around: Stmt, inside: bool = False) -> Analyzer:
        """Return an analyzer with the ranges of symbolic dims, and of loops and axes around a statement.

        The loops around the first of `around` are assumed to have iterations, because the statement runs.
        If it is a loop, its own range is known too; `inside` assumes that it has iterations.
        """
        analyzer = Analyzer()
        for dim in self._dims():
            if isinstance(dim, Var):
                analyzer.declare_dim(dim, 0)
            else:
                analyzer.add_assumptions(dim >= 0)
        for stmt in self.tree.path(around[0]) if around else ():
            match stmt:
                case For():
                    analyzer.bind(stmt.var, stmt.begin, stmt.extent)
                    if inside or stmt is not around[0]:
                        self.suppose_iterations(analyzer, stmt.extent)
                case Block():
                    for axis in stmt.axes:
                        analyzer.bind(axis.var, axis.dom.begin, axis.dom.extent)
        return analyzer

    def analyzer_of_points(self, block: Block) -> Analyzer:
        """Return an analyzer with the ranges of symbolic dims and of a block's axes; no axis is empty."""
        analyzer = self.analyzer()
        for axis in block.axes:
            analyzer.bind(axis.var, axis.dom.begin, axis.dom.extent)
            self.suppose_iterations(analyzer, axis.dom.extent)
        return analyzer

    def suppose_iterations(self, analyzer: Analyzer, extent: Expr) -> None:
        """Assume that a loop of this extent has iterations: dims whose value 0 makes it empty are not 0."""
        if const_value(extent) is not None:
            return
        if extent not in self._needed:
            self._needed[extent] = [dim >= 1 for dim in self._dims() if _is_multiple(extent, dim, analyzer)]
        analyzer.add_assumptions(*self._needed[extent])

    def _dims(self) -> list[Expr]:
        """The symbolic dims of the function's buffers, in order of dependence."""
        if self._given is None:
            shapes = [dim for b in self.func.buffers for dim in b.shape if const_value(dim) is None]
            self._given = list(dict.fromkeys([*free_vars(*shapes), *shapes]))
        return self._given

    def widen(self, buffers: Iterable[Buffer], users: Iterable[Stmt], what: str) -> None:
        """Move allocations outward until the live ranges of buffers contain the given statements.

        ScheduleError if an allocation would leave a loop, block or branch.
        """
        users_left = list(users)
        for buffer in buffers:
            alloc = self.tree.allocs.get(buffer)
            if alloc is None or all(alloc in self.tree.path(user) for user in users_left):
                continue
            common = self.tree.common([alloc, *users_left])
            between = self.tree.path(alloc)[self.tree.path(alloc).index(common) : -1]
            crossed = [s for s in between if isinstance(s, (For, Block, While, If))]
            if crossed:
                raise self.error(
                    what, *crossed, *users_left, why=f"{buffer.name} exists only inside the loops around it"
                )
            inside = Tree(common).replace({alloc: alloc.body})
            self.replace({common: Alloc(buffer, inside)})

    # Errors.

    def error(self, what: str, *at: Stmt, why: str = "", hint: str = "") -> ScheduleError:
        """Return an error that shows the loop nest with the given statements marked."""
        return ScheduleError(
            what, why=why, hint=hint, spans=self.func.spans, details=["the program:", *self.outline(at)]
        )

    def outline(self, marked: Iterable[Stmt] = ()) -> list[str]:
        """The loop nest and its blocks, one line each. Nested variables of the same name are numbered."""
        marks = set(marked)
        lines: list[str] = []
        parameters: Names = {var: var for var in self.func.scalars}
        work = [(self.func.body, 1, parameters)]
        while work:
            stmt, depth, outer = work.pop()
            names = _unique_names(stmt, outer)
            line = _line(stmt, outer, names)
            if line:
                lines.append("  " * depth + line + ("   <--" if stmt in marks else ""))
            if not isinstance(stmt, Block) or block_list(stmt.body):
                work.extend((child, depth + bool(line), names) for child in reversed(child_stmts(stmt)))
        return lines


Names: TypeAlias = Mapping[Var, Var]
"""Variables with the names that an outline shows."""


def _unique_names(stmt: Stmt, outer: Names) -> Names:
    """The names inside a statement: those around it, and unused ones for the variables that it binds."""
    bound = bound_vars(stmt)
    if not bound:
        return outer
    names = dict(outer)
    for var in bound:
        used = {each.name for each in names.values()}
        numbered = chain((var.name,), (f"{var.name}_{n}" for n in count(1)))
        names[var] = Var(next(name for name in numbered if name not in used), var.dtype)
    return names


def _line(stmt: Stmt, outer: Names, names: Names) -> str:
    match stmt:
        case For():
            begin, end = (substitute(e, outer) for e in (stmt.begin, stmt.begin + stmt.extent))
            span = f"{end}" if const_value(begin) == 0 else f"{begin}, {end}"
            kind = (
                ""
                if stmt.kind == "serial"
                else f"  # {stmt.kind}" + (f" {stmt.thread}" if stmt.thread else "")
            )
            return f"for {names[stmt.var].name} in range({span}):{kind}"
        case Block():
            values = (substitute(value, outer) for value in stmt.values)
            axes = ", ".join(
                f"{names[axis.var].name}{'' if axis.kind == 'spatial' else ' (reduce)'} = {value}"
                for axis, value in zip(stmt.axes, values, strict=True)
            )
            true = const_value(stmt.predicate) == 1
            where = "" if true else f" where {substitute(stmt.predicate, names)}"
            return f"block {stmt.name}({axes}){where}"
        case If():
            return f"if {substitute(stmt.cond, names)}:"
        case While():
            return f"while {substitute(stmt.cond, names)}:"
        case Alloc():
            return f"alloc {stmt.buffer!r}"
        case Store():
            return f"{stmt.buffer.name}[{', '.join(str(substitute(i, names)) for i in stmt.indices)}] = ..."
        case Eval():
            return "..."
        case _:
            return ""


def anew(stmt: Stmt) -> Stmt | None:
    """Copy a leaf for `transform_stmt`, because no statement may occur twice in a tree."""
    return replace(stmt) if isinstance(stmt, (Store, Eval)) or stmt is EMPTY_STMT else None


def renamed(
    root: Stmt, program: Program, *, taken: Iterable[str] = ()
) -> tuple[Stmt, dict[LoopRV, LoopRV], dict[BlockRV, BlockRV]]:
    """Copy a statement with new loops, axes, buffers and block names, and map the old handles to the new."""
    values: dict[Var, Expr] = {}
    fresh: dict[Var, Var] = {}
    names: dict[str, str] = {}
    used = set(taken)
    for stmt in stmts(root):
        for var in bound_vars(stmt):
            fresh[var] = values[var] = Var(var.name, var.dtype)
        if isinstance(stmt, Block):
            names[stmt.name] = program.fresh_block_name(stmt.name, used)
            used.add(names[stmt.name])

    def rename(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Block):
            return replace(stmt, name=names[stmt.name])
        return anew(stmt)

    copied = substitute_stmt(root, values, {b: copy_buffer(b) for b in bound_buffers(root)})
    loops = {LoopRV(s.var): LoopRV(fresh[s.var]) for s in stmts_of(root, For)}
    blocks = {BlockRV(old): BlockRV(new) for old, new in names.items()}
    return transform_stmt(copied, stmt_fn=rename), loops, blocks


def prepared(functions: Mapping[str, PrimFunc]) -> dict[str, PrimFunc]:
    """Prepare a program: every block gets a unique name in its function, and every loop a unique variable.

    Predicates of blocks are rewritten over loops instead of the block's own axes.
    """
    seen: set[Var] = set()
    return {name: _numbered(func, seen) for name, func in functions.items()}


def _numbered(func: PrimFunc, seen: set[Var]) -> PrimFunc:
    names: set[str] = set()
    changes = False
    for stmt in stmts(func.body):
        changes = changes or any(v in seen for v in bound_vars(stmt))
        seen.update(bound_vars(stmt))
        if isinstance(stmt, Block):
            changes = changes or stmt.name in names or _limits_axes(stmt)
            names.add(stmt.name)
    if not changes:
        return func
    taken: set[str] = set()

    def number(block: Block) -> Block:
        name, count = block.name, 0
        while name in taken or (count and name in names):
            count += 1
            name = f"{block.name}_{count}"
        taken.add(name)
        bound: dict[Var, Expr] = {a.var: v for a, v in zip(block.axes, block.values, strict=True)}
        return replace(block, name=name, predicate=substitute(block.predicate, bound))

    body = transform_each(rename_bound(func.body), Block, number)
    seen.update(v for stmt in stmts(body) for v in bound_vars(stmt))
    return replace(func, body=body)


def _limits_axes(block: Block) -> bool:
    return const_value(block.predicate) is None and not {a.var for a in block.axes}.isdisjoint(
        free_vars(block.predicate)
    )


def uses(stmt: Stmt, var: Var) -> bool:
    """Whether any expression in a statement uses a variable."""
    return any(var in free_vars(*exprs_of(s, regions=True)) for s in stmts(stmt))


def _is_multiple(extent: Expr, dim: Expr, analyzer: Analyzer) -> bool:
    """Whether an extent is provably 0 if a dim is 0."""
    if const_value(extent) is not None:
        return False
    zero: Expr | None = None
    for var in free_vars(dim):
        root = analyzer.solve(dim, 0, var)
        if root is not None and const_value(analyzer.simplify(substitute(dim, {var: root}))) == 0:
            zero = substitute(extent, {var: root})
            break
    if zero is None:
        zero = transform(extent, lambda e: const(0) if e is dim else None)
    return const_value(analyzer.simplify(zero)) == 0
