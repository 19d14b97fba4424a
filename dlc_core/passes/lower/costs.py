"""The work of each kernel: its model nodes, its arithmetic, and the bytes it must move.

It is counted before scheduling, from the ops' definitions; tiling and vectors do not change it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from dlc_core.graph.node import CALL_PRIM, CONST, Function, Node, functions_of, nodes_of, post_order
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Binary, Call, Cast, Expr, Load, Var, const_value, free_vars
from dlc_core.ir.expr import post_order as expr_order
from dlc_core.ir.module import IRModule
from dlc_core.passes.base import Pass, PassContext
from dlc_core.passes.lower.control import is_control
from dlc_core.passes.lower.records import dims_of
from dlc_core.passes.lower.sizes import Size, Sizes, known_work, size_record, smaller, total
from dlc_core.passes.lower.views import result_types
from dlc_core.support.record import record
from dlc_core.target.cost import FUNCTIONS, SEGMENT, Work
from dlc_core.target.description import Description, Dot
from dlc_core.tir.intrinsics import EXTERN, PURE_EXTERN
from dlc_core.tir.stmt import Alloc, Block, Eval, For, If, Let, PrimFunc, Seq, Stmt, Store, View, While

_WEIGHT = {"fma": 2, "if_then_else": 0, "reinterpret": 0, "address_of": 0}
MOVED = "moved"
"""The key of a call with the bytes that it reads and writes of each buffer parameter of its kernel."""
_FREE = frozenset({"and", "or"})


def operations(func: PrimFunc) -> int | None:
    """Count the arithmetic operations of one run without index arithmetic; None if extents are unknown."""
    return work_of(func).flops


def work_of(func: PrimFunc, constants: frozenset[int] = frozenset(), dots: Sequence[Dot] = ()) -> Work:
    """Return the work of one run; the buffer parameters at the indices `constants` hold constants.

    Products that `dots`, or as fast units, compute count one step per group.  Of a buffer that is only partly
    read, such as a gathered table, only the read elements count.
    """
    return _work(func, _counted(func, dots), constants)


def _counted(func: PrimFunc, dots: Sequence[Dot]) -> _Count:
    count = _Count({(dot.a, dot.b, dot.acc): dot.group for dot in dots})
    count.visit(func.body, 1)
    return count


def sizes_of(func: PrimFunc, constants: frozenset[int] = frozenset(), dots: Sequence[Dot] = ()) -> Sizes:
    """Return the fields of `work_of`, as expressions over the dims of the program if they depend on them."""
    return _sizes(func, _counted(func, dots), constants)


def _work(func: PrimFunc, count: _Count, constants: frozenset[int]) -> Work:
    return known_work(_sizes(func, count, constants))


def _sizes(func: PrimFunc, count: _Count, constants: frozenset[int]) -> Sizes:
    moved: list[Size] = []
    for buffer in func.buffers:
        touched = count.touched(buffer)
        size = None if touched is None else smaller(buffer.num_elements(), touched)
        moved.append(None if size is None else size * buffer.dtype.itemsize)
    of_constants = [size for index, size in enumerate(moved) if index in constants]
    unknown = total(moved) is None
    found: Sizes = {
        **count.sizes,
        "bytes": total(moved),
        "constants": None if unknown else total(of_constants),
    }
    dims = set(func.scalars)
    # The number of iterations of a loop may depend on an outer loop.
    return {
        key: size if dims.issuperset(free_vars(*([size] if isinstance(size, Expr) else []))) else None
        for key, size in found.items()
    }


def _moved(func: PrimFunc, count: _Count) -> list[tuple[int, int]]:
    """Return the bytes that one run reads and writes of each buffer parameter; empty if they depend on
    dims."""
    found = []
    for buffer in func.buffers:
        size, reads, writes = const_value(buffer.num_elements()), count.loaded[buffer], count.stored[buffer]
        if size is None or not isinstance(reads, int) or not isinstance(writes, int):
            return []
        found.append((min(size, reads) * buffer.dtype.itemsize, min(size, writes) * buffer.dtype.itemsize))
    return found


class _Count:
    """Counts over the statements of a kernel; None if they depend on data."""

    def __init__(self, groups: Mapping[tuple[str, str, str], int]) -> None:
        self.groups = groups
        self.flops: Size = 0
        self.steps: Size = 0
        self.functions: Size = 0
        self.gathers: Size = 0
        self.multiply_adds: Size = 0
        self.loaded: dict[Buffer, Size] = defaultdict(int)
        self.stored: dict[Buffer, Size] = defaultdict(int)
        self._innermost: Var | None = None

    @property
    def sizes(self) -> Sizes:
        """The counts of arithmetic, without bytes."""
        names = ("flops", "steps", "functions", "gathers", "multiply_adds")
        return {name: getattr(self, name) for name in names}

    def visit(self, root: Stmt, times: Size) -> None:
        """Count the statements in order of execution; `times` is the number of executions of `root`."""
        work = [(root, times)]
        while work:
            stmt, times = work.pop()
            match stmt:
                case Store():
                    self.multiply_adds = _add(self.multiply_adds, _multiply_adds(stmt), times)
                    self._expr(stmt.value, times)
                    self._access(stmt, times)
                case For():
                    extent = const_value(stmt.extent)
                    self._innermost = stmt.var
                    runs = stmt.extent if extent is None else extent
                    work.append((stmt.body, None if times is None else times * runs))
                case Seq():
                    work += [(each, times) for each in reversed(stmt.stmts)]
                case If():
                    work.append((stmt.then, times))
                case Let():
                    self._expr(stmt.value, times)
                    work.append((stmt.body, times))
                case Block():
                    self._innermost = stmt.axes[-1].var if stmt.axes else self._innermost
                    work.append((stmt.body, times))
                case Alloc() | View():
                    work.append((stmt.body, times))
                case While():
                    work.append((stmt.body, None))
                case Eval(value=Call(name=name) as made) if name.startswith((EXTERN, PURE_EXTERN)):
                    self._foreign(made, times)

    def _foreign(self, made: Call, times: Size) -> None:
        """A call of a foreign function: its arithmetic is unknown, and it may use all of its buffers."""
        if not (isinstance(times, int) and times == 0):
            self.flops = self.steps = self.functions = self.multiply_adds = None
        for load in (e for e in expr_order(made) if isinstance(e, Load)):
            self.loaded[load.buffer] = load.buffer.num_elements()

    def touched(self, buffer: Buffer) -> Size:
        """Return the number of accesses of a buffer."""
        reads, writes = self.loaded[buffer], self.stored[buffer]
        return None if reads is None or writes is None else reads + writes

    def _access(self, access: Load | Store, times: Size) -> None:
        table = self.stored if isinstance(access, Store) else self.loaded
        known = table[access.buffer]
        table[access.buffer] = None if known is None or times is None else known + times
        data = [e for index in access.indices for e in expr_order(index) if isinstance(e, Load)]
        if any(e is self._innermost for load in data for index in load.indices for e in expr_order(index)):
            self.gathers = _add(self.gathers, 1, times)

    def _expr(self, expr: Expr, times: Size) -> None:
        flops = steps = functions = 0
        grouped: dict[int, int] = defaultdict(int)
        for e in expr_order(expr):
            if isinstance(e, Load):
                self._access(e, times)
            if e.dtype.scalar is INDEX or e.dtype.is_bool:
                continue
            if isinstance(e, Binary) and e.op not in _FREE:
                flops += e.dtype.lanes
                # A product that is added to something is one multiply-add with it.
                joined = e.op == "add" and any(isinstance(x, Binary) and x.op == "mul" for x in (e.a, e.b))
                if not joined:
                    grouped[self._group(e)] += e.dtype.lanes
            elif isinstance(e, Call):
                flops += _WEIGHT.get(e.name, 1) * e.dtype.lanes
                if e.name in FUNCTIONS:
                    functions += e.dtype.lanes
                else:
                    steps += min(1, _WEIGHT.get(e.name, 1)) * e.dtype.lanes
        for group, count in grouped.items():
            self.steps = _add(self.steps, count, None if times is None else (times + group - 1) // group)
        self.flops = _add(self.flops, flops, times)
        self.steps = _add(self.steps, steps, times)
        self.functions = _add(self.functions, functions, times)

    def _group(self, e: Binary) -> int:
        """Return the number of such products that one instruction computes."""
        sides = [x.a.dtype.scalar.name for x in (e.a, e.b) if isinstance(x, Cast)]
        if e.op != "mul" or len(sides) != 2:
            return 1
        return self.groups.get((sides[0], sides[1], e.dtype.scalar.name), 1)


def _multiply_adds(store: Store) -> int:
    """Return the number of products that a statement adds to the element that it stores. A term that is used
    several times counts once, as it is computed once.
    """
    products, is_sum, work = 0, False, [store.value]
    done: set[Expr] = set()
    while work:
        term = work.pop()
        if term in done:
            continue
        done.add(term)
        if isinstance(term, Cast):
            work.append(term.a)
        elif isinstance(term, Binary) and term.op == "add":
            work += (term.a, term.b)
        elif isinstance(term, Binary) and term.op == "mul":
            products += term.dtype.lanes
        elif isinstance(term, Call) and term.name == "fma":
            products += term.dtype.lanes
            work.append(term.args[2])
        else:
            is_sum = is_sum or (isinstance(term, Load) and term.buffer is store.buffer)
    return products if is_sum else 0


def _add(known: Size, more: int, times: Size) -> Size:
    if known is None or (times is None and more):
        return None
    return known if not more or times is None else known + times * more


@record(frozen=True)
class RecordCosts(Pass):
    """Record the model nodes, operations and bytes of every kernel call in the module's attribute `calls`.

    The attribute `body_work` has the work of kernels that bodies of control flow call, by name.
    """

    name: ClassVar[str] = "record_costs"
    stage: ClassVar[str] = "lower"

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        kernels = module.of_kind(PrimFunc)
        dots = () if context.target is None else grouped_products(context.target.describe())
        counts: dict[str, _Count] = {}
        calls: list[dict[str, Any]] = []
        bodies: dict[str, dict[str, Any]] = {}

        def counted(n: Node) -> _Count | None:
            symbol = n.attrs["symbol"] if n.op is CALL_PRIM else ""
            if symbol in kernels and symbol not in counts:
                counts[symbol] = _counted(kernels[symbol], dots)
            return counts.get(symbol)

        records: dict[Any, dict[str, Any]] = {}

        def recorded(n: Node, func: PrimFunc, count: _Count) -> dict[str, Any]:
            key = func.name, _constants(n), tuple(n.attrs["dims"])
            if key not in records:
                given = dict(zip(dims_of(func), n.attrs["dims"]))
                records[key] = size_record(_sizes(func, count, key[1]), given)
            return records[key]

        for function in module.of_kind(Function).values():
            segment = {SEGMENT: function.name} if function.attrs.get("segment") else {}
            for n in post_order(function.body):
                if is_control(n):
                    for inner in nodes_of(*functions_of(n)):
                        if (count := counted(inner)) is not None:
                            func = kernels[inner.attrs["symbol"]]
                            bodies[func.name] = _work(func, count, _constants(inner)).record()
                elif (count := counted(n)) is not None:
                    func = kernels[n.attrs["symbol"]]
                    work = recorded(n, func, count)
                    nodes = [s.name or str(s) for s in n.spans]
                    moved = _moved(func, count)
                    calls.append({**segment, "kernel": func.name, "nodes": nodes, MOVED: moved, **work})
        return module.with_attrs(calls=tuple(calls), body_work=bodies)


def grouped_products(machine: Description) -> list[Dot]:
    """Return the numbers of products per instruction of dot products and of matrix units."""
    plain = machine.vector_units * machine.lanes(32)
    units = [(unit, unit.products // plain) for unit in machine.matrix_units]
    return [*machine.dots, *(Dot(u.a, u.b, u.acc, group, 1) for u, group in units if group > 1)]


def _constants(call: Node) -> frozenset[int]:
    """Return the indices of a called kernel's parameters that are constants."""
    found, index = set(), 0
    for arg in call.args:
        if arg.op is CONST:
            found.add(index)
        index += len(result_types(arg))
    return frozenset(found)


__all__ = ["MOVED", "RecordCosts", "grouped_products", "operations", "sizes_of", "work_of"]
