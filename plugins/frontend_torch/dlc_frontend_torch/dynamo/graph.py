"""A graph of AOT autograd as a callable: `CompiledGraph`.

It is compiled at the first call. Parameters of inference graphs become constants then. Operators that dlc
cannot run stay in torch: the graph is divided at them (`dividing`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from dlc_core.diag import DlcError
from dlc_frontend_torch.dynamo.dividing import divided
from dlc_frontend_torch.dynamo.options import Options
from dlc_frontend_torch.dynamo.part import Part
from dlc_frontend_torch.dynamo.report import Fallback, Graph, add
from dlc_frontend_torch.dynamo.unsupported import Unsupported
from dlc_frontend_torch.locating import op_name, span_of

MAX_REPACKED = 3
"""How often changed parameters are packed again before they become inputs."""


class CompiledGraph:
    """Calls a graph. `kind` is "inference", "forward" or "backward"; `static` are the positions of
    parameters and buffers, which may become constants. Outputs from number `saved` on are only read by the
    backward graph.
    """

    def __init__(
        self,
        module: GraphModule,
        kind: str,
        static: Sequence[int],
        options: Options,
        saved: int | None = None,
    ) -> None:
        self._module, self._kind, self._options = module, kind, options
        self._saved = saved
        changed = _changed_inputs(module)
        self._static = tuple(index for index in static if index not in changed)
        self._versions: list[tuple[int, int, int]] = []
        self._run: Callable[..., Any] | None = None
        self._packed = 0
        self._lock = threading.RLock()

    def __call__(self, *arguments: Any) -> Any:
        """Call the graph on tensors and ints. Returns its outputs as a tuple."""
        run = self._run
        if run is None or (self._static and self._are_changed(arguments)):
            run = self._build(arguments)
        return run(*arguments)

    def _are_changed(self, arguments: Sequence[Any]) -> bool:
        for position, pointer, version in self._versions:
            tensor = arguments[position]
            if tensor._version != version or tensor.data_ptr() != pointer:
                return True
        return False

    def _build(self, arguments: Sequence[Any]) -> Callable[..., Any]:
        with self._lock:
            if self._run is not None and not self._are_changed(arguments):
                return self._run
            if self._packed > MAX_REPACKED:
                self._static = ()
            self._packed += 1
            begun = time.perf_counter()
            static = {index: arguments[index] for index in self._static}
            self._versions = [(i, t.data_ptr(), t._version) for i, t in static.items()]
            fallbacks: list[Fallback] = []
            in_torch: set[str] = set()
            try:
                given = arguments if self._kind == "backward" else None
                run: Callable[..., Any] = Part(
                    self._module, static, self._options, arguments=given, saved=self._saved
                )
                parts = 1
            except Unsupported as error:
                if not self._options.fallback:
                    raise error.combined from None
                fallbacks = [_fallback(node, why) for node, why in error.problems]
                in_torch = {node.name for node, _ in error.problems}
                run, parts = divided(self._module, in_torch, static, self._options)
                if self._kind == "backward":
                    run = _as_traced(self._module, run)
            count = sum(node.op == "call_function" for node in self._module.graph.nodes)
            seconds = time.perf_counter() - begun
            add(Graph(self._kind, count, count - len(in_torch), parts, seconds, tuple(fallbacks)))
            self._run = run
            return run


def _as_traced(module: GraphModule, run: Callable[..., Any]) -> Callable[..., Any]:
    """The callable with arguments contiguous where they were so in the trace: operators of torch may view
    them, and saved images are channels last.
    """
    values = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
    plain = [isinstance(value, torch.Tensor) and value.is_contiguous() for value in values]

    def call(*arguments: Any) -> Any:
        pairs = zip(arguments, plain, strict=True)
        return run(*(each.contiguous() if wanted else each for each, wanted in pairs))

    return call


def _fallback(node: Any, why: DlcError) -> Fallback:
    return Fallback(op_name(node), str(span_of(node)), why.what)


def _changed_inputs(module: GraphModule) -> set[int]:
    """The positions of inputs that the graph writes to."""
    places = {node: i for i, node in enumerate(n for n in module.graph.nodes if n.op == "placeholder")}
    return {
        places[node.args[0]]
        for node in module.graph.nodes
        if node.target is torch.ops.aten.copy_.default and node.args[0] in places
    }


__all__ = ["CompiledGraph"]
