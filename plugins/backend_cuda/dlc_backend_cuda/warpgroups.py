"""Asynchronous products by four warps (`wgmma`). Operands are in shared memory, in rows of 128 bytes.

[1] PTX ISA, "Asynchronous warpgroup level matrix instructions", with the layouts of shared memory and their
descriptors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlc_backend_cuda.polyfills import INLINE, TYPES, either, operands
from dlc_core.backend.simt import matrix_numbers
from dlc_core.target.source import InPlace
from dlc_core.tir.matrix import Fragment, MatrixUnit

WIDTH, ROWS = 128, 64
"""The threads of a warpgroup (four warps), and the rows of its products."""
COLUMNS = (64, 128, 192, 256)
_DESCRIPTOR = """const unsigned long long of_{name} = 1ull << 62 | 64ull << 32
    | (unsigned long long)({name}_stride >> 4) << 16 | (__cvta_generic_to_shared({name}) >> 4 & 0x3fff);"""
"""The descriptor of an operand with 128-byte swizzle. Groups of 8 rows are 1024 bytes apart [1]."""
CALL = "{name}_{{layouts}}({{acc}}, {{a}}, {{a_stride}}, {{b}}, {{b_stride}})"
AROUND = InPlace(
    begin="dlc_begin_{type}({acc}, {count})",
    commit="dlc_commit_products()",
    wait="dlc_wait_for_{type}({acc}, {count})",
    wait_but="dlc_wait_for_{type}_but_1({acc}, {count})",
    fence="dlc_fence_for_products()",
)


def unit_of(like: MatrixUnit, columns: int) -> MatrixUnit:
    """The warpgroup unit with `columns` columns, for the dtypes and the K of a unit of one warp [1]."""
    sums = ((1, 2), (8 * columns, 2), (8, columns // 8))
    return replace(
        like,
        of_a=Fragment.distributed(ROWS, like.k, WIDTH),
        of_b=Fragment.distributed(like.k, columns, WIDTH),
        of_acc=Fragment(ROWS, columns, ((2, 4), (columns, 8), (16 * columns, 4)), sums),
        in_place=True,
    )


def name_of(unit: MatrixUnit) -> str:
    """The name of the function of a product, without the suffix for the operand layouts."""
    return f"dlc_wgmma_{TYPES[unit.a]}_{TYPES[unit.b]}_n{unit.n}"


def words_of(units: Sequence[MatrixUnit]) -> dict[str, str]:
    """The definitions of all functions for these products, by name."""
    found = dict(_COMMON)
    for unit in units:
        if unit.in_place:
            majors = ("nn", "nt", "tn", "tt") if unit.transposable else ("nn",)
            found.update({f"{name_of(unit)}_{major}": _product(unit, major) for major in majors})
    return found


def _product(unit: MatrixUnit, major: str) -> str:
    sums, letter, scalar = ("f32", "f", "float") if unit.acc == "float32" else ("s32", "r", "int32_t")
    count = unit.of_acc.count
    kind = f"m{unit.m}n{unit.n}k{unit.k}.{sums}.{TYPES[unit.a]}.{TYPES[unit.b]}"
    held = ", ".join(f"%{i}" for i in range(count))
    signs = (
        ", 1, 1" * (sums == "f32") + "".join(f", {int(each == 't')}" for each in major) * unit.transposable
    )
    text = f"wgmma.mma_async.sync.aligned.{kind} {{{held}}}, %{count}, %{count + 1}, 1{signs};"
    descriptors = "\n".join(_DESCRIPTOR.format(name=name) for name in "ab")
    outs = operands(f"+{letter}", "sums", count)
    own = f'{descriptors}\nasm volatile("{text}"\n    : {outs}\n    : "l"(of_a), "l"(of_b));'
    here = f"""static const int16_t unit[] = {{{matrix_numbers(unit)}}};
    DLC_PRODUCT_ASYNC(sums, a, a_stride, b, b_stride, "{major}", unit);"""
    given = f"({scalar} *sums, const void *a, int a_stride, const void *b, int b_stride)"
    return either(f"{INLINE} void {name_of(unit)}_{major}{given}", own, here)


def _around(scalar: str, letter: str) -> dict[str, str]:
    """The functions before and after products. They keep the compiler from moving uses of the accumulators
    over the products.
    """
    keep = f"""#pragma unroll
for (int i = 0; i < count; ++i)
    asm volatile("" : "+{letter}"(sums[i]) :: "memory");"""
    begin, wait = "wgmma.fence.sync.aligned;", "wgmma.wait_group.sync.aligned {};"
    given = f"({scalar} *sums, int count)"
    waits = {
        f"dlc_wait_for_{scalar}{suffix}": either(
            f"{INLINE} void dlc_wait_for_{scalar}{suffix}{given}",
            f'asm volatile("{wait.format(but)}" ::: "memory");\n{keep}',
            f"DLC_PRODUCTS_WAIT({but});",
        )
        for but, suffix in enumerate(("", "_but_1"))
    }
    return {
        **waits,
        f"dlc_begin_{scalar}": either(
            f"{INLINE} void dlc_begin_{scalar}{given}",
            f'{keep}\nasm volatile("{begin}" ::: "memory");',
            "DLC_PRODUCTS_BEGIN();",
        ),
    }


_COMMON = {
    **_around("float", "f"),
    **_around("int32_t", "r"),
    "dlc_commit_products": either(
        f"{INLINE} void dlc_commit_products(void)",
        'asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");',
        "DLC_PRODUCTS_COMMIT();",
    ),
    "dlc_fence_for_products": either(
        f"{INLINE} void dlc_fence_for_products(void)",
        'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");',
        "DLC_FENCE();",
    ),
}

__all__ = ["AROUND", "CALL", "COLUMNS", "name_of", "unit_of", "words_of"]
