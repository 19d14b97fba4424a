"""The table of differences between languages of the C family.

One emitter writes programs in all of these languages. The `Dialect` of a language has its keywords and
features. A vendor whose compiler accepts C makes one with `dataclasses.replace(C99, …)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dlc_core.tir.matrix import Fragment

SCALARS: Mapping[str, str] = MappingProxyType(
    {
        "bool": "bool",
        **{f"int{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
        **{f"uint{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
        "float16": "float",
        "bfloat16": "float",
        "float32": "float",
        "float64": "double",
        "handle": "void *",
    }
)
"""The types of values in computations: narrow floats are floats with representable values."""

STORED: Mapping[str, str] = MappingProxyType(
    {**SCALARS, "bool": "uint8_t", "float16": "uint16_t", "bfloat16": "uint16_t"}
)
"""The types of values in memory."""

MATH: Mapping[str, str] = MappingProxyType(
    {
        name: name
        for name in (
            "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "asin",
            "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "pow", "fma",
            "floor", "ceil", "trunc", "fmod", "copysign", "nextafter",
        )
    }
    | {"round": "rint", "abs": "fabs"}
)  # fmt: skip
"""Functions of the language's library by intrinsic, for float64; those for float32 have the suffix."""


@dataclass(frozen=True)
class Moves:
    """The vector types of a language: contiguous elements are loaded and stored as vectors.

    Arithmetic is written lane by lane, unless `arithmetic` is set.  `{scalar}` is the type of an element,
    `{lanes}` their number, `{type}` the vector, `{at}` a pointer to the first element, `{space}` its
    qualifier and a space, `{lane}` the number of a lane.
    """

    lanes: tuple[int, ...] = (2, 4)
    """The numbers of lanes that have types; other vectors are moved element by element."""
    type: str = "{scalar}{lanes}"
    make: str = "({type})({values})"
    lane: str = ".s{lane:x}"
    load: str = "vload{lanes}(0, {at})"
    store: str = "vstore{lanes}({value}, 0, {at})"
    widest: int = 0
    """The maximum bits of a vector; 0 if there is no limit."""
    arithmetic: bool = False
    """Whether vectors of floats have operators with vectors and scalars, selection by lanes, and
    broadcasts."""
    aligned: bool = False
    """Whether vector accesses must be aligned to their size. If alignment is not known, elements are then
    moved one by one."""


@dataclass(frozen=True)
class Copies:
    """Asynchronous copies from global to shared memory."""

    bytes: tuple[int, ...]
    """The sizes of a copy in bytes."""
    copy: str = "dlc_copy_{bytes}({to}, {source})"
    """Format of the statement: `{bytes}`, and pointers `{to}` and `{source}`."""
    wait: str = "dlc_wait_for_copies()"
    """The wait for all copies."""
    guarded: str = ""
    """Format of the statement that copies if `{cond}` holds, and else fills with zeros; "" if there is
    none."""
    groups: tuple[int, ...] = ()
    """The numbers of the last groups of copies that a wait can leave in flight."""
    commit: str = "dlc_commit_copies()"
    """The end of a group of copies."""
    wait_but: str = "dlc_wait_for_copies_but_{groups}()"
    """Format of the statement that waits for all but the last `{groups}` groups."""


@dataclass(frozen=True)
class TensorCopies:
    """The syntax of tensor copies, which one thread issues for its group (`tir.tensor_copy`).

    The fields are format strings. `{barriers}` is an array of `{count}` barrier words of 64 bits in shared
    memory. `{barrier}` is a pointer to the word of one group of copies. A phase of the barrier ends when the
    group has ended and all its bytes have arrived.
    """

    count: int
    """The number of groups of copies that may be in flight."""
    declare: str
    """The declaration of the array."""
    begin: str = "dlc_init_tensor_barriers({barriers}, {count})"
    """The statement at the beginning of a kernel; it includes a barrier."""
    tensor: str = "const __grid_constant__ dlc_tensor {name}"
    """The parameter with the descriptor of a tensor."""
    copy: str = "dlc_tensor_copy_{rank}({barrier}, {bytes}, {to}, &{tensor}, {first})"
    """`{first}` names the first element, inner dims first."""
    end: str = "dlc_commit_tensor_copies({barrier})"
    """The end of a group, which all threads execute."""
    wait: str = "dlc_wait_for_tensor_copies({barrier}, {parity})"
    """The wait for the end of a phase, given by the lowest bit of its number."""


@dataclass(frozen=True)
class Blocks:
    """An instruction by which a subgroup loads `count` small matrices from shared memory. Each thread passes
    a pointer to one row. `of` is the fragment of one matrix that a thread then holds.
    """

    of: Fragment
    bits: int
    """The bits of an element."""
    counts: tuple[int, ...] = ()
    """The numbers of matrices that are loaded at once, largest first. Thread i points to row i % rows of
    block i // rows."""
    load: str = ""
    """Format of the statement: `{count}`, `{to}`, words of 32 bits, and `{source}`, the thread's pointer."""


@dataclass(frozen=True)
class InPlace:
    """The statements around products of matrix units that read shared memory asynchronously.

    Formats of statements; `{acc}` is an array of `{count}` sums of type `{type}`.
    """

    begin: str
    """The statement before products, which then add to the sums."""
    commit: str
    """The statement after products."""
    wait: str
    """The wait until all products have finished, before accumulators are used and before operands are
    overwritten."""
    wait_but: str
    """The wait for all products except those after the last commit."""
    fence: str
    """The statement before a barrier that makes the writes of this thread visible to the units."""


@dataclass(frozen=True)
class Matrices:
    """The syntax of matrix products of subgroups. A thread holds its fragment of an operand in words of 32
    bits.

    The fields are format strings for statements in C. Units that read operands in place get pointers `{a}`
    and `{b}` to memory of scope `SWIZZLED`. `{layouts}` has a letter for each operand: n if its rows are
    contiguous along K, t if K is the outermost dim. `{a_stride}` and `{b_stride}` are the bytes between parts
    of one row width (0 if there is one part).
    """

    products: Mapping[str, str]
    """By the unit's name: `{acc}`, an array of values to add to, and words of `{a}` and `{b}`."""
    in_place: InPlace | None = None
    """The syntax for units that read operands in place; None if there are none."""
    word: str = "uint32_t"
    load: str = "dlc_word({at})"
    """A word from memory, at the pointer `{at}`."""
    pack: str = "dlc_pack_{bits}({values})"
    """Packs values of a number of bits into a word, in memory order."""
    blocks: tuple[Blocks, ...] = ()


@dataclass(frozen=True)
class Large:
    """How kernels declare dynamic shared memory, whose size is given at launch: as one array of bytes.

    Some languages limit the size of shared arrays that kernels declare (static shared memory). Kernels that
    need more use dynamic shared memory for all their shared buffers.
    """

    beyond: int
    """The limit: shared buffers of up to this number of bytes in all are separate static arrays."""
    declare: str
    """The format of the declaration of the array: `{name}`, `{bytes}`."""
    align: int
    """The alignment of the array and of each buffer in it."""


@dataclass(frozen=True)
class Kernels:
    """The syntax of kernels. A kernel is one launch over thread axes.

    `axes` has the expression of a thread's index along each axis of the target's description. `words` are
    format strings for intrinsics, in which `{0}` is the first operand. There must be "barrier" for the
    barrier of a group, `subgroup_…` if subgroups exchange values, and `extern.…` for functions of the
    language. A word such as "vector_dot.int8.uint8x4" adds to `{0}` the dot product of four elements at the
    pointers `{1}` and `{2}`.
    """

    head: str
    """The text before a kernel's name: qualifier and result."""
    axes: Mapping[str, str]
    words: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    spaces: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Qualifiers of pointers by memory scope; a missing scope has none."""
    offsets: bool = False
    """Whether a pointer parameter is followed by a 64-bit offset of the buffer in elements. Languages whose
    hosts use memory handles need it, because they have no pointers into memory."""
    moves: Moves | None = None
    bounds: str = ""
    """The text after the head of a kernel whose groups have `{threads}` threads."""
    copies: Copies | None = None
    tensor_copies: TensorCopies | None = None
    matrices: Matrices | None = None
    large: Large | None = None
    """The syntax of dynamic shared memory, for kernels that need more than static arrays may have; None if
    the language has no such limit.
    """


@dataclass(frozen=True)
class Dialect:
    """The names and features of a language of the C family.

    `vectors` is "" if all values are scalars. It is "extension" if the compiler has vectors of any power of
    two of elements with the operators of C (`__attribute__((vector_size))`). `index` is the type of indices.
    `parallel` opens a parallel loop, with `{threads}` for the number of threads of the call; "" runs the
    iterations in order.
    """

    name: str
    scalars: Mapping[str, str] = field(default_factory=lambda: SCALARS)
    stored: Mapping[str, str] = field(default_factory=lambda: STORED)
    math: Mapping[str, str] = field(default_factory=lambda: MATH)
    """Functions by intrinsic. `{type}` in a name becomes the dtype of the computation, `f32` or `f64`."""
    float_suffix: str = "f"
    """The suffix of float32 functions."""
    index: str = "int64_t"
    function: str = "static void"
    """The qualifiers and result type of a function that only this file calls."""
    inline: str = "static inline"
    constant: str = "const"
    restrict: str = "restrict"
    scopes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({"local": "", "global": ""}))
    """Qualifiers of an array by memory scope. Other scopes are not supported."""
    vectors: str = ""
    zero: str = "{0}"
    """The initialiser of a vector."""
    alignment: str = ""
    """The qualifier of an array with an alignment of `{align}` bytes; "" if the language has none."""
    parallel: str = ""
    headers: tuple[str, ...] = ("math.h", "stdbool.h", "stdint.h", "string.h")
    preamble: str = ""
    """Text after the headers."""
    reserved: frozenset[str] = frozenset()
    """Reserved words, in addition to those of C."""
    reinterpret: str = ""
    """The format that reinterprets `{value}`, stored as `{held}`, as the type `{to}`; "" copies the bits."""
    fixed: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The texts of helpers that this language replaces, by name without the prefix.  These exist only here:
    `dot_uint8_int8x4` and similar add a dot product of contiguous elements to a sum, `multiply_add` adds a
    product of narrow integers, and `rounding.py` describes `clamped_round` and `scaled_round`."""
    kernels: Kernels | None = None
    """The syntax of kernels; None if the language has no thread axes."""
    separate_kernels: bool = False
    """Whether kernels with loops are never inlined.  On machines with few registers, a function that contains
    several kernels spills the addresses of each."""
    foreign: tuple[str, ...] = ("c",)
    """The languages of `Source` texts of foreign functions that a file may contain. A file without kernels
    also calls C symbols and Python callables of the host."""


C99 = Dialect("c99")
"""Standard C with scalar values only."""

__all__ = [
    "C99",
    "MATH",
    "SCALARS",
    "STORED",
    "Blocks",
    "Copies",
    "Dialect",
    "InPlace",
    "Kernels",
    "Large",
    "Matrices",
    "Moves",
    "TensorCopies",
]
