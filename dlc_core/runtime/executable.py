"""Executables: compiled models, called like functions.

    exe(x, y)                         arrays in, array (or tuple) out
    exe.run({"x": x})                 by name, a dict out
    exe.bind([x], [y])                a call without checks and allocation, on fixed memory

An executable is re-entrant: each call in flight has an arena of its own, kept for the next call.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dlc_core.arith import eval_expr
from dlc_core.diag import RuntimeFailure, UsageError
from dlc_core.runtime.signature import Signature
from dlc_core.target import Artifact, Target

NDArray = np.ndarray[Any, Any]
ALIGN = 64


def aligned_bytes(size: int) -> NDArray:
    """Uninitialised bytes that start at a multiple of ALIGN; raises RuntimeFailure when there is no memory."""
    try:
        raw = np.empty(size + ALIGN, np.uint8)
    except (MemoryError, ValueError) as error:
        raise RuntimeFailure(f"cannot allocate {size} bytes of scratch memory", why=str(error)) from None
    start = -raw.ctypes.data % ALIGN
    return raw[start : start + size]


class Executable:
    """A compiled model on a device of this process.  Made by `dlc.compile` and `dlc.open`."""

    def __init__(
        self,
        signature: Signature,
        artifact: Artifact,
        weights: NDArray,
        target: Target,
        device: Any,
        *,
        entry: str = "main",
        num_threads: int = 1,
        report: Mapping[str, Any] | None = None,
    ) -> None:
        self.signature = signature
        self.artifact = artifact
        self.weights = weights
        self.target = target
        self.device = device
        self.num_threads = num_threads
        self.report = dict(report or {})
        self._loaded = device.load(artifact)
        self._entry = self._loaded.entry(entry)
        self._arenas: list[NDArray] = []
        self._lock = threading.Lock()

    @property
    def inputs(self) -> tuple[Any, ...]:
        """Names and types of the inputs."""
        return self.signature.inputs

    @property
    def outputs(self) -> tuple[Any, ...]:
        """Names and types of the outputs."""
        return self.signature.outputs

    def __call__(self, *arrays: Any) -> Any:
        """Run on arrays in the order of `inputs`; one array back, or a tuple of them."""
        ready = [self._ready(a) for a in arrays]
        self.signature.check(ready)
        symbols = self.signature.bind_symbols([a.shape for a in ready])
        outputs = [
            np.empty(shape, value.type.dtype.numpy)
            for shape, value in zip(self.signature.output_shapes(symbols), self.signature.outputs, strict=True)
        ]
        arena = self._take(eval_expr(self.signature.arena_size, symbols))
        try:
            scalars = [symbols[v] for v in self.signature.symbols]
            self._launch([*ready, *outputs, self.weights, arena], scalars)
        finally:
            with self._lock:
                self._arenas.append(arena)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, NDArray]:
        """Run on arrays by input name; all outputs by name."""
        names = [value.name for value in self.signature.inputs]
        unknown, missing = [n for n in feeds if n not in names], [n for n in names if n not in feeds]
        if unknown or missing:
            wrong = f"unknown input {unknown[0]!r}" if unknown else f"input {missing[0]!r} is missing"
            raise UsageError(wrong, hint="inputs: " + ", ".join(str(v) for v in self.signature.inputs))
        results = self(*(feeds[name] for name in names))
        many = results if isinstance(results, tuple) else (results,)
        return {value.name: array for value, array in zip(self.signature.outputs, many, strict=True)}

    def bind(self, inputs: Sequence[NDArray], outputs: Sequence[NDArray] | None = None) -> Callable[[], Any]:
        """A call on fixed memory: it reads `inputs` and writes `outputs` in place, allocating and checking nothing.

        The call has its own arena, so one bound call must not run in two threads at once; bind one for each.
        """
        self.signature.check(inputs)
        symbols = self.signature.bind_symbols([a.shape for a in inputs])
        shapes = self.signature.output_shapes(symbols)
        if outputs is None:
            outputs = [np.empty(s, v.type.dtype.numpy) for s, v in zip(shapes, self.signature.outputs, strict=True)]
        for array, shape, value in zip(outputs, shapes, self.signature.outputs, strict=True):
            if array.shape != shape or array.dtype != value.type.dtype.numpy:
                raise UsageError(f"output {value.name!r} is {array.dtype}{array.shape}, {value.type} is needed")
        arrays = [*inputs, *outputs]
        if not all(a.flags.c_contiguous for a in arrays):
            raise UsageError("bound arrays must be contiguous", hint="use np.ascontiguousarray")
        arena = aligned_bytes(eval_expr(self.signature.arena_size, symbols))
        held = [*arrays, self.weights, arena]
        pointers = (ctypes.c_void_p * len(held))(*(a.ctypes.data for a in held))
        scalars = (ctypes.c_int64 * max(1, len(self.signature.symbols)))(*(symbols[v] for v in self.signature.symbols))
        call, threads = self._entry.call, self.num_threads
        result = outputs[0] if len(outputs) == 1 else tuple(outputs)

        def bound(_held: Any = held) -> Any:
            status = call(pointers, scalars, threads)
            if status:
                raise RuntimeFailure(f"the native entry returned status {status}")
            return result

        return bound

    def source(self, form: str) -> str:
        """Generated code in a readable form, such as the code generator's own language."""
        sources = self.artifact.sources
        if form not in sources:
            raise UsageError(f"no source {form!r}", hint=f"this executable has: {', '.join(sources) or 'none'}")
        return sources[form]

    def _ready(self, array: Any) -> NDArray:
        result = np.asarray(array)
        return result if result.flags.c_contiguous else np.ascontiguousarray(result)

    def _take(self, size: int) -> NDArray:
        with self._lock:
            while self._arenas:
                arena = self._arenas.pop()
                if arena.nbytes >= size:
                    return arena
        return aligned_bytes(size)

    def _launch(self, arrays: Sequence[NDArray], scalars: Sequence[int]) -> None:
        self.device.launch(self._entry, [a.ctypes.data for a in arrays], scalars, self.num_threads)
