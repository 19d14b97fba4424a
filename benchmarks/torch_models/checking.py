"""The outcome of one model: `check`, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.torch_models.dynamo import forget, has_graphs, in_torch, tensors
from benchmarks.torch_models.recipe import SEED, Model, Sizes
from benchmarks.torch_models.training import trained

TOLERANCE = 1e-4
"""The largest error of an output, relative to its largest value, in float32."""


def check(model: Model, way: str) -> dict[str, Any]:
    """The outcome of a model. `way` is "static", "dynamic", "compile" or "training"."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    record: dict[str, Any] = {"name": model.name, "family": model.family, "way": way, "reasons": []}
    module = _stirred(model.make())
    if way == "training":
        return {**record, **trained(model, module)}
    return {**record, **(_called(model, module) if way == "compile" else _imported(model, module, way))}


def _stirred(module: Any) -> Any:
    """Change parameters and statistics whose elements are equal at first, such as scales of 1e-6 and biases
    of 0, and weights far smaller than those that keep the size of values, as in heads of some networks.
    Without it parts of a network would not reach its outputs.
    """
    import torch

    with torch.no_grad():
        for each in module.parameters():
            if each.is_floating_point() and each.numel() and each.min() == each.max():
                noise = 0.1 * torch.randn_like(each)
                each.copy_(noise if each.abs().max() < 0.01 else each * (1 + noise))
            elif each.is_floating_point() and each.dim() > 1:
                kept = float(each.std() * (each.numel() / each.shape[0]) ** 0.5)
                each.mul_(1 / kept if 0 < kept < 0.1 else 1)
        for name, each in module.named_buffers():
            if name.endswith("running_mean"):
                each.add_(0.1 * torch.randn_like(each))
            if name.endswith("running_var"):
                each.mul_(0.5 + torch.rand_like(each))
    return module


def _imported(model: Model, module: Any, way: str) -> dict[str, Any]:
    import torch

    import dlc_core as dlc

    module = module.eval()
    examples = model.inputs.draw(model.inputs.sizes, torch.Generator().manual_seed(SEED))
    shapes = _symbolic(model, examples) if way == "dynamic" else None
    begun = time.perf_counter()
    try:
        with torch.no_grad():
            program = torch.export.export(module, (), examples, dynamic_shapes=shapes)
    except Exception as error:  # noqa: BLE001  (torch raises many kinds)
        return {"outcome": "not exported", "reasons": [_line(error)]}
    exported = time.perf_counter()
    try:
        exe = dlc.compile(program, num_threads=1)
    except dlc.DlcError as error:
        return {"outcome": "refused", "reasons": list(error.details) or [error.what]}
    compiled = time.perf_counter()
    sizes = [model.inputs.sizes, *(model.inputs.others if way == "dynamic" else ())]

    def run(inputs: Mapping[str, Any]) -> list[Any]:
        known = {value.name for value in exe.inputs}
        found = exe.run({name: value for name, value in inputs.items() if name in known})
        return [torch.from_numpy(each) for each in found.values()]

    worst = max(_difference(model, module, run, each) for each in sizes)
    return {
        "outcome": _outcome(worst, model, module),
        "error": worst,
        "export_seconds": exported - begun,
        "compile_seconds": compiled - exported,
    }


def _called(model: Model, module: Any) -> dict[str, Any]:
    """Compare calls through torch.compile, of all sizes if the model has symbolic dims."""
    import torch

    forget()
    module = module.eval()
    compiled = torch.compile(module, backend="dlc")

    def run(inputs: Mapping[str, Any]) -> list[Any]:
        with torch.no_grad():
            return tensors(compiled(**inputs))

    begun = time.perf_counter()
    sizes = [model.inputs.sizes, *(model.inputs.others if model.dynamic else ())]
    with torch._dynamo.config.patch(allow_rnn=True):
        worst = max(_difference(model, module, run, each) for each in sizes)
    outcome = _outcome(worst, model, module)
    return {
        "outcome": outcome if has_graphs() or outcome != "right" else "vacuous",
        "error": worst,
        "reasons": in_torch(),
        "compile_seconds": time.perf_counter() - begun,
    }


def _outcome(worst: float, model: Model, module: Any) -> str:
    """ "right", "wrong", or "vacuous" for equal outputs which show nothing: those of eager for other inputs
    are as near, for instance because biases outweigh all else or no value is finite.
    """
    if not worst <= TOLERANCE:
        return "wrong"
    first, second = (_expected(model, module, model.inputs.sizes, seed) for seed in (SEED + 1, SEED + 2))
    differs = len(first) != len(second) or any(
        _error(one, other) > TOLERANCE for one, other in zip(first, second)
    )
    return "right" if differs else "vacuous"


def _expected(model: Model, module: Any, sizes: Sizes, seed: int) -> list[Any]:
    """The outputs of eager for inputs of a seed."""
    import torch

    inputs = model.inputs.draw(sizes, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        return [each.clone() for each in tensors(module(**inputs))]


def _difference(
    model: Model, module: Any, run: Callable[[Mapping[str, Any]], Sequence[Any]], sizes: Sizes
) -> float:
    """The largest error of a call's outputs, relative to the largest value of each."""
    import torch

    inputs = model.inputs.draw(sizes, torch.Generator().manual_seed(SEED + 1))
    expected = _expected(model, module, sizes, SEED + 1)
    return max(_error(one, want) for one, want in zip(run(inputs), expected, strict=True))


def _error(found: Any, expected: Any) -> float:
    import torch

    if found.shape != expected.shape or found.dtype != expected.dtype:
        return float("inf")
    if not expected.numel():
        return 0.0
    one, want = found.double(), expected.detach().double()
    finite = torch.isfinite(want)
    if not torch.equal(torch.isfinite(one), finite) or not torch.equal(one[~finite], want[~finite]):
        return float("inf")
    if not finite.any():
        return 0.0
    largest = max(float(want[finite].abs().max()), 1e-6)
    return float((one[finite] - want[finite]).abs().max()) / largest


def _symbolic(model: Model, examples: Mapping[str, Any]) -> dict[str, Any]:
    """The `dynamic_shapes` of torch.export."""
    import torch

    dims = {name: torch.export.Dim(name, max=8 * size) for name, size in model.inputs.sizes.items()}
    return {
        name: {axis: dims[dim] for axis, dim in model.inputs.axes.get(name, {}).items()} for name in examples
    }


def _line(error: BaseException) -> str:
    lines: Sequence[str] = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"


__all__ = ["TOLERANCE", "check"]
