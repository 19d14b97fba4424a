"""Reduced networks of PyTorch, torchvision and timm, by both of PyTorch's exporters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.corpus.exporting import OPSET, stand_in_operators
from benchmarks.corpus.recipe import small

EXPORTERS = {"dynamo": True, "script": False}


def export(module: Any, args: tuple[Any, ...], path: Path, dynamo: bool) -> None:
    """A module as a model file by one of PyTorch's exporters; onnxruntime computes the outputs."""
    import torch

    module.eval()
    torch.backends.mha.set_fastpath_enabled(False)  # it is a single operator that only PyTorch defines
    names = [f"x{index}" for index in range(len(args))]
    with torch.no_grad():
        torch.onnx.export(
            module,
            args,
            str(path),
            dynamo=dynamo,
            input_names=names,
            opset_version=OPSET,
            external_data=False,
        )


def both(name: str, make: Callable[[], tuple[Any, tuple[Any, ...]]]) -> None:
    """Register a module with its arguments for both exporters."""
    for kind, dynamo in EXPORTERS.items():

        def write(path: Path, dynamo: bool = dynamo) -> None:
            stand_in_operators()
            module, args = make()
            export(module, args, path, dynamo)

        small(f"{name}/{kind}")(write)


# --- PyTorch ---


def _tagger(cell: str) -> tuple[Any, tuple[Any, ...]]:
    import torch
    from torch import nn

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(50, 16)
            self.cell = getattr(nn, cell)(16, 12, num_layers=2, bidirectional=True, batch_first=True)
            self.out = nn.Linear(24, 5)

        def forward(self, tokens: Any) -> Any:
            return self.out(self.cell(self.embed(tokens))[0]).log_softmax(-1)

    return Tagger(), (torch.randint(0, 50, (2, 7)),)


def _unet() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from torch import nn

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Conv2d(3, 8, 3, 2, 1)
            self.mid = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
            self.up = nn.ConvTranspose2d(8, 8, 2, 2)
            self.out = nn.Conv2d(11, 2, 1)

        def forward(self, x: Any) -> Any:
            y = self.up(self.mid(self.down(x)))
            return self.out(torch.cat([x, y], 1))

    return UNet(), (torch.randn(1, 3, 32, 32),)


def _transformer() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    return nn.TransformerEncoder(layer, 2), (torch.randn(2, 6, 16),)


both("torch/lstm_tagger", lambda: _tagger("LSTM"))
both("torch/gru_tagger", lambda: _tagger("GRU"))
both("torch/unet", _unet)
both("torch/transformer_encoder", _transformer)

# --- torchvision ---

VISION = {
    "mobilenet_v3_small": 64, "efficientnet_b0": 64, "convnext_tiny": 64, "regnet_y_400mf": 64,
    "shufflenet_v2_x0_5": 64, "densenet121": 64, "googlenet": 64, "inception_v3": 96, "mnasnet0_5": 64,
    "swin_t": 64, "swin_v2_t": 64, "maxvit_t": 224, "squeezenet1_1": 64,
}  # fmt: skip
SEGMENTATION = ("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large", "fcn_resnet50")
DETECTION = (
    "ssdlite320_mobilenet_v3_large", "retinanet_resnet50_fpn", "fasterrcnn_mobilenet_v3_large_320_fpn",
    "maskrcnn_resnet50_fpn", "fcos_resnet50_fpn",
)  # fmt: skip
VIDEO = ("r3d_18", "mc3_18", "r2plus1d_18", "s3d")


def _vision(name: str, kind: str, *shape: int, **options: Any) -> tuple[Any, tuple[Any, ...]]:
    """A model of torchvision; `kind` says which of its results are the outputs."""
    import torch
    import torchvision.models as zoo

    class Outputs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = zoo.get_model(name, weights=None, **options)

        def forward(self, x: Any) -> Any:
            if kind == "boxes":
                found = self.inner([x])[0]
                return tuple(found[key] for key in ("boxes", "scores", "labels"))
            found = self.inner(x)
            return found["out"] if kind == "out" else found

    return Outputs(), (torch.rand(shape),)


def _vision_recipes() -> None:
    for name, size in VISION.items():
        more = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        both(f"vision/{name}", lambda n=name, s=size, m=more: _vision(n, "", 1, 3, s, s, **m))  # type: ignore[misc]
    for name in SEGMENTATION:
        both(f"vision/{name}", lambda n=name: _vision(n, "out", 1, 3, 64, 64, weights_backbone=None))  # type: ignore[misc]
    for name in DETECTION:
        more = {} if name.startswith("ssd") else {"min_size": 96, "max_size": 128}
        both(
            f"vision/{name}",
            lambda n=name, m=more: _vision(n, "boxes", 3, 96, 128, weights_backbone=None, **m),  # type: ignore[misc]
        )
    for name in VIDEO:
        frames = 8 if name != "s3d" else 16
        both(f"vision/{name}", lambda n=name, f=frames: _vision(n, "", 1, 3, f, 64, 64))  # type: ignore[misc]


_vision_recipes()

# --- timm ---

TIMM = {
    "crossvit_tiny_240": 240, "dla34": 64, "edgenext_xx_small": 64, "efficientformer_l1": 224,
    "efficientvit_b0": 64, "ese_vovnet19b_dw": 64, "eva02_tiny_patch14_224": 224, "fastvit_t8": 64,
    "focalnet_tiny_srf": 64, "ghostnetv2_100": 96, "hardcorenas_a": 64, "hrnet_w18_small": 64,
    "inception_next_atto": 64, "levit_128s": 224, "mambaout_femto": 64, "mixer_s32_224": 224,
    "mobilenetv4_conv_small": 96, "mobilevit_xxs": 64, "mobilevitv2_050": 64, "nf_regnet_b0": 64,
    "poolformer_s12": 64, "pvt_v2_b0": 64, "regnety_002": 64, "repvgg_a0": 64, "res2net50_26w_4s": 64,
    "resnest14d": 64, "skresnet18": 64, "starnet_s1": 64, "tiny_vit_5m_224": 224, "vit_tiny_patch16_224": 224,
    "xcit_nano_12_p16_224": 224, "convnextv2_atto": 64,
}  # fmt: skip


def _timm(name: str, size: int) -> tuple[Any, tuple[Any, ...]]:
    import timm
    import torch

    model = timm.create_model(name, pretrained=False, num_classes=10)
    for param in model.parameters():
        if param.dim() > 1 and not param.detach().any():
            torch.nn.init.normal_(param, std=0.05)  # else outputs would not depend on inputs
    return model, (torch.rand(1, 3, size, size),)


for _name, _size in TIMM.items():
    both(f"timm/{_name}", lambda name=_name, size=_size: _timm(name, size))  # type: ignore[misc]
