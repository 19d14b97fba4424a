"""Tensor cores: products of fragments by one warp (`mma`), and loads of 8 x 16-byte blocks from shared memory
as fragments (`ldmatrix`).

[1] PTX ISA, "Matrix multiply-accumulate operation using mma instruction", "ldmatrix".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlc_backend_cuda import warpgroups
from dlc_backend_cuda.polyfills import INLINE, TYPES, either, operands
from dlc_core.backend.polyfills import packing_words
from dlc_core.backend.simt import block_numbers, matrix_numbers
from dlc_core.target.source import Blocks, Matrices
from dlc_core.tir.matrix import Fragment, MatrixUnit

_BLOCKS = {
    "dlc_blocks": Blocks(Fragment(8, 8, ((2, 4), (8, 8)), ((1, 2),)), 16),
    "dlc_transposed_blocks": Blocks(Fragment(8, 8, ((16, 4), (1, 8)), ((8, 2),)), 16),
    "dlc_blocks_8": Blocks(Fragment(8, 16, ((4, 4), (16, 8)), ((1, 4),)), 8),
    "dlc_blocks_32": Blocks(Fragment(8, 4, ((1, 4), (4, 8)), ()), 32),
}
_COUNTS = (4, 2, 1)
_WORDS = {
    "dlc_word": either(
        f"{INLINE} uint32_t dlc_word(const void *at)",
        "return *(const uint32_t *)at;",
        "uint32_t word;\n    memcpy(&word, at, 4);\n    return word;",
    ),
    **packing_words(INLINE),
}


def matrices(units: Sequence[MatrixUnit]) -> Matrices | None:
    """The syntax of matrix products in kernels; None if there are no units."""
    blocks = tuple(
        replace(each, counts=_COUNTS, load=f"{name}_x{{count}}({{to}}, {{source}})")
        for name, each in _BLOCKS.items()
    )
    products = {
        unit.name: warpgroups.CALL.format(name=warpgroups.name_of(unit))
        if unit.in_place
        else f"{_name(unit)}({{acc}}, {{a}}, {{b}})"
        for unit in units
    }
    return Matrices(products, warpgroups.AROUND, blocks=blocks) if units else None


def matrix_words(units: Sequence[MatrixUnit]) -> dict[str, str]:
    """The definitions of the functions that `matrices` uses, by name."""
    loads = {f"{name}_x{n}": _load(name, each, n) for name, each in _BLOCKS.items() for n in _COUNTS}
    held = {_name(unit): _product(unit) for unit in units if not unit.in_place}
    return {**_WORDS, **loads, **held, **warpgroups.words_of(units)}


def _name(unit: MatrixUnit) -> str:
    return f"dlc_mma_{TYPES[unit.a]}_{TYPES[unit.b]}"


def _product(unit: MatrixUnit) -> str:
    """The function that multiplies the fragments of a unit."""
    sums, letter, scalar = ("f32", "f", "float") if unit.acc == "float32" else ("s32", "r", "int32_t")
    kind = f"m{unit.m}n{unit.n}k{unit.k}.row.col.{sums}.{TYPES[unit.a]}.{TYPES[unit.b]}.{sums}"
    held = "{%0, %1, %2, %3}"
    text = f"mma.sync.aligned.{kind} {held}, {{%4, %5, %6, %7}}, {{%8, %9}}, {held};"
    outs = operands(f"+{letter}", "sums", 4)
    own = f'asm volatile("{text}"\n    : {outs}\n    : {operands("r", "a", 4)}, {operands("r", "b", 2)});'
    if unit.mantissa:
        own = f"{_rounded('a', 4)}{_rounded('b', 2)}{own}"
    numbers = f"static const int16_t unit[] = {{{matrix_numbers(unit)}}};"
    head = f"{INLINE} void {_name(unit)}({scalar} *sums, const uint32_t *a, const uint32_t *b)"
    return either(head, own, f"{numbers}\n    DLC_MATRIX(sums, a, b, unit);")


def _rounded(name: str, count: int) -> str:
    """Statements that round the words of an operand to TF32."""
    convert = f'asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(near_{name}[i]) : "f"(__uint_as_float({name}[i])));'
    loop = f"for (int i = 0; i < {count}; ++i)\n    {convert}"
    return f"uint32_t near_{name}[{count}];\n{loop}\n{name} = near_{name};\n"


def _load(name: str, blocks: Blocks, count: int) -> str:
    """The function that loads `count` blocks."""
    transposed = ".trans" if "transposed" in name else ""
    regs = ", ".join(f"%{i}" for i in range(count))
    text = f"ldmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 {{{regs}}}, [%{count}];"
    at = '"r"((unsigned)__cvta_generic_to_shared(from))'
    own = f'asm volatile("{text}"\n    : {operands("=r", "to", count)} : {at} : "memory");'
    numbers = f"static const int16_t block[] = {{{block_numbers(blocks)}}};"
    head = f"{INLINE} void {name}_x{count}(uint32_t *to, const void *from)"
    return either(head, own, f"{numbers}\n    DLC_BLOCKS(to, from, {count}, block);")


__all__ = ["matrices", "matrix_words"]
