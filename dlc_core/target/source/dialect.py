"""The table of differences between languages of the C family.

An emitter of this package writes one program for all of them; what a language calls things stands in its
`Dialect`.  A vendor whose compiler takes C makes one with `dataclasses.replace(C99, …)`.
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
    """Vectors of a language that has them as types: what lies side by side in memory moves as one of them.

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
    """Bits of a vector at most; 0 where there is no limit."""
    arithmetic: bool = False
    """Whether vectors of floats have operators, between each other and with scalars, choices by lanes, and
    are made of one value where all lanes have it."""
    aligned: bool = False
    """Whether vectors lie at multiples of their size: where that is not known, elements move one by one."""


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
    """Tensor copies, which one thread issues for its group (`tir.tensor_copy`).

    Formats of what is written: `{arrivals}` is an array of `{count}` words of 64 bits in memory of the group,
    of which `{arrival}`, a pointer, is for one group of copies; a phase of it ends when the group has ended
    and all its bytes have arrived.
    """

    count: int
    """Groups of copies that may be under way."""
    declare: str
    """The array."""
    begin: str = "dlc_begin_arrivals({arrivals}, {count})"
    """Before everything else; it includes a barrier."""
    tensor: str = "const __grid_constant__ dlc_tensor {name}"
    """The parameter that says what a tensor is like."""
    copy: str = "dlc_copy_box_{rank}({arrival}, {bytes}, {to}, &{tensor}, {first})"
    """`{first}` names the first element, inner dims first."""
    end: str = "dlc_end_of_boxes({arrival})"
    """The end of a group, which all threads execute."""
    wait: str = "dlc_wait_for_boxes({arrival}, {parity})"
    """For the end of a phase, by the lowest bit of its number."""


@dataclass(frozen=True)
class Blocks:
    """An instruction by which a subgroup loads `count` small matrices from memory of its group, one row of
    which each of its threads points to; `of` says what a thread then has of one.
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
    """Before the sums are used, and before what was read is written: all products are done."""
    wait_but: str
    """The same for all but those behind the last commit."""
    fence: str
    """Before a barrier: make the writes of this thread visible to the units."""


@dataclass(frozen=True)
class Matrices:
    """How subgroups multiply what they hold: a thread has its part of an operand in words of 32 bits.

    Formats of statements are over texts of C.  Units that read operands in place get pointers `{a}` and `{b}`
    to memory of scope `SWIZZLED`; `{way}` has a letter for each, n where rows lie along the steps, t where
    these are outermost, and `{a_apart}`, `{b_apart}` are the bytes between parts a row wide (0 for one).
    """

    products: Mapping[str, str]
    """By the unit's name: `{acc}`, an array of values to add to, and words of `{a}` and `{b}`."""
    in_place: InPlace | None = None
    """For units that read operands in place; None where there are none."""
    word: str = "uint32_t"
    load: str = "dlc_word({at})"
    """A word from memory, at the pointer `{at}`."""
    pack: str = "dlc_pack_{bits}({values})"
    """A word of values, as they lie in memory, of so many bits each."""
    blocks: tuple[Blocks, ...] = ()


@dataclass(frozen=True)
class Large:
    """How kernels declare memory that their groups are given at launch: as one array of bytes."""

    beyond: int
    """Bytes up to which each buffer is an array of its own."""
    declare: str
    """Format of the statement: `{name}`, `{bytes}`."""
    align: int
    """The alignment of the array and of each buffer in it."""


@dataclass(frozen=True)
class Kernels:
    """How a language writes kernels, each of which is one launch over axes of threads.

    `axes` has the text of a thread's number along each axis of the target's description.  `words` are formats
    of what intrinsics are called, `{0}` being the first operand: at least "barrier" where threads of a group
    meet, `subgroup_…` where they exchange values, and `extern.…` for the language's own functions.  A word
    such as "vector_dot.int8.uint8x4" adds to `{0}` four products of neighbours at pointers `{1}` and `{2}`.
    """

    head: str
    """The text before a kernel's name: qualifier and result."""
    axes: Mapping[str, str]
    words: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    spaces: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Qualifiers of pointers by the scope of what they point to; none where a scope is missing."""
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
    """For kernels whose groups share more than arrays can have; None where there is no difference."""


@dataclass(frozen=True)
class Dialect:
    """The names and features of a language of the C family.

    `vectors` is "" where all values are scalars, or "extension" where the compiler has vectors of any power
    of two of elements with the operators of C (`__attribute__((vector_size))`).  `index` is the type of
    indices.  `parallel` opens a loop whose iterations may run at once, with `{threads}` for the most threads
    of the call; "" runs them in order.
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
    """Qualifier of an array with an alignment of `{align}` bytes; "" where there is none."""
    parallel: str = ""
    headers: tuple[str, ...] = ("math.h", "stdbool.h", "stdint.h", "string.h")
    preamble: str = ""
    """Text behind the headers."""
    reserved: frozenset[str] = frozenset()
    """Words that name nothing, besides those of C."""
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
