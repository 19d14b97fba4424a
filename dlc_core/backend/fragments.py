"""Kernels in languages in which subgroups multiply fragments (`tir.matrix`).

A thread's fragment of an operand is an array of words of 32 bits. If its elements are in the order of a load
instruction of the language (`Blocks`), that instruction loads them. Otherwise words are loaded one by one, or
packed from single elements. The fragment of the result is an array that the product adds to.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.arith import Analyzer, compile_exprs
from dlc_core.backend.copies import CopyWriter
from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Call, Cast, Expr, Load, Var, const, const_value, free_vars, loads_in, substitute
from dlc_core.target.source import Blocks, Matrices
from dlc_core.target.source.helpers import NARROW
from dlc_core.target.source.values import Key
from dlc_core.tir.functor import stmts
from dlc_core.tir.matrix import MATRIX, MatrixUnit, operands, products, strip_reinterpret, unit_of
from dlc_core.tir.stmt import Let, PrimFunc, Seq, Stmt, Store, seq
from dlc_core.tir.threads import THREAD, axes_in, is_private

_WORD = 32


class FragmentWriter(CopyWriter):
    """Writes kernels with products of fragments."""

    def kernel(self, func: PrimFunc, symbol: str) -> str:
        """The text of a PrimFunc that is one launch."""
        self._operands = set(operands(func.body))
        loads = (load for value in operands(func.body).values() for load in loads_in(value))
        self._held = {load.buffer for load in loads if is_private(load.buffer)}
        """Private buffers that are operands of products, without a copy."""
        self._sums = {load.buffer for call in products(func.body) for load in loads_in(call.args[0])}
        threads = list(axes_in(func.body, THREAD))
        self._threads = threads[-1] if threads else None
        return super().kernel(func, symbol)

    @property
    def _matrices(self) -> Matrices:
        if self.words.matrices is None:
            raise CodegenError(f"{self.unit.dialect.name} has no products of matrices")
        return self.words.matrices

    def promoted(self, buffer: Buffer, body: Stmt) -> set[Key] | None:
        """Accumulators and operands stay arrays, because products take pointers to them. Compilers keep them
        in registers.
        """
        return None if buffer in self._sums or buffer in self._held else super().promoted(buffer, body)

    def visit_let(self, stmt: Let) -> Stmt:
        value = stmt.value
        if stmt.var in self._operands:
            return self._operand(stmt)
        if isinstance(value, Call) and value.name == MATRIX:
            return self._product(stmt, value)
        return super().visit_let(stmt)

    def visit_store(self, stmt: Store) -> None:
        value, short = stmt.value, NARROW.get(stmt.buffer.dtype.name)
        narrowed = isinstance(value, Cast) and value.a.dtype.name == "float32"
        if stmt.buffer not in self._held or not narrowed or short is None:
            super().visit_store(stmt)
            return
        # Only products read the buffer, as words. So the value is not converted back to the wide type.
        offset = stmt.buffer.linear_index(stmt.indices)
        self.text.named = {}
        assert isinstance(value, Cast)
        self.prepare(value.a, offset)
        made = f"{self.unit.helper(f'f32_to_{short}')}({self.text.value(value.a)})"
        self.line(f"{self.text.element(stmt.buffer, offset)} = {made};")
        self.text.named = {}

    # Operands

    def _operand(self, stmt: Let) -> Stmt:
        matrices = self._matrices
        loads = _parts(stmt.value)
        first = loads[0]
        if not isinstance(first, Load) or is_private(first.buffer):
            return self._own_operand(stmt)
        if not all(isinstance(load, Load) and load.buffer is first.buffer for load in loads):
            raise CodegenError(f"the operand {stmt.var.name} of a product is not loaded from one buffer")
        buffer, bits = first.buffer, first.buffer.dtype.bits
        positions = [buffer.linear_index(load.indices) for load in loads]
        each = max(1, _WORD // bits)
        if len(loads) % each:
            raise CodegenError(
                f"{stmt.var.name} has {len(loads)} values of {bits} bits, which do not fill words of 32 bits"
            )
        name = self.names.fresh(stmt.var.name)
        self.text.named = {}
        found = self._blocks_of(positions, bits)
        if found is not None:
            blocks, start, count = found
            self.prepare(start)
            self.line(f"{matrices.word} {name}[{len(loads) // each}];")
            at = self.text.address(buffer, start)
            self.line(blocks.load.format(count=count, to=name, source=at) + ";")
        else:
            self.prepare(*positions)
            words = [
                self._word(buffer, positions[i : i + each], bits) for i in range(0, len(positions), each)
            ]
            self.line(f"const {matrices.word} {name}[{len(words)}] = {{{', '.join(words)}}};")
        self.text.named = {}
        self.text.vars[stmt.var] = name
        return stmt.body

    def _own_operand(self, stmt: Let) -> Stmt:
        """Pack an operand from values that the thread already has, such as rounded accumulators of another
        product.
        """
        matrices, parts, bits = self._matrices, _parts(stmt.value), stmt.var.dtype.bits
        each = max(1, _WORD // bits)
        self.text.named = {}
        self.prepare(*parts)
        values = [self.text.stored(part) for part in parts]
        words = [
            matrices.pack.format(bits=bits, values=", ".join(values[i : i + each]))
            for i in range(0, len(values), each)
        ]
        name = self.names.fresh(stmt.var.name)
        self.line(f"const {matrices.word} {name}[{len(words)}] = {{{', '.join(words)}}};")
        self.text.named = {}
        self.text.vars[stmt.var] = name
        return stmt.body

    def _word(self, buffer: Buffer, positions: Sequence[Expr], bits: int) -> str:
        """A word of an operand. Contiguous elements are loaded together."""
        analyzer, matrices = Analyzer(), self._matrices
        together = all(
            analyzer.prove_equal(position, positions[0] + i) for i, position in enumerate(positions)
        )
        factor, rest = analyzer.modular(positions[0])
        if together and factor % len(positions) == 0 and rest % len(positions) == 0:
            return matrices.load.format(at=self.text.address(buffer, positions[0]))
        values = ", ".join(self.text.element(buffer, position) for position in positions)
        return matrices.pack.format(bits=bits, values=values)

    def _blocks_of(self, positions: Sequence[Expr], bits: int) -> tuple[Blocks, Expr, int] | None:
        """The instruction that loads the elements, the offset that a thread passes, and the number of blocks;
        None if there is no such instruction.
        """
        axis = self._threads
        if axis is None or const_value(axis.begin) != 0:
            return None
        analyzer = Analyzer()
        base = analyzer.simplify(substitute(positions[0], {axis.var: const(0, axis.var.dtype)}))
        away = [analyzer.simplify(position - base) for position in positions]
        if any(set(free_vars(each)) - {axis.var} for each in away):
            return None
        offsets = compile_exprs(away, [axis.var])
        table = [offsets(thread) for thread in range(const_value(axis.extent) or 0)]
        for blocks in self._matrices.blocks:
            count, rest = divmod(len(positions), blocks.of.count)
            if blocks.bits != bits or rest or count not in blocks.counts or len(table) != blocks.of.width:
                continue
            starts = _rows_of(blocks, table, count)
            factor, begin = analyzer.modular(base)
            aligned = all(n % blocks.of.columns == 0 for n in (factor, begin, *(starts or ())))
            own = None if starts is None or not aligned else _linear(starts, axis.var)
            if own is not None:
                return blocks, base + own, count
        return None

    # Products

    def _product(self, stmt: Let, call: Call) -> Stmt:
        unit = unit_of(call)
        text = self._matrices.products.get(unit.name)
        if text is None:
            raise CodegenError(f"{self.unit.dialect.name} has no product of matrices {unit.name}")
        parts = _parts(call.args[0])
        self.text.named = {}
        given = self.product_words(unit, call)
        rest = _after_stores(stmt, parts)
        first = const_value(parts[0].buffer.linear_index(parts[0].indices)) if rest is not None else None
        if rest is not None and first is not None:
            acc = self.text.address(parts[0].buffer, const(first))
            self.line(text.format(acc=acc, **given) + ";")
            return rest
        self.prepare(*parts)
        name = self.names.fresh(stmt.var.name)
        values = ", ".join(map(self.text.value, parts))
        self.line(f"{self.kind(stmt.var.dtype.scalar)} {name}[{len(parts)}] = {{{values}}};")
        self.line(text.format(acc=name, **given) + ";")
        self._parts[stmt.var] = [f"{name}[{lane}]" for lane in range(len(parts))]
        if len(parts) == 1:
            self.text.vars[stmt.var] = f"{name}[0]"
        self.text.named = {}
        return stmt.body

    def product_words(self, unit: MatrixUnit, call: Call) -> dict[str, object]:
        """The texts of the operands a and b of a product, by their names in its format."""
        variables = [var for arg in call.args[1:3] if isinstance(var := strip_reinterpret(arg), Var)]
        return {name: self.text.vars[var] for name, var in zip("ab", variables, strict=True)}


def _parts(value: Expr) -> tuple[Load, ...]:
    """The scalars of a vector that is assembled from scalars."""
    return value.args if isinstance(value, Call) and value.name == "vector_concat" else (value,)  # type: ignore[return-value]


def _after_stores(stmt: Let, parts: Sequence[Load]) -> Stmt | None:
    """The statement after the stores of a product, if these store all lanes to the elements that the
    accumulators were loaded from, which are contiguous; else None.
    """
    body = stmt.body.stmts if isinstance(stmt.body, Seq) else (stmt.body,)
    stores, rest = body[: len(parts)], body[len(parts) :]
    if len(stores) < len(parts) or not all(isinstance(part, Load) for part in parts):
        return None
    buffer = parts[0].buffer
    first = const_value(buffer.linear_index(parts[0].indices))
    for lane, (part, store) in enumerate(zip(parts, stores, strict=True)):
        if not isinstance(store, Store) or part.buffer is not buffer or store.buffer is not buffer:
            return None
        at = [const_value(buffer.linear_index(indices)) for indices in (part.indices, store.indices)]
        if first is None or at != [first + lane] * 2 or not _is_lane(store.value, stmt.var, lane):
            return None
    used = any(stmt.var in free_vars(e) for s in rest for inner in stmts(s) for e in _values(inner))
    return None if used else seq(*rest)


def _values(stmt: Stmt) -> Sequence[Expr]:
    return (stmt.value,) if isinstance(stmt, (Let, Store)) else ()


def _is_lane(value: Expr, var: Var, lane: int) -> bool:
    if var.dtype.lanes == 1:
        return value is var
    chosen = isinstance(value, Call) and value.name == "vector_shuffle"
    return chosen and isinstance(value, Call) and value.args[0] is var and const_value(value.args[1]) == lane


def _rows_of(blocks: Blocks, table: Sequence[Sequence[int]], count: int) -> list[int] | None:
    """The offset of the first element of each row of each block. `table` has the offsets of each thread's
    elements. None if rows are not contiguous.
    """
    of, found = blocks.of, dict[tuple[int, int], int]()
    for thread, positions in enumerate(table):
        for number, position in enumerate(positions):
            block, value = divmod(number, of.count)
            row, column = divmod(of.element(thread, value), of.columns)
            if found.setdefault((block, row), position - column) != position - column:
                return None
    return [found[block, row] for block in range(count) for row in range(of.rows)]


def _linear(values: Sequence[int], var: Var) -> Expr | None:
    """An expression over `var` that gives the values of a list by index. It exists if each bit of the index
    adds a constant; else None.
    """
    bits = len(values).bit_length() - 1
    steps = [values[1 << bit] - values[0] for bit in range(bits)]
    for index, value in enumerate(values):
        if value != values[0] + sum(step for bit, step in enumerate(steps) if index >> bit & 1):
            return None
    total: Expr = const(values[0])
    bit = 0
    while bit < bits:
        size = 1
        while bit + size < bits and steps[bit + size] == steps[bit] << size:
            size += 1
        digit = var // (1 << bit) if bit else var
        total = total + digit % (1 << size) * steps[bit]
        bit += size
    return total


__all__ = ["FragmentWriter"]
