"""Lists of launches in artefacts. They are validated when they are read, and evaluated for the scalars of a
call.

`launch_list` writes them. The launches of an entry point without scalars are evaluated once. Those of an
entry point with scalars are evaluated once for each combination of values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from dlc_core.diag import ArtifactError, RuntimeFailure
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Expr, Var, as_expr
from dlc_core.runtime.interface.encode import decode_expressions
from dlc_core.runtime.interface.untrusted import LIMIT, boolean, decoding, integer, items, malformed, text
from dlc_core.support.deprecated import deprecated
from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    from dlc_core import arith
else:
    arith = lazy("dlc_core.arith")

LAUNCHES = "launches"
"""The key in an artefact's metadata for the lists."""
MAX_CACHED = 64
"""The number of combinations of scalars whose launches an entry point caches."""
MOST_DIMS = 5
"""The maximum number of dims of a tensor of tensor copies."""
MOST_STEPS = 1 << 20
"""The maximum number of launches of a call. More are considered an error."""

_WORD = re.compile(r"(?a:[A-Za-z_][\w.]*)")

Dims: TypeAlias = "tuple[int, int, int]"


@dataclass(frozen=True)
class KernelParameter:
    """A buffer parameter of a kernel."""

    name: str
    itemsize: int
    written: bool


@dataclass(frozen=True)
class Tensor:
    """The descriptor of a tensor for tensor copies. Sizes are in elements, outermost dim first."""

    buffer: int
    """The index of the kernel's buffer that contains it."""
    itemsize: int
    swizzled: bool
    """Whether boxes are stored in swizzled rows in shared memory (`tir.threads`)."""
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The fields as a flat list, for C code."""
        each = zip(self.dims, self.strides, self.box, strict=True)
        return (
            self.buffer,
            self.itemsize,
            int(self.swizzled),
            len(self.dims),
            *(n for one in each for n in one),
        )


@dataclass(frozen=True)
class TensorParameter:
    """A tensor whose sizes are expressions over the scalars of the kernel."""

    buffer: int
    itemsize: int
    swizzled: bool
    box: tuple[int, ...]
    sizes: Callable[..., tuple[int, ...]]
    """A function from the scalars to the dims, followed by the strides."""

    @property
    def count(self) -> int:
        """The length of `Tensor.numbers`."""
        return 4 + 3 * len(self.box)

    def of(self, scalars: Sequence[int]) -> Tensor:
        """The tensor of a launch with these scalars."""
        sizes, rank = self.sizes(*scalars), len(self.box)
        return Tensor(self.buffer, self.itemsize, self.swizzled, sizes[:rank], sizes[rank:], self.box)


@dataclass(frozen=True)
class Kernel:
    """A kernel: a function of the text, with its parameters."""

    symbol: str
    buffers: tuple[KernelParameter, ...]
    scalars: tuple[str, ...]
    """The dtypes of its scalar parameters."""
    order: str
    """The order of the parameters, one letter each: b for a buffer, s for a scalar."""
    shared: tuple[tuple[str, int], ...]
    """The names and bytes of shared arrays."""
    has_barriers: bool
    """Whether the kernel has barriers or exchanges values between threads."""
    tensors: tuple[TensorParameter, ...] = ()
    """The tensor descriptors, which precede the other parameters."""

    @property
    @deprecated("Kernel.has_barriers", since="0.1")
    def meets(self) -> bool:
        """The old name of `has_barriers`."""
        return self.has_barriers

    @property
    def shared_bytes(self) -> int:
        return sum(size for _, size in self.shared)


@dataclass(frozen=True)
class Window:
    """A range of bytes of a buffer of the entry point, given by its index."""

    buffer: int
    offset: int
    size: int


@dataclass(frozen=True)
class Launch:
    """A launch of a kernel: its groups, threads and arguments."""

    kernel: Kernel
    grid: Dims
    group: Dims
    buffers: tuple[Window, ...]
    scalars: tuple[int, ...]
    site: int = 0
    """The index of the call of a kernel in the entry point that it belongs to."""

    @property
    def threads(self) -> int:
        """The number of threads of a group."""
        return self.group[0] * self.group[1] * self.group[2]

    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of tensor copies of the kernel."""
        return tuple(one.of(self.scalars) for one in self.kernel.tensors)


@dataclass(frozen=True)
class _Start:
    """A launch whose integers are indices into the list of evaluated expressions."""

    kernel: Kernel
    buffers: tuple[int, ...]
    site: int


@dataclass(frozen=True)
class _Loop:
    var: Var
    body: _Steps


@dataclass(frozen=True)
class _Branch:
    then: _Steps
    orelse: _Steps


class _Steps:
    """Consecutive steps, with one function that evaluates all their integers."""

    def __init__(
        self, steps: Sequence[tuple[_Start | _Loop | _Branch, Sequence[Expr]]], params: Sequence[Var]
    ) -> None:
        self.steps = [(step, len(exprs)) for step, exprs in steps]
        every = [e for _, exprs in steps for e in exprs]
        self.values: Callable[..., tuple[int, ...]] = arith.compile_exprs(every, params)

    def run(self, given: tuple[int, ...], into: list[Launch]) -> None:
        """Append the launches for these values of the parameters to `into`."""
        values, at = self.values(*given), 0
        for step, count in self.steps:
            own = values[at : at + count]
            at += count
            if isinstance(step, _Start):
                launch = _launch(step, own)
                if launch is not None:
                    into.append(launch)
            elif isinstance(step, _Loop):
                for i in range(own[0], own[0] + own[1]):
                    step.body.run((*given, i), into)
            else:
                (step.then if own[0] else step.orelse).run(given, into)
            if len(into) > MOST_STEPS:
                raise RuntimeFailure(f"a call has more than {MOST_STEPS} launches")


def _launch(step: _Start, values: Sequence[int]) -> Launch | None:
    """A launch; None if it has no threads."""
    if any(value < 0 for value in values[: 6 + 2 * len(step.buffers)]):
        raise RuntimeFailure(f"a launch of {step.kernel.symbol} has negative sizes")
    if 0 in values[:6]:
        return None
    count = len(step.buffers)
    pairs = values[6 : 6 + 2 * count]
    windows = tuple(Window(p, pairs[2 * i], pairs[2 * i + 1]) for i, p in enumerate(step.buffers))
    g, t = values[:3], values[3:6]
    scalars = tuple(values[6 + 2 * count :])
    return Launch(step.kernel, (g[0], g[1], g[2]), (t[0], t[1], t[2]), windows, scalars, step.site)


class LaunchList:
    """The launches of an entry point."""

    def __init__(self, symbol: str, buffers: int, scalars: int, steps: _Steps) -> None:
        self.symbol = symbol
        self.buffers = buffers
        self.scalars = scalars
        self._steps = steps
        self._known: dict[tuple[int, ...], tuple[Launch, ...]] = {}

    def launches(self, scalars: Sequence[int]) -> tuple[Launch, ...]:
        """The launches of a call with these scalars, in order. Raises RuntimeFailure for invalid sizes."""
        key = tuple(scalars)
        found = self._known.get(key)
        if found is None:
            if len(key) != self.scalars:
                raise RuntimeFailure(f"{self.symbol} takes {self.scalars} scalars, not {len(key)}")
            made: list[Launch] = []
            self._steps.run(key, made)
            if len(self._known) >= MAX_CACHED:
                self._known.clear()
            found = self._known[key] = tuple(made)
        return found


def read_launches(data: Any) -> tuple[tuple[Kernel, ...], dict[str, LaunchList]]:
    """Read the kernels, and the list of each entry point, from an artefact's metadata. Raises ArtifactError
    for malformed data.
    """
    with decoding("the list of launches"):
        return _Reader(data).read()


class _Reader:
    def __init__(self, data: Any) -> None:
        self.data = data
        self.exprs = decode_expressions(data["exprs"])

    def read(self) -> tuple[tuple[Kernel, ...], dict[str, LaunchList]]:
        self.kernels = tuple(self._kernel(one) for one in items(self.data["kernels"]))
        entries = {}
        for name, entry in dict(self.data["entries"]).items():
            scalars = [self._var(i) for i in items(entry["scalars"])]
            self.buffers = integer(entry["buffers"])
            steps = self._steps(entry["steps"], scalars, 0)
            entries[text(name)] = LaunchList(name, self.buffers, len(scalars), steps)
        return self.kernels, entries

    def _kernel(self, data: Any) -> Kernel:
        buffers = tuple(
            KernelParameter(_word(name), integer(size, 1), boolean(written))
            for name, size, written in items(data["buffers"])
        )
        order = text(data["order"])
        scalars = tuple(text(name) for name in items(data["scalars"]))
        if (order.count("b"), order.count("s"), len(order)) != (
            len(buffers),
            len(scalars),
            len(buffers) + len(scalars),
        ):
            malformed(f"the parameters {order!r} of a kernel do not match its buffers")
        shared = tuple((_word(name), integer(size)) for name, size in items(data["shared"]))
        symbol = _word(data["symbol"])
        variables = [self._var(i) for i in items(data.get("variables", ()))]
        tensors = tuple(self._tensor(one, variables, len(buffers)) for one in items(data.get("tensors", ())))
        return Kernel(symbol, buffers, scalars, order, shared, boolean(data["meets"]), tensors)

    def _tensor(self, data: Any, variables: Sequence[Var], buffers: int) -> TensorParameter:
        box = tuple(integer(size, 1) for size in items(data["box"]))
        sizes = [self._expr(n) for key in ("dims", "strides") for n in items(data[key])]
        if not 1 <= len(box) <= MOST_DIMS or len(sizes) != 2 * len(box):
            malformed("a tensor of a kernel has the wrong number of dims")
        buffer, size = integer(data["buffer"], 0, buffers - 1), integer(data["itemsize"], 1)
        return TensorParameter(
            buffer, size, boolean(data["swizzled"]), box, arith.compile_exprs(sizes, variables)
        )

    def _steps(self, data: Any, params: list[Var], depth: int) -> _Steps:
        if depth > 64:
            malformed("loops are nested too deeply")
        return _Steps([self._step(one, params, depth + 1) for one in items(data)], params)

    def _step(
        self, data: Any, params: list[Var], depth: int
    ) -> tuple[_Start | _Loop | _Branch, Sequence[Expr]]:
        if "for" in data:
            var = self._var(data["for"])
            head = [self._expr(data["begin"]), self._expr(data["extent"])]
            return _Loop(var, self._steps(data["steps"], [*params, var], depth)), head
        if "if" in data:
            then, orelse = (self._steps(data[key], params, depth) for key in ("then", "else"))
            return _Branch(then, orelse), [self.exprs[integer(data["if"], 0, len(self.exprs) - 1)]]
        kernel = self.kernels[integer(data["kernel"], 0, len(self.kernels) - 1)]
        windows, scalars = items(data["buffers"]), items(data["scalars"])
        sides = [items(data["grid"]), items(data["group"])]
        if (len(windows), len(scalars)) != (len(kernel.buffers), len(kernel.scalars)):
            malformed(f"a launch of {kernel.symbol} has the wrong number of arguments")
        if any(len(side) != 3 for side in sides):
            malformed(f"a launch of {kernel.symbol} has the wrong number of dims")
        indices = tuple(integer(buffer, 0, self.buffers - 1) for buffer, _, _ in windows)
        numbers = [*sides[0], *sides[1], *(n for window in windows for n in window[1:]), *scalars]
        return _Start(kernel, indices, integer(data.get("site", 0))), [self._expr(n) for n in numbers]

    def _expr(self, item: Any) -> Expr:
        if not isinstance(item, dict):
            return as_expr(integer(item, -LIMIT))
        found = self.exprs[integer(item["expr"], 0, len(self.exprs) - 1)]
        if found.dtype is not INDEX:
            malformed("a size is not an integer")
        return found

    def _var(self, index: Any) -> Var:
        found = self.exprs[integer(index, 0, len(self.exprs) - 1)]
        if not isinstance(found, Var):
            malformed("a scalar is not a variable")
        return found


def _word(value: Any) -> str:
    """A name that simulators write into source text."""
    if not _WORD.fullmatch(text(value)):
        malformed(f"{value!r} is not a symbol")
    return str(value)


def find_entry(lists: Mapping[str, LaunchList], symbol: str) -> LaunchList:
    """The list of an entry point. Raises ArtifactError if there is no entry point with this name."""
    found = lists.get(symbol)
    if found is None:
        raise ArtifactError(f"the code has no entry point {symbol}", hint=f"it has: {', '.join(lists)}")
    return found


def add_figures(figures: Any, spent: Iterable[tuple[Launch, int]]) -> None:
    """Add the nanoseconds of a call's launches to the call sites of their kernels, and 1 for each call.
    `figures` is int64 [call sites, 2].
    """
    seen: set[int] = set()
    for launch, nanoseconds in spent:
        figures[launch.site] += (nanoseconds, launch.site not in seen)
        seen.add(launch.site)


def check_windows(launch: Launch, sizes: Sequence[int]) -> None:
    """Raise RuntimeFailure if a launch would access memory outside of the buffers of a call. `sizes` are
    their bytes.
    """
    for window, parameter in zip(launch.buffers, launch.kernel.buffers, strict=True):
        if window.offset + window.size > sizes[window.buffer]:
            raise RuntimeFailure(
                f"{launch.kernel.symbol} would access memory outside of its buffers",
                why=f"{parameter.name} is bytes {window.offset}:{window.offset + window.size} of"
                f" {sizes[window.buffer]}",
            )


def check_limits(launch: Launch, device: str, limits: Iterable[tuple[str, int, int]], hint: str = "") -> None:
    """Raise RuntimeFailure if a launch exceeds a limit of a device. `limits` are triples of a name, the
    requested number and the maximum.
    """
    for what, size, most in limits:
        if size > most:
            why = f"it has {size} {what}, {most} at most are possible"
            raise RuntimeFailure(f"{device} cannot launch {launch.kernel.symbol}", why=why, hint=hint)


__all__ = [
    "LAUNCHES",
    "Dims",
    "Kernel",
    "KernelParameter",
    "Launch",
    "LaunchList",
    "Tensor",
    "TensorParameter",
    "Window",
    "add_figures",
    "check_limits",
    "check_windows",
    "find_entry",
    "read_launches",
]
