"""The verifier of tensor programs.

Level 1, cheap, after every pass:
  * a variable or buffer is defined once, and before it is used; parameters are defined at the start;
  * accesses have the buffer's rank, integer indices, and values of the buffer's dtype and the indices' lanes;
  * conditions are one bool; loop bounds have the variable's dtype; intrinsics fit the table;
  * a vectorized loop has a constant extent, a thread loop (and no other) a thread name;
  * thread axes are nested as `tir/verify_threads.py` requires;
  * a block binds each axis to one value of its dtype; its body uses axes, not the loops around it.
Level 2, with the module and arithmetic:
  * kernel calls name a PrimFunc of the module and fit its parameters;
  * a block's regions have the buffers that it accesses, and no access is proved to be outside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from dlc_core.arith.analyzer import Analyzer
from dlc_core.diag import VerifyError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import BOOL, HANDLE, INDEX
from dlc_core.ir.expr import Call, Expr, Load, Var, const_value, free_vars, post_order
from dlc_core.ir.module import IRModule
from dlc_core.support.record import record
from dlc_core.tir.functor import (
    bound_buffers,
    bound_vars,
    buffer_exprs,
    child_stmts,
    exprs_of,
    region_exprs,
    stmts,
    walk,
)
from dlc_core.tir.intrinsics import check_call, kernel_symbol, launch_symbol
from dlc_core.tir.stmt import Alloc, Block, Eval, For, If, Let, PrimFunc, Region, Stmt, Store, View, While
from dlc_core.tir.threads import launch_axes
from dlc_core.tir.verify_threads import thread_problems

MAX_REPORTED = 10
Render = Callable[[PrimFunc, Stmt], Sequence[str]]
"""The program's text around a statement, for error messages; `script.excerpt` is one."""


@record(frozen=True)
class Problem:
    """A violated rule and the statement that violates it (None: the parameters)."""

    message: str
    stmt: Stmt | None = None


def verify_func(
    func: PrimFunc, *, level: int = 1, module: IRModule | None = None, render: Render | None = None
) -> None:
    """Raise VerifyError if the program violates a rule. It lists up to 10 problems, the first with the
    surrounding text.
    """
    problems = find_problems(func, level=level, module=module)
    if not problems:
        return
    details = [p.message for p in problems[:MAX_REPORTED]]
    if len(problems) > MAX_REPORTED:
        details.append(f"… and {len(problems) - MAX_REPORTED} more")
    if render is not None and problems[0].stmt is not None:
        details += render(func, problems[0].stmt)
    raise VerifyError(
        f"{func.name} violates {len(problems)} rule(s) of the verifier", spans=func.spans, details=details
    )


def verify_module(module: IRModule, *, level: int = 1, render: Render | None = None) -> None:
    """`verify_func` for every PrimFunc of a module."""
    for func in module.of_kind(PrimFunc).values():
        verify_func(func, level=level, module=module, render=render)


def find_problems(func: PrimFunc, *, level: int = 1, module: IRModule | None = None) -> list[Problem]:
    """All violated rules in program order."""
    checker = _Checker(func)
    checker.run()
    problems = checker.problems
    if level >= 2 and not problems:
        for stmt in stmts(func.body):
            if module is not None:
                problems += [Problem(m, stmt) for m in _kernel_problems(stmt, module)]
            if isinstance(stmt, Block):
                problems += [Problem(m, stmt) for m in _region_problems(stmt)]
    return problems


class _Checker:
    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.problems: list[Problem] = []
        self.vars: set[Var] = set()
        self.buffers: set[Buffer] = set()
        self.defined: set[Var | Buffer] = set()
        self.loops: dict[Var, int] = {}
        self.blocks = 0
        self.threads = False
        self.checked: set[Expr] = set()

    def run(self) -> None:
        for param in self.func.params:
            self.define(param, None)
        for buffer in self.func.buffers:
            self.use(buffer_exprs(buffer), None, f"the description of {buffer.name}")
        walk(self.func.body, self.enter, after=self.leave)
        if self.threads:
            self.problems += [Problem(*found) for found in thread_problems(self.func.body)]

    def problem(self, message: str, stmt: Stmt | None) -> None:
        self.problems.append(Problem(message, stmt))

    def define(self, name: Var | Buffer, stmt: Stmt | None) -> None:
        if name in self.defined:
            self.problem(f"{name.name} is defined twice", stmt)
        self.defined.add(name)
        if isinstance(name, Var):
            self.vars.add(name)
        else:
            self.buffers.add(name)

    def use(self, exprs: Iterable[Expr], stmt: Stmt | None, where: str) -> None:
        for e in post_order(*exprs):
            if isinstance(e, Var):
                if e not in self.vars:
                    self.problem(f"{where} uses {e.name}, which is not defined there", stmt)
                elif self.loops.get(e, self.blocks) < self.blocks:
                    self.problem(f"{where} uses the loop variable {e.name} from outside the block", stmt)
            elif isinstance(e, Load):
                self.use_buffer(e.buffer, stmt, where)
            if e not in self.checked:
                self.checked.add(e)
                for message in _expr_problems(e):
                    self.problem(message, stmt)

    def use_buffer(self, buffer: Buffer, stmt: Stmt | None, where: str) -> None:
        if buffer not in self.buffers:
            self.problem(f"{where} uses buffer {buffer.name}, which is not defined there", stmt)

    def enter(self, stmt: Stmt) -> None:
        where = _label(stmt)
        if isinstance(stmt, Block):
            self.enter_block(stmt, where)
            return
        self.use(exprs_of(stmt), stmt, where)
        for message in _stmt_problems(stmt):
            self.problem(message, stmt)
        for buffer in stmt.accessed_buffers():
            self.use_buffer(buffer, stmt, where)
        for buffer in stmt.bound_buffers():
            self.define(buffer, stmt)
        for var in bound_vars(stmt):
            self.define(var, stmt)
        if isinstance(stmt, For):
            self.loops[stmt.var] = self.blocks
            self.threads = self.threads or stmt.kind == "thread"

    def enter_block(self, block: Block, where: str) -> None:
        self.use((e for a in block.axes for e in (a.dom.begin, a.dom.extent)), block, where)
        self.use(block.values, block, where)
        for var in bound_vars(block):
            self.define(var, block)
        self.use((block.predicate,), block, f"the predicate of {where}")
        for message in _block_problems(block):
            self.problem(message, block)
        self.blocks += 1
        regions = (*block.reads, *block.writes)
        self.use(region_exprs(regions), block, f"a region of {where}")
        inside = set(bound_buffers(block.body))
        for region in regions:
            if region.buffer not in inside:
                self.use_buffer(region.buffer, block, where)

    def leave(self, stmt: Stmt) -> None:
        if isinstance(stmt, Block):
            self.blocks -= 1
        self.buffers.difference_update(stmt.bound_buffers())
        self.vars.difference_update(bound_vars(stmt))


def _label(stmt: Stmt) -> str:
    match stmt:
        case Store():
            return f"the store to {stmt.buffer.name}"
        case Block():
            return f"block {stmt.name}"
        case For() | Let():
            return f"{type(stmt).__name__} {stmt.var.name}"
        case Alloc() | View():
            return f"{type(stmt).__name__} {stmt.buffer.name}"
    return type(stmt).__name__


def _expr_problems(e: Expr) -> Iterator[str]:
    if isinstance(e, Call):
        problem = check_call(e)
        if problem:
            yield problem
    elif isinstance(e, Load):
        yield from _access_problems(e.buffer, e.indices, "load from")


def _access_problems(buffer: Buffer, indices: Sequence[Expr], what: str) -> Iterator[str]:
    if len(indices) != buffer.ndim:
        yield f"{what} {buffer.name} has {len(indices)} indices, the buffer {buffer.ndim} dims"
    wrong = [str(i.dtype) for i in indices if not i.dtype.is_int]
    if wrong:
        yield f"{what} {buffer.name} is indexed by {', '.join(wrong)}"
    lanes = {i.dtype.lanes for i in indices} - {1}
    if len(lanes) > 1:
        yield f"{what} {buffer.name} mixes indices of {', '.join(map(str, sorted(lanes)))} lanes"


def _stmt_problems(stmt: Stmt) -> Iterator[str]:
    match stmt:
        case Store():
            yield from _access_problems(stmt.buffer, stmt.indices, "store to")
            lanes = max((i.dtype.lanes for i in stmt.indices), default=1)
            expected = stmt.buffer.dtype.with_lanes(lanes)
            if stmt.value.dtype is not expected:
                yield f"store to {stmt.buffer.name} of {stmt.value.dtype}, where {expected} belongs"
        case For():
            yield from _loop_problems(stmt)
        case If() | While():
            if stmt.cond.dtype is not BOOL:
                yield f"the condition of {type(stmt).__name__} is {stmt.cond.dtype}, not bool"
        case Let():
            if stmt.var.dtype is not stmt.value.dtype:
                yield f"{stmt.var.name} of {stmt.var.dtype} is bound to a value of {stmt.value.dtype}"
        case Eval() if not isinstance(stmt.value, Call):
            yield "Eval of something that is not a call"


def _loop_problems(stmt: For) -> Iterator[str]:
    name, dtypes = stmt.var.name, (stmt.begin.dtype, stmt.extent.dtype)
    if not stmt.var.dtype.is_int or any(t is not stmt.var.dtype for t in dtypes):
        yield f"loop variable {name} of {stmt.var.dtype} has bounds of {dtypes[0]} and {dtypes[1]}"
    if stmt.kind == "vectorized" and const_value(stmt.extent) is None:
        yield f"the vectorized loop over {name} has the extent {stmt.extent}, which is no constant"
    if (stmt.kind == "thread") != bool(stmt.thread):
        yield f"the {stmt.kind} loop over {name} has the thread name {stmt.thread!r}"


def _block_problems(block: Block) -> Iterator[str]:
    if len(block.values) != len(block.axes):
        yield f"block {block.name} has {len(block.axes)} axes but {len(block.values)} values"
    for axis, value in zip(block.axes, block.values):
        if value.dtype is not axis.var.dtype:
            yield f"axis {axis.var.name} of {axis.var.dtype} is bound to a value of {value.dtype}"
    if block.predicate.dtype is not BOOL:
        yield f"the predicate of block {block.name} is {block.predicate.dtype}, not bool"
    for region in (*block.reads, *block.writes):
        if len(region.ranges) != region.buffer.ndim:
            yield (
                f"a region of block {block.name} has {len(region.ranges)} ranges, "
                f"buffer {region.buffer.name} {region.buffer.ndim} dims"
            )


def _kernel_problems(stmt: Stmt, module: IRModule) -> Iterator[str]:
    for e in post_order(*exprs_of(stmt)):
        symbol = kernel_symbol(e) or launch_symbol(e)
        if symbol is None or not isinstance(e, Call):
            continue
        kernel = module.functions.get(symbol)
        if not isinstance(kernel, PrimFunc):
            yield f"a call of kernel {symbol}, which the module does not have"
            continue
        count = len(kernel.params)
        if launch_symbol(e):
            count += len(launch_axes(kernel))
        if len(e.args) != count:
            yield f"kernel {symbol} takes {count} arguments, not {len(e.args)}"
        for arg, param in zip(e.args, kernel.params):
            expected = param.dtype if isinstance(param, Var) else HANDLE
            if arg.dtype is not expected:
                yield f"argument {param.name} of kernel {symbol} is {arg.dtype}, not {expected}"


@record(frozen=True)
class _Access:
    """`certain`: it happens in every iteration of `loops`, not under a condition."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    writes: bool
    loops: Mapping[Var, tuple[Expr, Expr]]
    certain: bool


def _accesses(block: Block) -> Iterator[_Access]:
    """Accesses of a block's own statements, without nested blocks, over its axes and inner loops."""
    parts = [s for s in (block.init, block.body) if s is not None]
    work: list[tuple[Stmt, dict[Var, tuple[Expr, Expr]], bool]] = [(s, {}, True) for s in reversed(parts)]
    while work:
        stmt, loops, certain = work.pop()
        match stmt:
            case Block():
                continue
            case For():
                loops = {**loops, stmt.var: (stmt.begin, stmt.extent)}
        if not stmt.bound_buffers():
            guarded = _guarded(exprs_of(stmt))
            for e in post_order(*exprs_of(stmt)):
                if isinstance(e, Load):
                    yield _Access(e.buffer, e.indices, False, loops, certain and e not in guarded)
        match stmt:
            case Store():
                yield _Access(stmt.buffer, stmt.indices, True, loops, certain)
            case If() | While():
                certain = False
        work.extend((child, loops, certain) for child in reversed(child_stmts(stmt)))


def _guarded(exprs: Iterable[Expr]) -> set[Expr]:
    """Expressions that are evaluated only under a condition."""
    sides = [
        side
        for e in post_order(*exprs)
        if isinstance(e, Call) and e.name == "if_then_else"
        for side in e.args[1:]
    ]
    return set(post_order(*sides))


def _region_problems(block: Block) -> Iterator[str]:
    local = set(bound_buffers(block.body))
    reads: dict[Buffer, list[Region]] = {}
    writes: dict[Buffer, list[Region]] = {}
    for table, regions in ((reads, block.reads), (writes, block.writes)):
        for region in regions:
            table.setdefault(region.buffer, []).append(region)
    analyzer = Analyzer()
    for axis in block.axes:
        analyzer.bind(axis.var, axis.dom.begin, axis.dom.extent)
    reported: set[tuple[Buffer, bool]] = set()
    for access in _accesses(block):
        buffer, key = access.buffer, (access.buffer, access.writes)
        # A block may read what it declares to write, as the update of a reduction does.
        declared = writes.get(buffer, []) + ([] if access.writes else reads.get(buffer, []))
        if buffer in local or key in reported:
            continue
        verb = "writes" if access.writes else "reads"
        if not declared:
            reported.add(key)
            yield f"block {block.name} {verb} {buffer.name}, which its regions do not declare"
        elif all(_outside(access, region, analyzer) for region in declared):
            reported.add(key)
            indices = ", ".join(map(str, access.indices))
            yield f"block {block.name} {verb} {buffer.name}[{indices}], outside its declared region"


def _outside(access: _Access, region: Region, analyzer: Analyzer) -> bool:
    """Whether some iteration is proved to leave the region. False may also mean "not known"."""
    if not access.certain:
        return False
    for index, declared in zip(access.indices, region.ranges, strict=True):
        if index.dtype is not INDEX or any(isinstance(e, Load) for e in post_order(index)):
            continue
        atoms, _ = analyzer.linear(index)
        if not all(isinstance(atom, Var) for atom in atoms):
            continue
        inner = {var: span for var, span in access.loops.items() if var in free_vars(index)}
        with analyzer.scope():
            for var, (begin, extent) in inner.items():
                analyzer.bind(var, begin, extent)
            bounds = analyzer.bounds(index, list(inner))
            if bounds is None or not all(analyzer.prove(extent > 0) for _, extent in inner.values()):
                continue
            low, high = bounds
            end = declared.begin + declared.extent
            if analyzer.prove(low < declared.begin) or analyzer.prove(high >= end):
                return True
    return False
