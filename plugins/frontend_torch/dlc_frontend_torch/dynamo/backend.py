"""The backend of torch.compile: `backend`.

Dynamo captures graphs, AOT autograd makes them functional and differentiates them. What is left is compiled
by `CompiledGraph` at its first call, when the parameters' values are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext

from dlc_core.diag import UsageError
from dlc_frontend_torch.decompositions import for_autograd
from dlc_frontend_torch.dynamo.graph import CompiledGraph
from dlc_frontend_torch.dynamo.options import Options


def backend(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    **_: Any,
) -> Callable[..., Any]:
    """Compile a graph of Dynamo: `torch.compile(model, backend="dlc", options={"target": ...})`.

    See `Options` for the options. Raises UsageError for unknown ones.
    """
    chosen = Options.of(options)

    def compiler(kind: str) -> Callable[..., Any]:
        return partial(_compile, kind=kind, options=chosen)

    compile_with = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions=for_autograd(),
        keep_inference_input_mutations=True,
    )
    return compile_with(module, example_inputs)  # type: ignore[no-any-return]


def _compile(module: torch.fx.GraphModule, inputs: Sequence[Any], *, kind: str, options: Options) -> Any:
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    static = () if metadata is None or kind != "inference" else tuple(metadata.static_input_indices)
    saved = None if metadata is None or kind != "forward" else metadata.num_forward
    del inputs
    _check_devices(module)
    return make_boxed_func(CompiledGraph(module, kind, static if options.freeze else (), options, saved))


def _check_devices(module: torch.fx.GraphModule) -> None:
    """Raise UsageError for tensors that are not in the memory of the host."""
    for node in module.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            raise UsageError(
                f"the input {node.name!r} of a graph is on the device {value.device}",
                why="backend 'dlc' takes tensors of the CPU, for every target",
                hint="move the module and its inputs: .to('cpu')",
            )


__all__ = ["backend"]
