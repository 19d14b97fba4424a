"""Lists of launches, as artefacts have them: read with care, evaluated for the sizes of a call.

`launch_list` writes them.  A static entry's launches are made once; those of an entry with scalars once for
each value of these that is met.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from dlc_core.diag import ArtifactError, DlcError, RuntimeFailure, UsageError
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Expr, Var, as_expr
from dlc_core.lazy import lazy
from dlc_core.runtime.encode import decode_expressions

if TYPE_CHECKING:
    from dlc_core import arith
else:
    arith = lazy("dlc_core.arith")

LAUNCHES = "launches"
"""Where an artefact's metadata has the lists."""
KEPT = 64
"""Sizes of calls whose launches an entry keeps."""
MOST_STEPS = 1 << 20
"""Launches of a call, beyond which something must be wrong."""
_LIMIT = 1 << 62

Dims: TypeAlias = "tuple[int, int, int]"


@dataclass(frozen=True)
class KernelParameter:
    """A buffer that a kernel takes."""

    name: str
    itemsize: int
    written: bool


@dataclass(frozen=True)
class Kernel:
    """A function of the text that runs in launches."""

    symbol: str
    buffers: tuple[KernelParameter, ...]
    scalars: tuple[str, ...]
    """The dtypes of what it takes by value."""
    order: str
    """A letter for each parameter: b a buffer, s a scalar."""
    shared: tuple[tuple[str, int], ...]
    """Name and bytes of the arrays that a group has in common."""
    meets: bool
    """Whether threads of a group wait for each other."""

    @property
    def shared_bytes(self) -> int:
        return sum(size for _, size in self.shared)


@dataclass(frozen=True)
class Window:
    """Bytes of one of an entry's buffers, by its number."""

    place: int
    offset: int
    size: int


@dataclass(frozen=True)
class Launch:
    """A kernel on groups of threads."""

    kernel: Kernel
    grid: Dims
    group: Dims
    buffers: tuple[Window, ...]
    scalars: tuple[int, ...]
    site: int = 0
    """Which of the entry's calls of kernels it is a part of."""

    @property
    def threads(self) -> int:
        """Those of a group."""
        return self.group[0] * self.group[1] * self.group[2]


@dataclass(frozen=True)
class _Start:
    """A launch whose integers stand in the values of its list."""

    kernel: Kernel
    places: tuple[int, ...]
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
    """Steps in order, with one function for all their integers."""

    def __init__(
        self, steps: Sequence[tuple[_Start | _Loop | _Branch, Sequence[Expr]]], params: Sequence[Var]
    ) -> None:
        self.steps = [(step, len(exprs)) for step, exprs in steps]
        every = [e for _, exprs in steps for e in exprs]
        self.values: Callable[..., tuple[int, ...]]
        try:
            self.values = arith.compile_exprs(every, params)
        except UsageError as error:
            raise ArtifactError("the launches in the artefact are malformed", why=error.what) from None

    def run(self, given: tuple[int, ...], into: list[Launch]) -> None:
        """The launches for these values of the parameters."""
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
                raise RuntimeFailure(f"a call would be more than {MOST_STEPS} launches")


def _launch(step: _Start, values: Sequence[int]) -> Launch | None:
    """A launch; None for one without threads."""
    if any(value < 0 for value in values[: 6 + 2 * len(step.places)]):
        raise RuntimeFailure(f"a launch of {step.kernel.symbol} would have negative sizes")
    if 0 in values[:6]:
        return None
    count = len(step.places)
    pairs = values[6 : 6 + 2 * count]
    windows = tuple(Window(p, pairs[2 * i], pairs[2 * i + 1]) for i, p in enumerate(step.places))
    g, t = values[:3], values[3:6]
    scalars = tuple(values[6 + 2 * count :])
    return Launch(step.kernel, (g[0], g[1], g[2]), (t[0], t[1], t[2]), windows, scalars, step.site)


class LaunchList:
    """What one entry point launches."""

    def __init__(self, symbol: str, buffers: int, scalars: int, steps: _Steps) -> None:
        self.symbol = symbol
        self.buffers = buffers
        self.scalars = scalars
        self._steps = steps
        self._known: dict[tuple[int, ...], tuple[Launch, ...]] = {}

    def launches(self, scalars: Sequence[int]) -> tuple[Launch, ...]:
        """The launches of a call with these scalars, in order.  RuntimeFailure for sizes that cannot be."""
        key = tuple(scalars)
        found = self._known.get(key)
        if found is None:
            if len(key) != self.scalars:
                raise RuntimeFailure(f"{self.symbol} takes {self.scalars} scalars, not {len(key)}")
            made: list[Launch] = []
            self._steps.run(key, made)
            if len(self._known) >= KEPT:
                self._known.clear()
            found = self._known[key] = tuple(made)
        return found


def read_launches(data: Any) -> tuple[tuple[Kernel, ...], dict[str, LaunchList]]:
    """The kernels and the entries' lists of an artefact's metadata; ArtifactError for anything else."""
    try:
        return _Reader(data).read()
    except ArtifactError:
        raise
    except DlcError as error:
        _bad(error.what)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError) as error:
        _bad(f"{type(error).__name__}: {error}")


class _Reader:
    def __init__(self, data: Any) -> None:
        self.data = data
        self.exprs = decode_expressions(data["exprs"])

    def read(self) -> tuple[tuple[Kernel, ...], dict[str, LaunchList]]:
        self.kernels = tuple(self._kernel(one) for one in _list(self.data["kernels"]))
        entries = {}
        for name, entry in dict(self.data["entries"]).items():
            scalars = [self._var(i) for i in _list(entry["scalars"])]
            self.places = _int(entry["buffers"])
            steps = self._steps(entry["steps"], scalars, 0)
            entries[_text(name)] = LaunchList(name, self.places, len(scalars), steps)
        return self.kernels, entries

    def _kernel(self, data: Any) -> Kernel:
        buffers = tuple(
            KernelParameter(_text(name), _int(size, 1), _bool(written))
            for name, size, written in _list(data["buffers"])
        )
        order = _text(data["order"])
        scalars = tuple(_text(name) for name in _list(data["scalars"]))
        if (order.count("b"), order.count("s"), len(order)) != (
            len(buffers),
            len(scalars),
            len(buffers) + len(scalars),
        ):
            _bad(f"the parameters {order!r} of a kernel do not fit its buffers")
        shared = tuple((_text(name), _int(size)) for name, size in _list(data["shared"]))
        symbol = _text(data["symbol"])
        if not symbol.isidentifier() or not symbol.isascii():
            _bad(f"{symbol!r} is no symbol")
        return Kernel(symbol, buffers, scalars, order, shared, _bool(data["meets"]))

    def _steps(self, data: Any, params: list[Var], depth: int) -> _Steps:
        if depth > 64:
            _bad("loops are nested too deeply")
        return _Steps([self._step(one, params, depth + 1) for one in _list(data)], params)

    def _step(
        self, data: Any, params: list[Var], depth: int
    ) -> tuple[_Start | _Loop | _Branch, Sequence[Expr]]:
        if "for" in data:
            var = self._var(data["for"])
            head = [self._expr(data["begin"]), self._expr(data["extent"])]
            return _Loop(var, self._steps(data["steps"], [*params, var], depth)), head
        if "if" in data:
            then, orelse = (self._steps(data[key], params, depth) for key in ("then", "else"))
            return _Branch(then, orelse), [self.exprs[_int(data["if"], 0, len(self.exprs) - 1)]]
        kernel = self.kernels[_int(data["kernel"], 0, len(self.kernels) - 1)]
        windows, scalars = _list(data["buffers"]), _list(data["scalars"])
        sides = [_list(data["grid"]), _list(data["group"])]
        if (len(windows), len(scalars)) != (len(kernel.buffers), len(kernel.scalars)):
            _bad(f"a launch of {kernel.symbol} has the wrong number of arguments")
        if any(len(side) != 3 for side in sides):
            _bad(f"a launch of {kernel.symbol} has the wrong number of dims")
        places = tuple(_int(place, 0, self.places - 1) for place, _, _ in windows)
        numbers = [*sides[0], *sides[1], *(n for window in windows for n in window[1:]), *scalars]
        return _Start(kernel, places, _int(data.get("site", 0))), [self._expr(n) for n in numbers]

    def _expr(self, item: Any) -> Expr:
        if not isinstance(item, dict):
            return as_expr(_int(item, -_LIMIT))
        found = self.exprs[_int(item["expr"], 0, len(self.exprs) - 1)]
        if found.dtype is not INDEX:
            _bad("a size is no integer")
        return found

    def _var(self, index: Any) -> Var:
        found = self.exprs[_int(index, 0, len(self.exprs) - 1)]
        if not isinstance(found, Var):
            _bad("a scalar is no variable")
        return found


def _bad(why: str) -> NoReturn:
    raise ArtifactError(
        "the launches in the artefact are malformed", why=why, hint="compile the model again"
    ) from None


def _int(value: Any, low: int = 0, high: int = _LIMIT) -> int:
    if type(value) is not int or not low <= value <= high:
        _bad(f"{value!r} is not an integer from {low} to {high}")
    return value


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        _bad(f"{value!r} is not true or false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        _bad(f"{value!r} is not text")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)) or len(value) > MOST_STEPS:
        _bad("a list is expected")
    return list(value)


def check_windows(launch: Launch, sizes: Sequence[int]) -> None:
    """RuntimeFailure where a launch would leave the memory that a call was given; `sizes` in bytes."""
    for window, parameter in zip(launch.buffers, launch.kernel.buffers, strict=True):
        if window.offset + window.size > sizes[window.place]:
            raise RuntimeFailure(
                f"{launch.kernel.symbol} would leave its memory",
                why=f"{parameter.name} is bytes {window.offset}:{window.offset + window.size} of"
                f" {sizes[window.place]}",
            )


__all__ = [
    "LAUNCHES",
    "Dims",
    "Kernel",
    "KernelParameter",
    "Launch",
    "LaunchList",
    "Window",
    "check_windows",
    "read_launches",
]
