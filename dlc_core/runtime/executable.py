"""Executables: compiled models, called like functions.

    exe(x, y)                         arrays in, array (or tuple) out
    exe.run({"x": x})                 by name, a dict out
    exe.bind([x], [y])                a call without checks and allocation, on fixed memory
    exe.profile([x])                  where the time goes
    exe.save("m.dlc")                 one file, for `dlc.open`
    exe.export("m.so")                a library with a C interface, where the code generator makes such

An executable is re-entrant: each call in flight has scratch memory of its own, kept for the next call.  The
code is loaded into the process with the first call, so an executable for another machine can be saved and
exported here.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dlc_core.diag import UnsupportedError, UsageError
from dlc_core.runtime.calling import Caller, InPlace, caller_for
from dlc_core.runtime.explain import Explanation, explain
from dlc_core.runtime.hosted import Hosted, Program
from dlc_core.runtime.profile import PROFILE_SUFFIX, Report, make_report
from dlc_core.runtime.saving import save
from dlc_core.runtime.signature import Signature, Value
from dlc_core.target import Artifact, Target

NDArray = np.ndarray[Any, Any]


class BoundCall:
    """A call on fixed memory: `call()` reads `inputs`, writes `outputs` in place and gives them.

    It checks and allocates nothing.  It has scratch memory of its own, so one bound call must not run in two
    threads at once; bind one for each.
    """

    __slots__ = ("_result", "_run", "inputs", "outputs")

    def __init__(
        self, run: Callable[[], None], inputs: Sequence[NDArray], outputs: Sequence[NDArray]
    ) -> None:
        self._run = run
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self._result = outputs[0] if len(outputs) == 1 else tuple(outputs)

    def __call__(self) -> Any:
        self._run()
        return self._result


class Executable:
    """A compiled model on a device of this process.  Made by `dlc.compile`, `dlc.build` and `dlc.open`.

    `program` is there where parts of the model run on the host, between native segments.  `device` None makes
    one that cannot run here, only be saved and exported.
    """

    def __init__(
        self,
        signature: Signature,
        artifact: Artifact,
        weights: NDArray,
        target: Target,
        device: Any,
        *,
        codegen: Any = None,
        entry: str = "main",
        num_threads: int = 1,
        report: Mapping[str, Any] | None = None,
        about: Mapping[str, Any] | None = None,
        program: Program | None = None,
        sources: Mapping[str, Callable[[], str]] | None = None,
    ) -> None:
        self.signature = signature
        self.artifact = artifact
        self.weights = weights
        self.target = target
        self.device = device
        self.codegen = codegen
        self.entry = entry
        self.num_threads = num_threads
        self.report: dict[str, Any] = dict(report or {})
        self.program = program
        self.about: Mapping[str, Any] = about or {}
        self._sources = dict(sources or {})
        self._lock = threading.Lock()
        self._caller: Caller | None = None
        self._loaded: Any = None

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Names, shapes and dtypes of the inputs, in the order of a call."""
        return self.signature.inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Names, shapes and dtypes of the outputs."""
        return self.signature.outputs

    @property
    def num_threads(self) -> int:
        """Threads of one call; may be set at any time, for the calls that follow."""
        return self._threads

    @num_threads.setter
    def num_threads(self, value: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"num_threads is {value!r}", hint="give an integer of at least 1")
        self._threads = value

    def __call__(self, *arrays: Any) -> Any:
        """Run on arrays in the order of `inputs`; one array back, or a tuple of them.

        Arrays are NumPy arrays or anything that gives its memory by DLPack or NumPy's interfaces; contiguous
        ones are not copied.  Raises UsageError, before anything runs, for a wrong number, dtype or shape.
        """
        caller = self._caller or self._load()
        outputs = caller.call(arrays, self._threads)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Run on arrays by input name; all outputs by name."""
        caller = self._caller or self._load()
        outputs = caller.call(self._in_order(feeds), self._threads)
        return {value.name: array for value, array in zip(self.signature.outputs, outputs, strict=True)}

    def bind(
        self, inputs: Sequence[Any] | Mapping[str, Any], outputs: Sequence[NDArray] | None = None
    ) -> BoundCall:
        """A call on fixed memory: it reads `inputs` and writes `outputs` in place, allocating and checking
        nothing.

        Inputs are contiguous host arrays, in order or by name; without `outputs` they are allocated
        once.  Raises UsageError for arrays that do not fit, are not contiguous, or overlap.
        """
        given = self._in_order(inputs) if isinstance(inputs, Mapping) else list(inputs)
        caller = self._caller or self._load()
        run, results = caller.bind(given, outputs, self._threads)
        return BoundCall(run, given, results)

    def profile(
        self, inputs: Sequence[Any] | Mapping[str, Any], *, runs: int = 10, warmup: int = 2
    ) -> Report:
        """Measure where the time of a call goes, kernel by kernel: the mean of `runs` calls.

        Raises UnsupportedError where the executable has no instrumented entry.
        """
        given = self._in_order(inputs) if isinstance(inputs, Mapping) else list(inputs)
        if runs < 1 or warmup < 0:
            raise UsageError(f"profile of {runs} runs after {warmup}", hint="measure at least one")
        caller = self._caller or self._load()
        sites = self.about.get("sites")
        if not isinstance(caller, InPlace) or sites is None:
            raise UnsupportedError(
                "this executable has no instrumented entry",
                why=f"device {self.target.kind.device!r}, or how it was compiled, does not make one",
            )
        entry = self._loaded.entry(self.entry + PROFILE_SUFFIX)
        run, figures = caller.measuring(entry, given, len(sites), self._threads)
        for _ in range(warmup):
            run()
        figures[:] = 0
        start = time.perf_counter()
        for _ in range(runs):
            run()
        total = time.perf_counter() - start
        times = [(int(t), int(n)) for t, n in figures[: len(sites)]]
        return make_report(sites, times, total, runs, self._threads)

    def explain(self) -> Explanation:
        """The kernels with their model nodes and schedules, and the memory, in the order of execution."""
        return explain(self)

    def release(self) -> None:
        """Give back the scratch memory that is kept for coming calls."""
        if self._caller is not None:
            self._caller.release()

    def source(self, form: str) -> str:
        """Readable code: the code generator's own forms and what the compiler can show, such as "tir" and
        "graph".

        Raises UsageError that lists the forms there are.
        """
        made = self._sources.get(form) or self.artifact.sources.get(form)
        if made is None:
            have = ", ".join(sorted({*self._sources, *self.artifact.sources})) or "none"
            raise UsageError(f"no source {form!r}", hint=f"this executable has: {have}")
        return made if isinstance(made, str) else made()

    def save(self, path: str | os.PathLike[str], *, sources: Sequence[str] = ()) -> None:
        """Write one file that `dlc.open` loads in milliseconds; `sources` names readable forms to keep in it.

        Raises ArtifactError, and leaves what was at `path`, where it cannot be written.
        """
        save(self, Path(path), sources)

    def export(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write what runs without Python: a library with its C header, or what else the code generator makes
        of `path`.

        Gives the files written.  Raises UnsupportedError where the target's code generator exports nothing.
        """
        if self.program is not None:
            raise UnsupportedError(
                "parts of this model run on the host, in Python",
                details=[
                    f"{e['op']} ({', '.join(e['nodes'])}): {e['why']}" for e in self.about.get("host", ())
                ],
                hint="exe.save writes a file for dlc.open",
            )
        write = getattr(self.codegen, "export", None)
        if write is None:
            raise UnsupportedError(
                f"target {self.target.kind.name!r} exports nothing that runs without Python",
                hint="exe.save writes a file for dlc.open",
            )
        files: list[Path] = write(self, Path(path))
        return files

    def __repr__(self) -> str:
        return f"<Executable for {self.target}: {self.signature}>"

    def _in_order(self, feeds: Mapping[str, Any]) -> list[Any]:
        names = [value.name for value in self.signature.inputs]
        unknown, missing = [n for n in feeds if n not in names], [n for n in names if n not in feeds]
        if unknown or missing:
            wrong = f"unknown input {unknown[0]!r}" if unknown else f"input {missing[0]!r} is missing"
            raise UsageError(wrong, hint="inputs: " + (", ".join(map(str, self.signature.inputs)) or "none"))
        return [feeds[name] for name in names]

    def _load(self) -> Caller:
        """Load the code into the device, once."""
        with self._lock:
            if self.device is None:
                raise UnsupportedError(
                    f"there is no device {self.target.kind.device!r} to run on",
                    hint="install the plugin that gives it; saving and exporting need no device",
                )
            if self._caller is None:
                self._loaded = self.device.load(self.artifact)
                self._caller = self._caller_of(self._loaded)
            return self._caller

    def _caller_of(self, loaded: Any) -> Caller:
        if self.program is not None:
            return Hosted(self.signature, self.device, loaded, self.program, self.weights)
        return caller_for(self.signature, self.device, loaded.entry(self.entry), self.weights)


__all__ = ["BoundCall", "Executable"]
