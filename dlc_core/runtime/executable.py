"""Executables: compiled models, called like functions.

    exe(x, y)                         arrays in, array (or tuple) out
    exe(x, y, out=z)                  the results in the caller's arrays; operators also take exe(x, y, z)
    exe.run({"x": x})                 by name, a dict out
    exe.set_input("x", x); exe.run(); exe.get_output(0)      in steps
    exe.bind([x], [y])                a call without checks and allocation, on fixed memory
    exe.profile([x])                  where the time goes
    exe.time_evaluator()(x)           the time of a call
    exe["add"]                        another entry point of a module that has several
    exe.save("m.dlc")                 one file, for `dlc.open`
    exe.export("m.so")                a library with a C interface, if the code generator supports it

An executable is re-entrant: each call in flight has its own scratch memory, which is kept for the next call.
The code is loaded into the process by the first call, so an executable for another machine can be saved and
exported here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from dlc_core.cancel import CancelToken
from dlc_core.diag import UnsupportedError, UsageError
from dlc_core.foreign.needed import check_exported
from dlc_core.runtime.artefact.compiled import (
    DEVICE_HINT,
    ENTRIES,
    MEMORY,
    PART,
    SAVE_HINT,
    LoadableModel,
    check_exportable,
)
from dlc_core.runtime.artefact.saving import save
from dlc_core.runtime.call.arrays import as_host, contiguous
from dlc_core.runtime.call.bound import BoundCall
from dlc_core.runtime.call.callers import caller_for
from dlc_core.runtime.call.checked import Caller, device_errors
from dlc_core.runtime.call.session import InSteps
from dlc_core.runtime.device import check_format
from dlc_core.runtime.interface.encode import decode_signature
from dlc_core.runtime.interface.untrusted import decoding, text
from dlc_core.support.lazy import lazy
from dlc_core.target.confined import quiet

if TYPE_CHECKING:
    from dlc_core.runtime.host_program import program as hosted
    from dlc_core.runtime.measure import explain as explaining
    from dlc_core.runtime.measure import memory as call_memory
    from dlc_core.runtime.measure import profile as profiling
    from dlc_core.runtime.measure import profile_calls
    from dlc_core.runtime.measure import timing as measure
    from dlc_core.target import cost
else:
    cost = lazy("dlc_core.target.cost")
    explaining = lazy("dlc_core.runtime.measure.explain")
    hosted = lazy("dlc_core.runtime.host_program.program")
    measure = lazy("dlc_core.runtime.measure.timing")
    profile_calls = lazy("dlc_core.runtime.measure.profile_calls")
    profiling = lazy("dlc_core.runtime.measure.profile")
    call_memory = lazy("dlc_core.runtime.measure.memory")

NDArray = np.ndarray[Any, Any]

_LOADING = [threading.RLock()]
"""The lock that is held while code is loaded."""


def _replace_lock_in_child() -> None:
    """Replace the lock in a forked process, because another thread may have held it."""
    _LOADING[:] = [threading.RLock()]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_lock_in_child)

_ENTRIES = "_entries"
"""The attribute with the entry points that have been asked for."""

SHORT_SOURCE = 1 << 18
"""The maximum number of characters of code that artefacts keep by default."""


class Executable(LoadableModel, InSteps):
    """A compiled model on a device of this process.  Made by `dlc.compile`, `dlc.build` and `dlc.open`."""

    regions: Mapping[str, Executable]
    parts: Mapping[str, Executable]
    _caller: Caller | None = None
    _loaded: Any = None
    _code_owner: Executable | None = None
    """The executable that has the code, if this is one of its entry points."""
    _shared: Executable | None = None
    """The executable whose call path this one uses."""
    background: Callable[[], None] | None = None
    """Waits for work of the compile that goes on in the background, such as storing in the cache."""

    @cached_property
    def _input_names(self) -> tuple[str, ...]:
        return tuple(value.name for value in self.signature.inputs)

    @cached_property
    def _output_names(self) -> tuple[str, ...]:
        return tuple(value.name for value in self.signature.outputs)

    @cached_property
    def memory(self) -> call_memory.CallMemory:
        """The memory of one call: `memory.scratch` and `memory.results` are expressions over the dims,
        `memory.maximum` is the maximum over all calls, `memory.at(batch=8)` that over calls with these sizes.
        """
        return call_memory.CallMemory(self)

    def with_threads(self, num_threads: int) -> Executable:
        """An executable with another number of threads, for concurrent callers with different numbers. Code,
        weights and scratch memory are shared.
        """
        if self.device is not None and self._caller is None:
            self._load()
        return self._copy(num_threads)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Raises UsageError: opening a file checks it, and unpickling would not."""
        raise UsageError(
            "an executable cannot be pickled",
            why="its code is loaded into this process",
            hint="exe.save(path) writes a file, which dlc.open reads in any process",
        )

    def _copy(self, num_threads: int) -> Executable:
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.num_threads = num_threads
        other._forget_sessions()
        return other

    def __call__(self, *arrays: Any, out: Any = None, cancel: CancelToken | None = None) -> Any:
        """Run on arrays in the order of `inputs`. Returns one array, or a tuple of arrays.

        Inputs are NumPy arrays, or objects that export their memory by DLPack or NumPy's interfaces.
        Contiguous ones are not copied. `out`, an array or a sequence of arrays, is where the results are
        written; it is returned. A single operator (`dlc.build`) also takes all its arrays by position, in the
        order of its parameters; their number decides. Destinations may be strided, and must not overlap each
        other or an input. Raises UsageError, before anything runs, for a wrong number, dtype or shape.

        `cancel` is a token that stops the call: it raises CancelledError, and its results, destinations and
        inputs that are updated in place are undefined. The executable can be called again.
        """
        if cancel is not None:
            with cancel:
                return self(*arrays, out=out)
        caller = self._caller or self._load()
        if out is None:
            if len(arrays) != len(self.signature.inputs):
                arrays, out = self.signature.with_destinations(arrays)  # type: ignore[assignment]
        elif not isinstance(out, (list, tuple)):
            out = (out,)
        outputs = caller.call(arrays, self._threads, out)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def run(
        self, feeds: Mapping[str, Any] | None = None, *, cancel: CancelToken | None = None
    ) -> dict[str, Any]:
        """Run on arrays by input name, and return all outputs by name.

        Without arrays it runs on those of `set_input`. `cancel` stops the call, as in `exe(..., cancel=)`.
        """
        if cancel is not None:
            with cancel:
                return self.run(feeds)
        if feeds is None:
            return self._own_session.run()
        return dict(zip(self._output_names, self._call(self._in_order(feeds))))

    def _call(self, arrays: Sequence[Any]) -> list[Any]:
        """Run on arrays in the order of `inputs`, and return all outputs."""
        return (self._caller or self._load()).call(arrays, self._threads)

    def bind(
        self, inputs: Sequence[Any] | Mapping[str, Any], outputs: Sequence[NDArray | None] | None = None
    ) -> BoundCall:
        """A call on fixed memory: it reads `inputs` and writes `outputs` in place, allocating and checking
        nothing.

        Inputs are contiguous host arrays, in order or by name. Without `outputs`, outputs are allocated once.
        A donated input (`dlc.compile(donate=...)`) is a view of memory with capacity; its output is None or
        the longer view. Raises UsageError for arrays of the wrong shape or dtype, that are not contiguous, or
        that overlap.
        """
        given = self._in_order(inputs) if isinstance(inputs, Mapping) else list(inputs)
        caller = self._caller or self._load()
        run, results = caller.bind(given, outputs, self._threads)
        return BoundCall(run, given, results)

    def profile(
        self, inputs: Sequence[Any] | Mapping[str, Any], *, runs: int = 10, warmup: int = 2
    ) -> profiling.Report:
        """Measure the time of each kernel in a call, as the mean of `runs` calls. The report also has the
        work of each kernel, and the shortest time that the target's description allows for it.

        For a model with several targets, each segment is measured on its own device, and copies between
        devices are measured too. A segment whose device measures no kernels has one row: its time is that of
        the device's cycle counter, or else of this process's clock around the launch. `Row.measured` says
        which. The report has the time line of one more call. Raises UsageError for fewer runs than one.
        """
        given = self._in_order(inputs) if isinstance(inputs, Mapping) else list(inputs)
        if runs < 1 or warmup < 0:
            raise UsageError(
                f"profile of {runs} runs after {warmup} warm-up runs", hint="measure at least one"
            )
        self.settle()
        return profile_calls.profile(self, given, runs, warmup)

    def time_evaluator(
        self,
        entry: str | None = None,
        *,
        number: int = 10,
        repeat: int = 3,
        min_repeat_ms: float = 0.0,
        warmup: int = 1,
    ) -> measure.TimeEvaluator:
        """Return a timer: `exe.time_evaluator(number=10, repeat=5)(*arrays)` returns a Timing, in seconds.

        `entry` names an entry point of a module with several. The arrays are those of a call, with or without
        destinations. They are bound first, so a call costs only its kernels. There are `repeat` measurements,
        each the mean of `number` calls. `number` is increased until these calls together take at least
        `min_repeat_ms` milliseconds. `warmup` calls run first.
        """
        if entry is not None:
            options = {"number": number, "repeat": repeat, "min_repeat_ms": min_repeat_ms, "warmup": warmup}
            return self[entry].time_evaluator(**options)  # type: ignore[arg-type]

        def bound(arrays: Sequence[Any]) -> Callable[[], object]:
            self.settle()
            arrays, out = self.signature.with_destinations(arrays)
            self.signature.check_count(len(arrays))
            # Copy inputs that are not contiguous here, so that the copy is not measured.
            given = [
                contiguous(as_host(array, f"input {value.name!r}", value.type.dtype))
                for array, value in zip(arrays, self.signature.inputs, strict=True)
            ]
            return self.bind(given, out)

        return measure.TimeEvaluator(bound, number, repeat, min_repeat_ms, warmup)

    def __getitem__(self, name: str) -> Executable:
        """The function of this name, as an executable that shares code and weights.

        All executables of one function share its scratch memory; each has its own `num_threads`.
        """
        found = self.about.get(ENTRIES, {}).get(name)
        if found is None:
            have = ", ".join(self.entries) or "only the one that is called"
            raise UsageError(f"the executable has no entry point {name!r}", hint=f"it has: {have}")
        kept = self.__dict__.setdefault(_ENTRIES, {})
        if name not in kept:
            kept[name] = self._entry(name, found)
        one: Executable = kept[name]._copy(self._threads)
        one._shared = kept[name]
        return one

    def _entry(self, name: str, found: Mapping[str, Any]) -> Executable:
        """An entry point that `about` describes."""
        with decoding("an entry point"):
            if PART in found:
                part = self.parts[found[PART]] if found[PART] else self
                return part[name] if name in part.entries and part is not self else part
            signature, symbol = decode_signature(found["signature"]), text(found["symbol"])
        others = () if symbol == self.entry else ("sites",)
        other = Executable(
            signature,
            self.artifact,
            self.weights,
            self.target,
            self.device,
            codegen=self.codegen,
            entry=symbol,
            num_threads=self._threads,
            report={key: value for key, value in self.report.items() if key != MEMORY},
            about={key: self.about[key] for key in self.about if key not in (ENTRIES, MEMORY, *others)},
            sources=self._sources,
        )
        other._code_owner = self
        return other

    def explain(
        self,
        machine: cost.Machine | None = None,
        measured: profiling.Report | None = None,
        dims: Mapping[str, int] | None = None,
    ) -> explaining.Explanation:
        """Explain the executable: its kernels in the order of execution, with their model nodes, schedules,
        work and expected times, and its memory.

        `machine` is the machine of the cost model, by default that of the target's description.
        `dlc_core.testing.peak.measured_machine` measures this machine. `measured`, the result of `profile`,
        adds the kernels' measured times.

        Work that depends on dims is None. `dims` gives their sizes by name, as in `{"batch": 8}`; the default
        with `measured` are those of its calls. Raises UsageError for an unknown dim or a wrong size.
        """
        return explaining.explain(self, machine, measured, dims)

    def loaded_caller(self) -> Caller:
        return self._caller or self._load()

    def loaded_entry(self, symbol: str) -> Any:
        self.loaded_caller()
        return self._loaded.entry(symbol)

    def release(self) -> None:
        """Free the scratch memory that is kept for later calls."""
        if self._caller is not None:
            self._caller.release()

    def replace_weights(self, equal: Any) -> None:
        """Use equal weights in other memory, unless calls already use the present ones."""
        with _LOADING[0]:
            if self._caller is None:
                self.weights = equal

    def settle(self) -> None:
        """Wait for work in the background, which would disturb a measurement.

        `report` is complete after it.
        """
        wait = self.background
        if wait is not None:
            wait()

    def save(
        self, path: str | os.PathLike[str], *, sources: Sequence[str] | None = None, library: bool = False
    ) -> None:
        """Write one file that `dlc.open` loads in milliseconds. `sources` names readable forms that it
        contains.

        By default it keeps the text of the generated code if that is short, as for single operators. With
        `library` the file also has a shared library, so that programs without Python can open it; raises
        UnsupportedError if the code cannot be exported. If the file cannot be written, raises ArtifactError
        and leaves the old file at `path`.
        """
        kept = self._short_sources() if sources is None else sources
        with quiet(self.artifact):
            made = self._exporter("library")(self) if library else None
        save(self, Path(path), kept, library=made)

    def export(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write files that run without Python: a library with its C header, or other forms that the code
        generator supports, depending on `path`.

        Returns the written files. Raises UnsupportedError if the target's code generator does not export.
        """
        with quiet(self.artifact):
            files: list[Path] = self._exporter("export")(self, Path(path))
        return files

    def _exporter(self, name: str) -> Callable[..., Any]:
        """A function of the code generator that makes code for programs without Python."""
        check_exportable(self, programs=getattr(self.codegen, "exports_programs", False))
        found: Callable[..., Any] | None = getattr(self.codegen, name, None)
        if found is None:
            raise UnsupportedError(
                f"target {self.target.kind.name!r} does not support {name}",
                hint=SAVE_HINT if self.target.kind.runtime is None else f"{DEVICE_HINT}; {SAVE_HINT}",
            )
        check_exported(self.artifact.metadata)
        return found

    def __repr__(self) -> str:
        return f"<Executable for {self.target}: {self.signature}>"

    def _short_sources(self) -> list[str]:
        texts = self.artifact.sources.items()
        return [f for f, text in texts if isinstance(text, str) and len(text) <= SHORT_SOURCE]

    def _in_order(self, feeds: Mapping[str, Any]) -> list[Any]:
        names = self._input_names
        if len(feeds) == len(names):
            try:
                return [feeds[name] for name in names]
            except KeyError:
                pass
        unknown, missing = [n for n in feeds if n not in names], [n for n in names if n not in feeds]
        if unknown or missing:
            wrong = f"unknown input {unknown[0]!r}" if unknown else f"input {missing[0]!r} is missing"
            raise UsageError(wrong, hint="inputs: " + (", ".join(map(str, self.signature.inputs)) or "none"))
        return [feeds[name] for name in names]

    def _load(self) -> Caller:
        """Load the code into the device, once."""
        with _LOADING[0]:
            if self.device is None:
                raise UnsupportedError(
                    f"there is no device {self.target.kind.device!r} to run on",
                    hint="install the plugin that provides it; saving and exporting need no device",
                )
            if self._caller is None and self._shared is not None:
                self._caller = self._shared._caller or self._shared._load()
                self._loaded = self._shared._loaded
            if self._caller is None:
                self._loaded = self._load_code()
                self._caller = self._caller_of(self._loaded)
            return self._caller

    def _load_code(self) -> Any:
        if self._code_owner is None:
            check_format(self.device, self.artifact)
            with device_errors(self.device), quiet(self.artifact):
                return self.device.load(self.artifact)
        self._code_owner._load()
        return self._code_owner._loaded

    def _caller_of(self, loaded: Any) -> Caller:
        if self.program is not None:
            regions = {name: region._caller or region._load() for name, region in self.regions.items()}
            lanes = hosted.lanes_of(self.device, {n: region.device for n, region in self.regions.items()})
            return hosted.Hosted(
                self.signature, self.device, loaded, self.program, self.weights, regions, lanes
            )
        return caller_for(self.signature, self.device, loaded.entry(self.entry), self.weights)


__all__ = ["BoundCall", "Executable"]
