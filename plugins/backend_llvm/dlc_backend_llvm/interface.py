"""The LLVM IR of a library's interface: the functions of its C header, and the table for runtimes.

    <name>_run, <name>_run_dlpack, <name>_workspace_size, ...    what the header declares
    <name>_signature                                             the description, for `dlc.load_library`
    dlc_library                                                  a table of all functions, for `dlc_runtime.c`

A *bare* library has only the table. It is the library in a `.dlc` file, which has the weights itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_backend_llvm.cpu import HostCpu
from dlc_backend_llvm.descriptors import emit_plan, emit_run_dlpack
from dlc_backend_llvm.dim_program import emit_dims
from dlc_backend_llvm.emit.kernel import emit_function
from dlc_backend_llvm.emit.unit import Unit
from dlc_backend_llvm.header import symbolic_outputs
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Expr, as_expr, const
from dlc_core.runtime.interface.dim_program import condition_program, conditions_on_symbols
from dlc_core.runtime.interface.signature import Signature
from dlc_core.runtime.library import CHECK_FAILED, signature_symbol
from dlc_core.support.record import record
from dlc_core.tir.stmt import PrimFunc, Store, seq

LIBRARY = "dlc_library"
"""The symbol of the table for runtimes."""
ABI = 1
"""The version of the table. A runtime refuses other versions."""
_ROW = "{ ptr, ptr, ptr, ptr }"
"""The type of a row of the table: name, description, plan, run."""


@record(frozen=True)
class Exported:
    """A function of a library."""

    name: str
    """The name by which callers find it."""
    prefix: str
    """The beginning of its symbols."""
    entry: str
    """The symbol of its entry point in the model's object."""
    signature: Signature
    description: bytes
    """JSON text, ended by a zero byte (`dlc_core.runtime.library.describe`)."""


def weights_symbol(name: str) -> str:
    """The symbol of the weights of a library."""
    return f"{name}_weights"


def library_ir(
    name: str, functions: Sequence[Exported], cpu: HostCpu, weights_size: int, *, bare: bool = False
) -> str:
    """The LLVM IR of the functions that the header declares, of the descriptions, and of `dlc_library`.

    The first function has the names of the header, the others are only in `dlc_library`. A `bare` library has
    no weights: its callers pass them.
    """
    unit = Unit(cpu)
    for index, each in enumerate(functions):
        _emit_interface(unit, each, public=index == 0 and not bare)
    weights = f"@{weights_symbol(name)} = external hidden constant i8, align 64\n"
    own = "" if bare else _constant(signature_symbol(name), functions[0].description)
    return ("" if bare else weights) + unit.text() + own + _table(name, functions, weights_size, bare)


def interface_ir(name: str, entry: str, signature: Signature, cpu: HostCpu) -> str:
    """The LLVM IR of the functions that the header declares, without descriptions and table."""
    unit = Unit(cpu)
    _emit_interface(unit, Exported(name, name, entry, signature, b""), public=True)
    return f"@{weights_symbol(name)} = external hidden constant i8, align 64\n{unit.text()}"


def _emit_interface(unit: Unit, function: Exported, public: bool) -> None:
    """Emit the functions of one entry point. `public` ones have the weights of the library."""
    name, entry, signature = function.prefix, function.entry, function.signature
    dims = [f"i64 %d{i}" for i in range(len(signature.symbols))]
    names = [f"%d{i}" for i in range(len(dims))]
    scalars = "".join(f"i64 {n}, " for n in names)
    emit_function(unit, _sizes(f"{name}.arena", signature, [signature.arena_size]))
    unit.functions.append(f"""
define i64 @{name}_workspace_size({", ".join(dims)}) nounwind {{
  %size = alloca i64, align 8
  call void @{name}.arena(ptr %size, {scalars}i32 1)
  %bytes = load i64, ptr %size, align 8
  ret i64 %bytes
}}""")
    for index, value in symbolic_outputs(signature):
        shape = [as_expr(d) for d in value.type.shape]
        emit_function(unit, _sizes(f"{name}.shape{index}", signature, shape))
        unit.functions.append(f"""
define void @{name}_output{index}_shape({", ".join(["ptr %shape", *dims])}) nounwind {{
  call void @{name}.shape{index}(ptr %shape, {scalars}i32 1)
  ret void
}}""")
    if signature.data_dims:
        emit_dims(unit, name, signature)
    if conditions_on_symbols(signature):
        emit_function(unit, condition_program(f"{name}.needs", signature))
    unit.functions.append(_run_ir(name, entry, signature, dims, names))
    emit_run_dlpack(unit, name, signature)
    emit_plan(unit, name, signature)
    unit.declare(entry, f"hidden i32 @{entry}(ptr, ptr, i32)")
    if not public:
        return
    pointers = ["ptr %inputs", "ptr %outputs", "ptr %workspace", "i32 %threads"]
    for suffix, params in (("run", [*pointers, *dims]), ("run_dlpack", pointers)):
        given = ", ".join([f"ptr @{weights_symbol(name)}", *params])
        unit.functions.append(f"""
define i32 @{name}_{suffix}({", ".join(params)}) nounwind {{
  %status = call i32 @{name}.{suffix}({given})
  ret i32 %status
}}""")


def _constant(symbol: str, data: bytes, linkage: str = "") -> str:
    """LLVM IR of read-only data, with a global name unless the linkage says otherwise."""
    quoted = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data)
    return f'\n@{symbol} = {linkage} constant [{len(data)} x i8] c"{quoted}"\n'


def _table(name: str, functions: Sequence[Exported], weights_size: int, bare: bool) -> str:
    """LLVM IR of `dlc_library`, which runtimes find in any library (`struct dlc_library` of dlc_runtime.c).

    It is weak, so that the objects of several models can be linked into one program.
    """
    lines, rows = [], []
    for index, each in enumerate(functions):
        names = f"{name}.title{index}", f"{name}.description{index}"
        lines += [
            _constant(names[0], each.name.encode() + b"\0", "private"),
            _constant(names[1], each.description, "private"),
        ]
        pointers = (*names, f"{each.prefix}.plan", f"{each.prefix}.run_dlpack")
        rows.append(f"{_ROW} {{ {', '.join(f'ptr @{pointer}' for pointer in pointers)} }}")
    weights = "null" if bare else f"@{weights_symbol(name)}"
    return f"""{"".join(lines)}
@{name}.functions = private constant [{len(rows)} x {_ROW}] [{", ".join(rows)}]
@{LIBRARY} = weak constant {{ i32, i32, ptr, ptr, i64 }} {{
  i32 {ABI}, i32 {len(rows)}, ptr @{name}.functions, ptr {weights}, i64 {weights_size} }}
"""


def _sizes(name: str, signature: Signature, values: Sequence[Expr]) -> PrimFunc:
    """A PrimFunc that computes integers from the dims and stores them."""
    out = Buffer("sizes", (max(1, len(values)),), INDEX)
    body = seq(*(Store(out, (const(i),), value) for i, value in enumerate(values)))
    return PrimFunc(name, (out, *signature.symbols), body)


def _run_ir(name: str, entry: str, signature: Signature, dims: Sequence[str], names: Sequence[str]) -> str:
    """The function `<name>.run`: it arranges the pointers for the entry point. It refuses NULL pointers, dims
    outside of their bounds, and dims that contradict each other.
    """
    ins, outs = len(signature.inputs), len(signature.outputs)
    lines, bad = [], "%bad0"
    lines.append("  %bad0 = icmp ne i32 0, 0")
    position = 0
    for table, count in (("inputs", ins), ("outputs", outs)):
        for index in range(count):
            lines += [
                f"  %at{position} = getelementptr ptr, ptr %{table}, i64 {index}",
                f"  %p{position} = load ptr, ptr %at{position}, align 8",
                f"  %null{position} = icmp eq ptr %p{position}, null",
                f"  %bad{position + 1} = or i1 {bad}, %null{position}",
                f"  %to{position} = getelementptr ptr, ptr %buffers, i64 {position}",
                f"  store ptr %p{position}, ptr %to{position}, align 8",
            ]
            bad = f"%bad{position + 1}"
            position += 1
    for value in ("%weights", "%workspace"):
        lines += [
            f"  %to{position} = getelementptr ptr, ptr %buffers, i64 {position}",
            f"  store ptr {value}, ptr %to{position}, align 8",
        ]
        position += 1
    for index, dim in enumerate(names):
        lines += [
            f"  %dim{index} = getelementptr i64, ptr %scalars, i64 {index}",
            f"  store i64 {dim}, ptr %dim{index}, align 8",
        ]
    needs = [
        f"  %need = call i64 @{name}_workspace_size({', '.join(dims)})",
        "  %some = icmp ne i64 %need, 0",
        "  %nowhere = icmp eq ptr %workspace, null",
        "  %lacking = and i1 %some, %nowhere",
    ]
    tables = []
    for table, count in (("inputs", ins), ("outputs", outs)):
        if count:
            tables += [f"  %no_{table} = icmp eq ptr %{table}, null"]
    bounds: list[str] = []
    for symbol, dim in zip(signature.symbols, names, strict=True):
        ends = (symbol.bounds.low, symbol.bounds.high) if symbol.bounds else (None, None)
        for word, end in zip(("slt", "sgt"), ends, strict=True):
            if end is not None:
                bounds.append(f"  %out{len(bounds)} = icmp {word} i64 {dim}, {end}")
    fitting: list[str] = []
    if conditions_on_symbols(signature):
        scalars = "".join(f"i64 {dim}, " for dim in names)
        fitting = [
            f"  call void @{name}.needs(ptr %fit, {scalars}i32 1)",
            "  %fits = load i64, ptr %fit, align 8",
            "  %unfit = icmp ne i64 %fits, 0",
            "  br i1 %unfit, label %refuse, label %size",
            "size:",
        ]
    refused = ["%lacking", *(t.split()[0] for t in (*tables, *bounds))]
    chain, last = [], refused[0]
    for index, flag in enumerate(refused[1:]):
        chain.append(f"  %any{index} = or i1 {last}, {flag}")
        last = f"%any{index}"
    head = ", ".join(["ptr %weights", "ptr %inputs", "ptr %outputs", "ptr %workspace", "i32 %threads", *dims])
    return "\n".join(
        [
            f"define internal i32 @{name}.run({head}) nounwind {{",
            f"  %buffers = alloca [{position} x ptr], align 64",
            f"  %scalars = alloca [{max(1, len(names))} x i64], align 64",
            "  %fit = alloca i64, align 64",
            *fitting,
            *needs,
            *tables,
            *bounds,
            *chain,
            f"  br i1 {last}, label %refuse, label %collect",
            "collect:",
            *lines,
            f"  br i1 {bad}, label %refuse, label %run",
            "run:",
            *(_checked_call if signature.sites else _plain_call)(entry),
            "refuse:",
            "  ret i32 -1",
            "}",
        ]
    )


def _plain_call(entry: str) -> list[str]:
    return [
        f"  %status = call i32 @{entry}(ptr %buffers, ptr %scalars, i32 %threads)",
        "  ret i32 %status",
    ]


def _checked_call(entry: str) -> list[str]:
    """The call of an entry point with checks. The workspace begins with the record of failed checks, which is
    zeroed before the call and tested after it.
    """
    return [
        "  store i64 0, ptr %workspace, align 8",
        f"  %status = call i32 @{entry}(ptr %buffers, ptr %scalars, i32 %threads)",
        "  %record = load i64, ptr %workspace, align 8",
        "  %failed = icmp ne i64 %record, 0",
        f"  %result = select i1 %failed, i32 {CHECK_FAILED}, i32 %status",
        "  ret i32 %result",
    ]


__all__ = ["ABI", "LIBRARY", "Exported", "interface_ir", "library_ir", "weights_symbol"]
