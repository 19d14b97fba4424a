"""The packages of the models: importing this module imports those that are installed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from benchmarks.torch_models.making import with_torchvision

with_torchvision()
for name in ("torch._dynamo", "torch.export", "transformers.modeling_utils", "timm", "dlc_core"):
    if find_spec(name.partition(".")[0]) is not None:
        import_module(name)
