"""Networks of PyTorch as model files, with inputs and with the outputs that PyTorch computes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus.recipe import SEED, Make, Network

OPSET = 18
KEPT: list[Any] = []
"""Objects that must stay alive until the process ends."""


def write(network: Make, batch: int, dims: Mapping[str, int], path: Path) -> None:
    """Write the model file, and the inputs and PyTorch's outputs to the `.npz` file next to it."""
    stand_in_operators()
    sizes = {name: size for name, size in dims.items() if name != "batch"}
    made = network(batch, **sizes)
    module = lively(made.module, made.args)
    outputs = results(module, made.args)
    export(module, made, path, dims, len(outputs))
    save(path, dict(zip(made.names, map(plain, made.args))), list(map(plain, outputs)))


def results(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The outputs of a module, one or several."""
    import torch

    with torch.no_grad():
        found = module(*args)
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def export(module: Any, made: Network, path: Path, dims: Mapping[str, int], outputs: int) -> None:
    """Write the model file by one of PyTorch's exporters. The outputs are named `out_0`, `out_1` …"""
    import torch

    torch.backends.mha.set_fastpath_enabled(False)  # it is a single operator that only PyTorch defines
    options: dict[str, Any] = {}
    axes = made.symbolic_axes(dims)
    for arg, places in zip(made.args, axes):
        for axis, dim in places.items():
            if arg.shape[axis] != dims[dim]:
                raise ValueError(f"dim {dim} is {arg.shape[axis]} in the inputs, not {dims[dim]}")
    if dims and made.dynamo:
        parameters = inspect.signature(module.forward).parameters.values()
        several = any(each.kind is each.VAR_POSITIONAL for each in parameters)
        options["dynamic_shapes"] = (axes,) if several else axes
    elif dims:
        options["dynamic_axes"] = {name: places for name, places in zip(made.names, axes) if places}
    with torch.no_grad():
        torch.onnx.export(
            module,
            made.args,
            str(path),
            dynamo=made.dynamo,
            input_names=list(made.names),
            output_names=[f"out_{index}" for index in range(outputs)],
            opset_version=OPSET,
            external_data=False,
            **options,
        )


def save(path: Path, feeds: Mapping[str, Any], outputs: Sequence[Any]) -> None:
    """Write the inputs and outputs of a model next to its file."""
    arrays = {f"in_{name}": value for name, value in feeds.items()}
    arrays |= {f"out_{index}": value for index, value in enumerate(outputs)}
    np.savez(path.with_suffix(".npz"), **arrays)


def plain(tensor: Any) -> Any:
    return tensor.detach().numpy()


def lively(module: Any, args: tuple[Any, ...]) -> Any:
    """Give values to parameters that are initialised as zeros or nearly so, and to batch norms approximate
    statistics of their inputs. Otherwise layers would be identities, or values vanish, and outputs would
    hardly depend on inputs.
    """
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm

    rng = torch.Generator().manual_seed(SEED)

    def measure(part: Any, given: tuple[Any, ...]) -> None:
        values = given[0].transpose(0, 1).flatten(1)
        noise = torch.rand(len(values), generator=rng) + 0.5
        part.running_mean.copy_(values.mean(1))
        part.running_var.copy_(values.var(1, correction=0) * noise if values[0].numel() > 1 else noise)

    with torch.no_grad():
        for param in module.parameters():
            if param.abs().max() < 1e-4:
                drawn = torch.randn(param.shape, generator=rng)
                param.copy_(drawn / max(1, param[0].numel()) ** 0.5 if param.dim() > 1 else drawn * 0.05)
        module.eval()
        norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
        hooks = [part.register_forward_pre_hook(measure) for part in norms]
        if norms:
            module(*args)
        for hook in hooks:
            hook.remove()
    return module


def call(inner: Any, keys: Sequence[str], outputs: Sequence[str], **fixed: Any) -> Any:
    """A model of transformers as a module with positional inputs and a tuple of outputs."""
    import torch

    class Call(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *args: Any) -> Any:
            found = self.inner(**dict(zip(keys, args)), **fixed, return_dict=True)
            return tuple(getattr(found, name) for name in outputs)

    eager(inner)
    return Call()


def eager(inner: Any) -> None:
    """Make attention of transformers products and a softmax, which exporters can write."""
    for part in inner.modules():
        if hasattr(getattr(part, "config", None), "_attn_implementation"):
            part.config._attn_implementation = "eager"


def picture(*shape: int) -> Any:
    """Images [N, C, H, W] of values between -1 and 1, smooth with noise as pictures are."""
    import torch

    coarse = torch.randn(*shape[:2], 8, 8)
    smooth = torch.nn.functional.interpolate(coarse, shape[2:], mode="bicubic")
    return (smooth + 0.1 * torch.randn(smooth.shape)).clamp(-2, 2) / 2


def tokens(vocabulary: int, *shape: int) -> Any:
    """Random token ids, without special tokens, which have small ids."""
    import torch

    return torch.randint(3, vocabulary, shape)


def stand_in_operators() -> None:
    """Replacements of the operators of torchvision's library, if that does not load (its CUDA build without
    CUDA). Exporting needs only their shapes, because onnxruntime computes the expected outputs.
    """
    import torch

    try:
        import torchvision
    except ImportError:
        return  # then they are not needed
    except RuntimeError:
        for name in [name for name in sys.modules if name.startswith("torchvision")]:
            del sys.modules[name]
    else:
        return
    lib = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        lib.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    lib.define(
        "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width,"
        " int sampling_ratio, bool aligned) -> Tensor"
    )

    def nms(dets: Any, scores: Any, iou_threshold: float) -> Any:
        return scores.argsort(descending=True)

    def roi_align(x: Any, rois: Any, scale: float, height: int, width: int, ratio: int, aligned: bool) -> Any:
        return x.new_zeros(rois.shape[0], x.shape[1], height, width)

    lib.impl("nms", nms, "CPU")
    lib.impl("roi_align", roi_align, "CPU")
    KEPT.append(lib)
    import torchvision
    from torchvision.ops import boxes
    from torchvision.ops import roi_align as module

    def there() -> bool:
        return True

    # PyTorch's older exporter reads the sources of called functions, which lambdas do not have.
    for place in (torchvision.extension, boxes, sys.modules[module.__module__]):
        place._has_ops = there
        place._assert_has_ops = there
