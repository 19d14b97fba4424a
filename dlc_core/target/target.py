"""Targets: descriptions of machines to compile for. A kind declares typed options and a description record. A
Target is a kind with options.

    Target("npu -mcpu=big -num-threads=8")     text form, parsed against the kind's option schema
    target.describe()                           the record that schedules and legality read

Making or parsing a target does not access hardware, unless an option is left to "this machine".
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dlc_core.diag import TargetError, similar
from dlc_core.support.record import record
from dlc_core.target.facts import PREFIX, Facts, facts_of, text_of, with_facts

if TYPE_CHECKING:
    from dlc_core.tir.matrix import MatrixUnit
    from dlc_core.tir.tensor_copy import Bulk

_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "bool": lambda text: {"1": True, "true": True, "0": False, "false": False, "": True}[text.lower()],
    "strs": lambda text: tuple(part for part in text.split(",") if part),
}

_WANTED = {"int": "a whole number", "bool": "true or false"}
"""The expected values of options, for errors."""

Stages = tuple[str, ...]

STAGES: Stages = ("graph", "lower", "tir", "main")
"""The stages of a compile for a machine; each is a pipeline of the passes that name it."""


@record(frozen=True)
class Option:
    """One option of a kind.  `kind` is str, int, bool or strs (comma-separated)."""

    name: str
    kind: str
    default: Any
    help: str

    def parse(self, text: str) -> Any:
        try:
            return _PARSERS[self.kind](text)
        except (ValueError, KeyError):
            wanted = _WANTED[self.kind]
            raise TargetError(f"target option -{self.name}={text}: not {wanted}", hint=self.help) from None


@record(frozen=True)
class Dot:
    """A dot-product instruction. Each of `lanes` accumulators of dtype `acc` adds the products of `group`
    elements of dtype `a`, the same for all lanes, with `group` elements of dtype `b`, different for each
    lane.
    """

    a: str
    b: str
    acc: str
    group: int
    lanes: int
    steps: int = 1
    """How many times the cost of the machine's cheapest dot product of its kind it takes."""


BYTE_DOTS = tuple(Dot(a, b, "int32", 4, 4) for a in ("int8", "uint8") for b in ("int8", "uint8"))
"""Four products of bytes of any signs, added to an int32 at once, as cards have them."""

COMPUTED = (
    "bool",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *("bfloat16", "float16", "float32", "float64"),
)
"""The dtypes that compilers of general languages compute in; narrower ones are expressed by these."""


@record(frozen=True)
class Rates:
    """The rates of multiply-adds and loads of a core; see the fields of `Description` with these names."""

    fma_per_cycle: float = 2.0
    loads_per_cycle: float = 2.0
    fma_latency: float = 4.0


TILE_OF_ONE = 3
"""Registers for one value, and the two that are multiplied for it."""


@record(frozen=True)
class Description:
    """The facts of a machine that schedules, legality and cost models read.  Bytes; caches per core."""

    vector_bits: int = 0
    """Width of the widest useful vector register; 0 for a scalar machine."""
    vector_registers: int = 16
    vector_group: int = 1
    """Registers that one value may span: the code generator mixes the instructions of its parts."""
    spare_registers: int = 0
    """Those of them that the code generator needs for itself: for products on their way to a sum, for loads
    ahead of their use."""
    fma: bool = False
    caches: tuple[int, ...] = (32 << 10, 512 << 10)
    cache_line: int = 64
    cache_ways: int = 8
    """The associativity of L1: the number of cache lines at distances of a power of two that it can hold."""
    value_align: int = 64
    """Bytes; constants and values in the arena begin at multiples: at least the widest element and vector."""
    access_align: int = 1
    """The alignment in bytes that generated code assumes for addresses of tensors, in addition to that of
    their elements."""
    cores: int = 1
    """Cores, or the units that each run groups of threads."""
    parallel: bool = True
    """Whether `parallel` loops are executed by several threads."""
    stack_bytes: int = 1 << 16
    """Largest temporary of a function that may live on the stack; larger ones are part of the arena."""
    memory_scopes: tuple[str, ...] = ("global", "local")
    dtypes: tuple[str, ...] = ()
    """Dtypes with native arithmetic; empty means all."""
    intrinsics: frozenset[str] = frozenset()
    thread_axes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Hardware thread axes and their largest extents; empty where loops are not bound to hardware."""
    group_threads: int = 0
    """Most threads in a group, over all its axes; 0 where only the axes are limited."""
    shared_bytes: int = 0
    """Bytes of shared memory of a group; 0 if unknown."""
    subgroup: int = 0
    """Threads, consecutive along the first thread axis, that run in step and exchange values; a power of two,
    0 where there is no such exchange."""
    thread_registers: int = 0
    """The maximum number of 32-bit registers of a thread; 0 if unknown."""
    unit_registers: int = 0
    """Registers of 32 bits of a unit, for all its threads; 0 if unknown."""
    unit_threads: int = 0
    """The maximum number of threads, of all groups, that a unit runs at once; 0 if unknown."""
    unit_shared_bytes: int = 0
    """Bytes of shared memory of a unit, for all groups that it runs; 0 if unknown."""
    load_bytes: int = 16
    """The preferred load or store of one thread of a launch, in bytes; addresses are multiples of it."""
    pipeline_stages: int = 2
    """The most pipeline stages: tiles of an operand in shared memory.  Two is double buffering; more need
    asynchronous copies.
    """
    bulk: Bulk | None = None
    """Tensor copies to shared memory, which one thread issues for its group; None if there are none."""
    shared_banks: int = 32
    """Banks of shared memory, of 4 bytes each: threads of a subgroup that touch different words of one bank
    wait for each other."""
    short_code: bool = False
    """Whether code is to be short before it is fast: tiles are of one value, loops are not unrolled."""
    control: bool = False
    """Whether native entries may branch and loop on what kernels wrote: they see the kernels' memory."""
    dots: tuple[Dot, ...] = ()
    """Dot products of narrow elements that are faster than multiply-adds of wide ones."""
    matrix_units: tuple[MatrixUnit, ...] = ()
    """Instructions by which a subgroup of threads, or a thread alone, multiplies matrices that it holds, best
    first."""
    vector_units: int = 2
    """Vector multiply-adds that a core begins in a cycle."""
    fma_per_cycle: float = 2.0
    """Multiply-adds that a core begins in a cycle, in vectors as wide as its units: `vector_units` counts
    those of whole registers, which may take several.  Register tiles are compared by this rate and the next
    two; usual for server cores."""
    loads_per_cycle: float = 2.0
    """Loads of such vectors that a core begins in a cycle; usual for server cores."""
    fma_latency: float = 4.0
    """Cycles from the begin of a multiply-add until its result can be used; usual for server cores."""
    frequency: float = 3e9
    """Cycles a second."""
    fork_cycles: int = 4096
    """Cycles to hand a parallel loop to waiting threads and to wait for its end."""
    cache_bandwidths: tuple[float, ...] = ()
    """Bytes per cycle that a core reads from each cache, the nearest first; see `bytes_per_cycle`."""
    memory_bandwidth: float = 27e9
    """Bytes a second that one core reads from memory."""
    memory_scaling: float = 1 / 3
    """The memory bandwidth of all cores is that of one core times (number of cores) to this power."""
    call_seconds: float = 2e-7
    """Seconds of a kernel call, in addition to its work."""
    launch_seconds: float = 2e-6
    """Seconds of a launch on a separate device."""
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The origin of facts by name, such as "detected" or "measured"."""
    extra: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def usable_registers(self) -> int:
        """The registers for the values of a tile: vector registers, or scalar ones if there is no vector
        unit."""
        return TILE_OF_ONE if self.short_code else (self.vector_registers or 16) - self.spare_registers

    @property
    def bytes_per_cycle(self) -> tuple[float, ...]:
        """Bytes per cycle that one core reads from each cache, the nearest first, and from memory.

        Without `cache_bandwidths`: two vectors from L1, three quarters of one from L2, eight bytes from
        further caches; no level is faster than the one before.
        """
        vector = max(4.0, self.vector_bits / 8)
        rates: list[float] = []
        for level in range(len(self.caches)):
            given = self.cache_bandwidths[level : level + 1]
            rate = given[0] if given else (2 * vector, 0.75 * vector)[level] if level < 2 else 8.0
            rates.append(min(rate, *rates) if rates and not given else rate)
        return (*rates, self.memory_bandwidth / self.frequency)

    @property
    def rates(self) -> Rates:
        """The rates by which register tiles are compared."""
        return Rates(self.fma_per_cycle, self.loads_per_cycle, self.fma_latency)

    @property
    def workers(self) -> int:
        """The default number of threads of parallel loops."""
        return self.cores if self.parallel else 1

    def lanes(self, bits: int) -> int:
        """Elements of `bits` width in one vector register; 1 on a scalar machine."""
        return max(1, self.vector_bits // bits)

    def dot(self, a: str, b: str, acc: str) -> Dot | None:
        """The dot product of these dtypes, where the machine has it."""
        return next((d for d in self.dots if (d.a, d.b, d.acc) == (a, b, acc)), None)

    def matrix_unit(self, a: str, b: str, acc: str) -> MatrixUnit | None:
        """The matrix unit for these dtypes, where the machine has one for its subgroups."""
        return next(iter(self.units_for(a, b, acc)), None)

    def tile_unit(self, a: str, b: str, acc: str) -> MatrixUnit | None:
        """The matrix unit for these dtypes that a thread has for itself."""
        found = (u for u in self.matrix_units if (u.a, u.b, u.acc) == (a, b, acc) and u.width == 1)
        return next(found, None)

    def units_for(self, a: str, b: str, acc: str) -> list[MatrixUnit]:
        """The matrix units for these dtypes that the machine's subgroups can use, best first."""
        found = (u for u in self.matrix_units if (u.a, u.b, u.acc) == (a, b, acc) and self.subgroup)
        return [u for u in found if u.width == self.subgroup or (u.in_place and not u.width % self.subgroup)]


@record(frozen=True)
class _Careful:
    """A plugin's check of this machine. If it raises, this counts as a problem of its kind alone."""

    ask: Callable[[], str | None]

    def __call__(self) -> str | None:
        try:
            return self.ask()
        except Exception as error:  # noqa: BLE001 (other kinds go on, whatever a plugin raises)
            return f"looking for it failed: {type(error).__name__}: {error}"


@record(frozen=True)
class TargetKind:
    """A family of targets.

    `describe(options)` returns the description record. `codegen` and `device` name the defaults; the artefact
    format `format` connects them. `problem()` returns the reason why this machine cannot run the kind, or
    None; an exception counts as a reason. `host_rank` orders the kinds that can run on the compiling machine.
    The kind with the highest rank is the default target; a kind with rank 0 is never the default.
    """

    name: str
    doc: str
    codegen: str
    device: str
    options: tuple[Option, ...] = ()
    describe: Callable[[Mapping[str, Any]], Description] = lambda options: Description()
    problem: Callable[[], str | None] = lambda: None
    host_rank: int = 0
    stages: Stages | Callable[[Mapping[str, Any]], Stages] = STAGES
    """The stages of a compile, in order, or a function of the options that gives them."""
    identity: Callable[[Mapping[str, Any]], str] = lambda options: ""
    """The inputs of code generation besides the options: the machine that empty options mean, and tool
    versions.
    """

    def __post_init__(self) -> None:
        if not isinstance(self.problem, _Careful):
            object.__setattr__(self, "problem", _Careful(self.problem))

    def option(self, name: str) -> Option:
        for option in self.options:
            if option.name == name:
                return option
        known = [option.name for option in self.options]
        close = similar(name, known)
        raise TargetError(
            f"target kind {self.name!r} has no option -{name}",
            hint=(f"did you mean -{close[0]}? " if close else "")
            + f"options: {', '.join('-' + k for k in known) or 'none'}",
        )


THREADS = "num-threads"
"""The option of kinds whose code is made for a number of threads."""


@record(frozen=True)
class Target:
    """A kind with its options; hashable, equal by value, printed as the text that parses back."""

    kind: TargetKind
    options: tuple[tuple[str, Any], ...] = ()
    facts: Facts = ()
    """Numbers of its description that the user has set (see `facts.py`)."""

    @staticmethod
    def parse(text: str | Mapping[str, Any], kinds: Mapping[str, TargetKind]) -> Target:
        """A target of `"kind -name=value …"`, of JSON text or of a mapping with the key `kind`."""
        if isinstance(text, Mapping):
            given = dict(text)
        elif text.lstrip().startswith("{"):
            given = _from_json(text)
        else:
            given = _from_words(text)
        name = given.pop("kind", None)
        if name is None:
            raise TargetError("a target needs a kind", hint=f"known kinds: {', '.join(kinds)}")
        kind = kinds[name]
        options = {}
        facts = {key.removeprefix(PREFIX): given.pop(key) for key in list(given) if key.startswith(PREFIX)}
        for key, value in given.items():
            option = kind.option(key)
            options[key] = option.parse(value) if isinstance(value, str) and option.kind != "str" else value
        return Target(
            kind,
            tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in options.items())),
            facts_of(facts),
        )

    def __getitem__(self, name: str) -> Any:
        """An option's value, or its default."""
        option = self.kind.option(name)
        return dict(self.options).get(name, option.default)

    def with_options(self, **options: Any) -> Target:
        """The target with options changed; `num_threads` names `-num-threads`."""
        merged = dict(self.options)
        for name, value in options.items():
            merged[self.kind.option(name.replace("_", "-")).name] = value
        return replace(self, options=tuple(sorted(merged.items())))

    def with_facts(self, given: Mapping[str, Any]) -> Target:
        """The target with numbers of its description set, `{"l2_bytes": 1 << 20}`.

        Raises TargetError for names that cannot be set and values that are no such numbers.
        """
        return replace(self, facts=facts_of({**dict(self.facts), **given})) if given else self

    def for_threads(self, count: int | None) -> Target:
        """Return the target with code for so many threads.

        It is unchanged if `count` is None or its default, if the kind has no option `num-threads`, or if that
        is given.
        """
        known = any(option.name == THREADS for option in self.kind.options)
        usual = type(count) is not int or count < 1
        if not known or usual or self[THREADS] or count == self.describe().cores:
            return self
        return self.with_options(num_threads=count)

    def values(self) -> dict[str, Any]:
        """Every option of the kind, defaults included."""
        return {option.name: self[option.name] for option in self.kind.options}

    def describe(self) -> Description:
        return self._description

    @cached_property
    def _description(self) -> Description:
        # Passes ask for it once for each kernel; finding out about this machine takes a millisecond.
        return with_facts(self.kind.describe(self.values()), self.facts)

    @property
    def stages(self) -> Stages:
        """The stages of a compile for this target."""
        stages = self.kind.stages
        return stages(self.values()) if callable(stages) else stages

    @property
    def codegen(self) -> str:
        """The name of its code generator: what an option `codegen` of the kind says, else the kind's own."""
        return str(self.values().get("codegen") or self.kind.codegen)

    @property
    def identity(self) -> str:
        """The inputs of code generation besides the target's text."""
        return self.kind.identity(self.values())

    def to_json(self) -> str:
        facts = {PREFIX + name: value for name, value in self.facts}
        return json.dumps({"kind": self.kind.name, **dict(self.options), **facts})

    def __str__(self) -> str:
        words = [self.kind.name]
        for name, value in self.options:
            text = (
                ",".join(map(str, value))
                if isinstance(value, tuple)
                else str(value).lower()
                if value in (True, False)
                else str(value)
            )
            words.append(shlex.quote(f"-{name}={text}"))
        words += [shlex.quote(f"-{PREFIX}{name}={text_of(value)}") for name, value in self.facts]
        return " ".join(words)


def _from_json(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise TargetError("the target's JSON does not parse", why=str(error)) from None
    if not isinstance(data, dict):
        raise TargetError("the target's JSON must be an object with the key 'kind'")
    return data


def _from_words(text: str) -> dict[str, Any]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise TargetError(f"target {text!r} does not parse", why=str(error)) from None
    if not words or words[0].startswith("-"):
        raise TargetError(f"target {text!r} starts with its kind", hint='for example "kind -num-threads=2"')
    given: dict[str, Any] = {"kind": words[0]}
    for word in words[1:]:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not name:
            raise TargetError(
                f"target {text!r}: {word!r} is not an option", hint="options are written -name=value"
            )
        given[name] = value if equals else "true"
    return given
