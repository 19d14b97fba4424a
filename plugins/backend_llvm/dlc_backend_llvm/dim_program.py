"""The function of an exported library that computes host-computed dims from elements of inputs.

int <name>_dims(const void *const *inputs, <dims of shapes>, <pointers to the others>);
"""

from __future__ import annotations

from dlc_backend_llvm.emit.kernel import emit_function
from dlc_backend_llvm.emit.unit import Unit
from dlc_core.runtime.interface.dim_program import data_symbols, dim_program, given_symbols, read_inputs
from dlc_core.runtime.interface.signature import Signature


def emit_dims(unit: Unit, name: str, signature: Signature) -> None:
    """Add `<name>_dims` to the functions of a library."""
    emit_function(unit, dim_program(f"{name}.data_dims", signature))
    given, computed, read = given_symbols(signature), data_symbols(signature), read_inputs(signature)
    params = ["ptr %inputs", *(f"i64 %d{i}" for i in range(len(given)))]
    params += [f"ptr %to{i}" for i in range(len(computed))]
    lines = [
        f"define i32 @{name}_dims({', '.join(params)}) nounwind {{",
        f"  %results = alloca [{1 + len(signature.data_dims)} x i64], align 64",
        "  %none = icmp eq ptr %inputs, null",
        f"  br i1 %none, label %refuse, label %{'collect' if read else 'compute'}",
    ]
    bad = "%none"
    if read:
        lines.append("collect:")
    for index in read:
        lines += [
            f"  %at{index} = getelementptr ptr, ptr %inputs, i64 {index}",
            f"  %p{index} = load ptr, ptr %at{index}, align 8",
            f"  %null{index} = icmp eq ptr %p{index}, null",
            f"  %bad{index} = or i1 {bad}, %null{index}",
        ]
        bad = f"%bad{index}"
    if read:
        lines.append(f"  br i1 {bad}, label %refuse, label %compute")
    args = [*(f"ptr %p{index}" for index in read), "ptr %results"]
    args += [*(f"i64 %d{i}" for i in range(len(given))), "i32 1"]
    lines += [
        "compute:",
        f"  call void @{name}.data_dims({', '.join(args)})",
        "  %status64 = load i64, ptr %results, align 8",
        "  %status = trunc i64 %status64 to i32",
    ]
    for i in range(len(computed)):
        lines += [
            f"  %from{i} = getelementptr i64, ptr %results, i64 {1 + i}",
            f"  %dim{i} = load i64, ptr %from{i}, align 8",
            f"  store i64 %dim{i}, ptr %to{i}, align 8",
        ]
    lines += ["  ret i32 %status", "refuse:", "  ret i32 -1", "}"]
    unit.functions.append("\n" + "\n".join(lines))


__all__ = ["emit_dims"]
