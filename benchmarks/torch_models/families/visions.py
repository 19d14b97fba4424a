"""Networks of torchvision: classification, segmentation, videos and optical flow."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from benchmarks.torch_models.making import CLASSES, with_torchvision
from benchmarks.torch_models.recipe import Inputs, add, images, values


def _made(model: str, given: dict[str, Any]) -> Any:
    with_torchvision()
    return import_module("torchvision.models").get_model(model, weights=None, **given)


def vision(
    family: str, model: str, side: int = 64, inputs: Inputs | None = None, *, dynamic: bool = True,
    trains: str = "", name: str = "x", **given: Any,
) -> None:  # fmt: skip
    """Register a network of torchvision for images of this side. Its variant is "torchvision-" and its name
    there.
    """
    make = partial(_made, model, {"num_classes": CLASSES, **given})
    add(
        f"{family}-torchvision-{model}",
        make,
        inputs or images(side, name=name),
        dynamic=dynamic,
        trains=trains,
    )


def _flow(model: str) -> Any:
    with_torchvision()
    return import_module("torchvision.models.optical_flow").__dict__[model]()


vision("alexnet", "alexnet")
vision("vgg", "vgg11_bn", 32)
vision("squeezenet", "squeezenet1_1")
vision("shufflenet", "shufflenet_v2_x0_5", trains="classes")
vision("googlenet", "googlenet", aux_logits=False, init_weights=False)
vision("inceptionv3", "inception_v3", 96, aux_logits=False, init_weights=False)
vision("mnasnet", "mnasnet0_5")
vision("mobilenetv2", "mobilenet_v2")
vision("mobilenetv3", "mobilenet_v3_small")
vision("densenet", "densenet121")
vision("efficientnet", "efficientnet_b0")
vision("regnet", "regnet_y_400mf")
vision("resnet", "resnet18", trains="classes")
vision("resnext", "resnext50_32x4d")
vision("wideresnet", "wide_resnet50_2", 32)
vision("convnext", "convnext_tiny", 32)
vision("swin", "swin_t")
vision("swinv2", "swin_v2_t")
vision("vit", "vit_b_32", image_size=64)
vision("maxvit", "maxvit_t", 224)
vision("fcn", "fcn_resnet50", weights_backbone=None)
vision("deeplabv3", "deeplabv3_mobilenet_v3_large", weights_backbone=None)
vision("lraspp", "lraspp_mobilenet_v3_large", name="input", weights_backbone=None)
CLIP = values({"x": (3, 8, 32, 32)})
vision("resnet3d", "r3d_18", inputs=CLIP)
vision("mc3", "mc3_18", inputs=CLIP)
vision("r2plus1d", "r2plus1d_18", inputs=CLIP)
vision("s3d", "s3d", inputs=values({"x": (3, 16, 224, 224)}, batch=1))
vision("swin3d", "swin3d_t", inputs=CLIP)
add("raft-torchvision-raft_small", partial(_flow, "raft_small"),
    values({"image1": (3, 128, 128), "image2": (3, 128, 128)}), dynamic=False)  # fmt: skip
