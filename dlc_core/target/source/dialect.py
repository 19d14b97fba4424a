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
"""How values are held while they are computed: narrow floats as floats of a representable value."""

STORED: Mapping[str, str] = MappingProxyType(
    {**SCALARS, "bool": "uint8_t", "float16": "uint16_t", "bfloat16": "uint16_t"}
)
"""How values lie in memory."""

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
    """Vectors of a language that has them as types: contiguous elements move as one of them.

    Arithmetic is written lane by lane, unless there is `arithmetic`.  `{scalar}` is the type of an element,
    `{lanes}` their number, `{type}` the vector, `{at}` a pointer to the first element, `{space}` its
    qualifier and a space, `{lane}` the number of a lane.
    """

    lanes: tuple[int, ...] = (2, 4)
    """The numbers of lanes that there are types for; other vectors move element by element."""
    type: str = "{scalar}{lanes}"
    make: str = "({type})({values})"
    lane: str = ".s{lane:x}"
    load: str = "vload{lanes}(0, {at})"
    store: str = "vstore{lanes}({value}, 0, {at})"
    widest: int = 0
    """The maximum bits of a vector; 0 if there is no limit."""
    arithmetic: bool = False
    """Whether vectors of floats have operators, between each other and with scalars, choices by lanes, and
    are made of one value where all lanes have it."""
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
    """Format of the statement that copies where `{cond}` holds, and else fills with zeros; "" for none."""
    groups: tuple[int, ...] = ()
    """For how many of the last groups of copies there is a wait that leaves these under way."""
    commit: str = "dlc_end_of_copies()"
    """The end of a group of copies."""
    wait_but: str = "dlc_wait_for_copies_but_{groups}()"
    """Format of the statement that waits for all but the last `{groups}` groups."""


@dataclass(frozen=True)
class Boxes:
    """The syntax of tensor copies, which one thread issues for its group (`tir.tensor_copy`).

    The fields are format strings. `{arrivals}` is an array of `{count}` barrier words of 64 bits in shared
    memory. `{arrival}` is a pointer to the word of one group of copies. A phase of the barrier ends when the
    group has ended and all its bytes have arrived.
    """

    count: int
    """Groups of copies that may be under way."""
    declare: str
    """The array."""
    begin: str = "dlc_begin_arrivals({arrivals}, {count})"
    """Before everything else; it includes a barrier."""
    tensor: str = "const __grid_constant__ dlc_tensor {name}"
    """The parameter with the descriptor of a tensor."""
    copy: str = "dlc_copy_box_{rank}({arrival}, {bytes}, {to}, &{tensor}, {first})"
    """`{first}` names the first element, inner dims first."""
    end: str = "dlc_end_of_boxes({arrival})"
    """The end of a group, which all threads execute."""
    wait: str = "dlc_wait_for_boxes({arrival}, {parity})"
    """For the end of a phase, by the lowest bit of its number."""


@dataclass(frozen=True)
class Blocks:
    """An instruction by which a subgroup loads `count` small matrices from shared memory. Each thread passes
    a pointer to one row. `of` is the fragment of one matrix that a thread then holds.
    """

    of: Fragment
    bits: int
    """Of an element."""
    counts: tuple[int, ...] = ()
    """How many at once, most first; thread i points to row i % rows of block i // rows."""
    load: str = ""
    """Format of the statement: `{count}`, `{to}`, words of 32 bits, and `{source}`, the thread's pointer."""


@dataclass(frozen=True)
class InPlace:
    """The statements around products of matrix units that read shared memory asynchronously.

    Formats of statements; `{acc}` is an array of `{count}` sums of type `{type}`.
    """

    begin: str
    """Before products, which then add to the sums."""
    commit: str
    """Behind them."""
    wait: str
    """Wait until all products have finished, before accumulators are used and before operands are
    overwritten."""
    wait_but: str
    """Wait for all products except those after the last commit."""
    fence: str
    """Before a barrier: make the writes of this thread visible to the units."""


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
    """Whether a pointer parameter is followed by the number of elements from there to the buffer, of 64 bits:
    languages whose hosts name memory by handles have no pointers into it."""
    moves: Moves | None = None
    bounds: str = ""
    """The text after the head of a kernel whose groups have `{threads}` threads."""
    copies: Copies | None = None
    boxes: Boxes | None = None
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
    float_suffix: str = "f"
    """The suffix of float32 functions."""
    index: str = "int64_t"
    function: str = "static void"
    """Qualifiers and result of a function that only this file calls."""
    inline: str = "static inline"
    constant: str = "const"
    restrict: str = "restrict"
    scopes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({"local": "", "global": ""}))
    """Qualifiers of an array by memory scope; a scope that is missing has no memory here."""
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
    """The bits of `{value}`, which lies in memory as `{held}`, as another type, `{to}`; "" copies them."""
    fixed: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The language's own text of helpers that are the same for all types, by name."""
    kernels: Kernels | None = None
    """How kernels are written; None where the language has no threads."""


C99 = Dialect("c99")
"""Standard C, scalar values alone."""

__all__ = [
    "C99",
    "MATH",
    "SCALARS",
    "STORED",
    "Blocks",
    "Boxes",
    "Copies",
    "Dialect",
    "InPlace",
    "Kernels",
    "Large",
    "Matrices",
    "Moves",
]
