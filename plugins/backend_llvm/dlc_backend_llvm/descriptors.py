"""The functions of an exported library that take DLPack descriptors of arrays and check them.

    run_dlpack(weights, inputs, outputs, workspace, threads)
    plan(inputs, results)            the shapes of the outputs, and the bytes of the workspace

The fields of the descriptors are copied into a table. A tensor program of the core compares the table with
the signature (`dlc_core.runtime.interface.descriptors`). If they match, the model is run. Layout of a
descriptor: `DLTensor` of DLPack 1.1 on a 64-bit machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlc_backend_llvm.emit.kernel import emit_function
from dlc_backend_llvm.emit.unit import Unit
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import as_expr, const
from dlc_core.runtime.interface.descriptors import (
    DATA,
    DEVICE,
    DTYPE,
    RANK,
    SHAPE,
    STRIDED,
    descriptor_checks,
    inputs_only,
    row_size,
    status_of,
)
from dlc_core.runtime.interface.dim_program import data_symbols, given_symbols, read_inputs
from dlc_core.runtime.interface.signature import Signature
from dlc_core.tir.stmt import PrimFunc, Store, seq

_FIELDS = {"data": 0, "device": 8, "rank": 16, "dtype": 20, "shape": 24, "strides": 32, "offset": 40}
"""Byte offsets of the fields of a descriptor."""


def emit_run_dlpack(unit: Unit, name: str, signature: Signature) -> None:
    """Add the function `<name>.run_dlpack` to a library."""
    emit_function(unit, descriptor_checks(f"{name}.checks", signature))
    if signature.data_dims:
        emit_function(unit, descriptor_checks(f"{name}.checks_first", inputs_only(signature)))
    unit.functions += [_facts(name), _run(name, signature)]


def emit_plan(unit: Unit, name: str, signature: Signature) -> None:
    """Add the function `<name>.plan`, after `emit_run_dlpack`. It checks the inputs, and writes the dims of
    the outputs, one after the other, and the bytes of the workspace to the results (int64).
    """
    given = replace(signature, outputs=())
    emit_function(unit, descriptor_checks(f"{name}.plan_checks", given))
    dims = [as_expr(dim) for value in signature.outputs for dim in value.type.shape]
    sizes = Buffer("sizes", (1 + len(dims),), INDEX)
    body = seq(*(Store(sizes, (const(i),), value) for i, value in enumerate((*dims, signature.arena_size))))
    emit_function(unit, PrimFunc(f"{name}.sizes", (sizes, *signature.symbols), body))
    known = [f"i64 %dim{index}" for index in range(len(signature.symbols))]
    lines = [
        f"define internal i32 @{name}.plan(ptr %inputs, ptr %sizes) nounwind {{",
        *_checked_descriptors(name, given, "plan_checks"),
        *_found_dims(signature),
        f"  call void @{name}.sizes({', '.join(['ptr %sizes', *known, 'i32 1'])})",
        "  ret i32 0",
        "refuse:",
        "  ret i32 %status",
        "}",
    ]
    unit.functions.append("\n" + "\n".join(lines))


def _facts(name: str) -> str:
    """A function that copies a descriptor into a row of the table. It copies shape and strides only if the
    rank is the expected one.
    """

    def field(key: str, type_: str) -> list[str]:
        return [
            f"  %at_{key} = getelementptr i8, ptr %tensor, i64 {_FIELDS[key]}",
            f"  %{key} = load {type_}, ptr %at_{key}, align {4 if type_ == 'i32' else 8}",
        ]

    def put(word: int, value: str) -> list[str]:
        return [
            f"  %word{word} = getelementptr i64, ptr %row, i64 {word}",
            f"  store i64 {value}, ptr %word{word}, align 8",
        ]

    lines = [
        *(line for key in ("data", "offset") for line in field(key, "i64")),
        *(line for key in ("device", "rank", "dtype") for line in field(key, "i32")),
        *(line for key in ("shape", "strides") for line in field(key, "ptr")),
        "  %address = add i64 %data, %offset",
        *(f"  %{key}64 = {kind} i32 %{key} to i64" for key, kind in
          (("device", "sext"), ("rank", "sext"), ("dtype", "zext"))),
        "  %strided = icmp ne ptr %strides, null",
        "  %strided64 = zext i1 %strided to i64",
        "  %shapeless = icmp eq ptr %shape, null",
        "  %some = icmp sgt i32 %rank, 0",
        "  %broken = and i1 %shapeless, %some",
        "  %rank_or_invalid = select i1 %broken, i64 -1, i64 %rank64",
        *put(DATA, "%address"),
        *put(DEVICE, "%device64"),
        *put(RANK, "%rank_or_invalid"),
        *put(DTYPE, "%dtype64"),
        *put(STRIDED, "%strided64"),
        "  %fits = icmp eq i64 %rank_or_invalid, %expected_rank",
        "  %copied = and i1 %fits, %some",
        "  br i1 %copied, label %dims, label %done",
    ]  # fmt: skip
    return f"""
define internal void @{name}.facts(ptr %tensor, ptr %row, i64 %expected_rank) nounwind {{
entry:
{chr(10).join(lines)}
dims:
  %d = phi i64 [ 0, %entry ], [ %next, %following ]
  %at_size = getelementptr i64, ptr %shape, i64 %d
  %size = load i64, ptr %at_size, align 8
  %to_size = add i64 %d, {SHAPE}
  %size_word = getelementptr i64, ptr %row, i64 %to_size
  store i64 %size, ptr %size_word, align 8
  br i1 %strided, label %step, label %following
step:
  %at_stride = getelementptr i64, ptr %strides, i64 %d
  %stride = load i64, ptr %at_stride, align 8
  %to_stride = add i64 %to_size, %expected_rank
  %stride_word = getelementptr i64, ptr %row, i64 %to_stride
  store i64 %stride, ptr %stride_word, align 8
  br label %following
following:
  %next = add i64 %d, 1
  %more = icmp slt i64 %next, %expected_rank
  br i1 %more, label %dims, label %done
done:
  ret void
}}"""


def _run(name: str, signature: Signature) -> str:
    arguments = ["ptr %weights", "ptr %pointers", "ptr %given", "ptr %workspace", "i32 %threads"]
    arguments += [f"i64 %dim{index}" for index in range(len(signature.symbols))]
    params = "ptr %weights, ptr %inputs, ptr %outputs, ptr %workspace, i32 %threads"
    lines = [
        f"define internal i32 @{name}.run_dlpack({params}) nounwind {{",
        *_checked_descriptors(name, signature, "checks"),
        *_found_dims(signature),
        f"  %given = getelementptr ptr, ptr %pointers, i64 {len(signature.inputs)}",
        f"  %done = call i32 @{name}.run({', '.join(arguments)})",
        "  ret i32 %done",
        "refuse:",
        "  ret i32 %status",
        "}",
    ]
    return "\n" + "\n".join(lines)


def _found_dims(signature: Signature) -> list[str]:
    """Lines that read the dims from the results of the checks."""
    lines: list[str] = []
    for index in range(len(signature.symbols)):
        lines += [
            f"  %at_dim{index} = getelementptr i64, ptr %results, i64 {1 + index}",
            f"  %dim{index} = load i64, ptr %at_dim{index}, align 8",
        ]
    return lines


def _checked_descriptors(name: str, signature: Signature, checks: str) -> list[str]:
    """Lines that check all descriptors of a signature. They go to `refuse` with a `%status` if a check fails;
    else the dims are in `%results`, and the addresses in `%pointers`.
    """
    values = (*signature.inputs, *signature.outputs)
    words, dims = sum(map(row_size, values)), len(signature.symbols)
    lines = [
        f"  %table = alloca [{max(1, words)} x i64], align 64",
        f"  %results = alloca [{1 + dims} x i64], align 64",
        f"  %pointers = alloca [{max(1, len(values))} x ptr], align 64",
        f"  store [{max(1, words)} x i64] zeroinitializer, ptr %table, align 64",
        *_tables(signature),
    ]
    begin = 0
    for number, value in enumerate(values):
        table, index = ("inputs", number) if number < len(signature.inputs) else (
            "outputs", number - len(signature.inputs))  # fmt: skip
        lines += [
            f"  %from{number} = getelementptr ptr, ptr %{table}, i64 {index}",
            f"  %tensor{number} = load ptr, ptr %from{number}, align 8",
            f"  %null{number} = icmp eq ptr %tensor{number}, null",
            f"  br i1 %null{number}, label %missing{number}, label %present{number}",
            f"missing{number}:",
            f"  ret i32 {status_of(number, 'NULL')}",
            f"present{number}:",
            f"  %row{number} = getelementptr i64, ptr %table, i64 {begin}",
            f"  call void @{name}.facts(ptr %tensor{number}, ptr %row{number}, i64 {value.type.ndim})",
            f"  %address{number} = load ptr, ptr %row{number}, align 8",
            # An empty array may have a null pointer, which `run` refuses. Pass another address in its place.
            f"  %nowhere{number} = icmp eq ptr %address{number}, null",
            f"  %data{number} = select i1 %nowhere{number}, ptr %table, ptr %address{number}",
            f"  %to{number} = getelementptr ptr, ptr %pointers, i64 {number}",
            f"  store ptr %data{number}, ptr %to{number}, align 8",
        ]
        begin += row_size(value)
    lines += _compute_dims(name, signature)
    lines += [
        f"  call void @{name}.{checks}(ptr %table, ptr %results, i32 1)",
        "  %status64 = load i64, ptr %results, align 8",
        "  %status = trunc i64 %status64 to i32",
        "  %good = icmp eq i32 %status, 0",
        "  br i1 %good, label %run, label %refuse",
        "run:",
    ]
    return lines


def _compute_dims(name: str, signature: Signature) -> Sequence[str]:
    """Lines that compute the host-computed dims after the inputs have been checked."""
    if not signature.data_dims:
        return ()
    given = given_symbols(signature)
    lines = [
        f"  %found = alloca [{1 + len(given)} x i64], align 64",
        f"  call void @{name}.checks_first(ptr %table, ptr %found, i32 1)",
        "  %first64 = load i64, ptr %found, align 8",
        "  %first = trunc i64 %first64 to i32",
        "  %readable = icmp eq i32 %first, 0",
        "  br i1 %readable, label %compute, label %unreadable",
        "unreadable:",
        "  ret i32 %first",
        "compute:",
    ]
    arguments = ["ptr %pointers"]
    for index in range(len(given)):
        lines += [
            f"  %at_given{index} = getelementptr i64, ptr %found, i64 {1 + index}",
            f"  %given{index} = load i64, ptr %at_given{index}, align 8",
        ]
        arguments.append(f"i64 %given{index}")
    for index, symbol in enumerate(data_symbols(signature)):
        row = 1 + signature.symbols.index(symbol)
        lines.append(f"  %at_computed{index} = getelementptr i64, ptr %results, i64 {row}")
        arguments.append(f"ptr %at_computed{index}")
    return [
        *lines,
        f"  %computed = call i32 @{name}_dims({', '.join(arguments)})",
        "  %fits = icmp eq i32 %computed, 0",
        "  br i1 %fits, label %check, label %unfit",
        "unfit:",
        f"  ret i32 {status_of((*read_inputs(signature), 0)[0], 'shape')}",
        "check:",
    ]


def _tables(signature: Signature) -> Sequence[str]:
    """Lines that refuse tables of descriptors that are NULL."""
    lines: list[str] = []
    for table, values in (("inputs", signature.inputs), ("outputs", signature.outputs)):
        if values:
            lines += [
                f"  %no_{table} = icmp eq ptr %{table}, null",
                f"  br i1 %no_{table}, label %without_{table}, label %with_{table}",
                f"without_{table}:",
                "  ret i32 -1",
                f"with_{table}:",
            ]
    return lines


__all__ = ["emit_plan", "emit_run_dlpack"]
