"""Classifiers of images from timm and torchvision: convolutional, attention, and neither."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.corpus.exporting import picture
from benchmarks.corpus.recipe import Network, published

# family -> name in timm -> size of the image.
TIMM: dict[str, dict[str, int]] = {
    "resnet": {"resnet50": 224, "res2net50_26w_4s": 224, "skresnet18": 224},
    "mobilenet": {"mobilenetv3_large_100": 224, "mobilenetv4_conv_small": 224},
    "efficientnet": {"efficientnet_b0": 224, "efficientnetv2_rw_s": 384},
    "inception": {"inception_v3": 299},
    "densenet": {"densenet121": 224},
    "regnet": {"regnety_032": 288, "regnetx_004": 224},
    "convnext": {"convnext_tiny": 224, "convnextv2_nano": 224, "inception_next_tiny": 224},
    "ghostnet": {"ghostnetv2_100": 224},
    "hrnet": {"hrnet_w18": 224},
    "nfnet": {"nfnet_l0": 288},
    "repvgg": {"repvgg_a0": 224},
    "dla": {"dla34": 224},
    "vovnet": {"ese_vovnet19b_dw": 224},
    "starnet": {"starnet_s4": 224},
    "vit": {
        "vit_base_patch16_224": 224, "deit_small_distilled_patch16_224": 224, "vit_tiny_patch16_224": 224,
        "eva02_tiny_patch14_224": 224,
    },
    "swin": {"swin_tiny_patch4_window7_224": 224, "swinv2_tiny_window8_256": 256},
    "pvt": {"pvt_v2_b2": 224},
    "twins": {"twins_pcpvt_small": 224, "twins_svt_small": 224},
    "maxvit": {"maxvit_tiny_tf_224": 224, "coatnet_0_rw_224": 224},
    "xcit": {"xcit_tiny_12_p16_224": 224},
    "mobilevit": {"mobilevit_s": 256, "mobilevitv2_100": 256},
    "levit": {"levit_128s": 224},
    "efficientformer": {"efficientformer_l1": 224, "efficientvit_b1": 224, "fastvit_t8": 256},
    "focalnet": {"focalnet_tiny_srf": 224},
    "poolformer": {"poolformer_s12": 224},
    "mixer": {"mixer_s32_224": 224, "resmlp_12_224": 224},
}  # fmt: skip
TORCHVISION: dict[str, dict[str, int]] = {
    "resnet": {"resnet18": 224, "resnext50_32x4d": 224},
    "mobilenet": {"mobilenet_v2": 224},
    "squeezenet": {"squeezenet1_1": 224},
    "alexnet": {"alexnet": 224},
    "shufflenet": {"shufflenet_v2_x1_0": 224},
    "mnasnet": {"mnasnet1_0": 224},
    "inception": {"googlenet": 224},
}
BOTH_BATCHES = {
    "resnet50", "mobilenetv3_large_100", "efficientnet_b0", "inception_v3", "densenet121", "regnety_032",
    "convnext_tiny", "vit_base_patch16_224", "deit_small_distilled_patch16_224",
    "swin_tiny_patch4_window7_224", "pvt_v2_b2", "maxvit_tiny_tf_224", "mobilevit_s", "resnet18",
    "mobilenet_v2", "squeezenet1_1", "shufflenet_v2_x1_0", "twins_svt_small", "mixer_s32_224",
    "ghostnetv2_100", "poolformer_s12",
    "levit_128s",
}  # fmt: skip
SYMBOLIC = {
    "resnet50", "mobilenet_v2", "efficientnet_b0", "densenet121", "convnext_tiny", "vit_base_patch16_224",
    "swin_tiny_patch4_window7_224", "pvt_v2_b2", "mixer_s32_224", "shufflenet_v2_x1_0",
}  # fmt: skip
NARROW = {
    "resnet50": ("bfloat16", "int8"), "resnet18": ("int8",), "mobilenet_v2": ("bfloat16", "int8"),
    "efficientnet_b0": ("int8",), "densenet121": ("int8",), "squeezenet1_1": ("int8",),
    "vit_base_patch16_224": ("bfloat16", "int8"), "convnext_tiny": ("bfloat16",),
    "swin_tiny_patch4_window7_224": ("bfloat16",),
}  # fmt: skip


def of_timm(name: str, size: int, batch: int) -> Network:
    import timm

    module = timm.create_model(name, pretrained=False)
    if name.startswith(
        "twins_svt"
    ):  # its attention has five dims, which the exporter does not recognise as attention
        for part in module.modules():
            part.fused_attn = False
    return Network(module, (picture(batch, 3, size, size),))


def of_torchvision(name: str, size: int, batch: int) -> Network:
    import torchvision.models as zoo

    options: dict[str, Any] = {"init_weights": True} if name == "googlenet" else {}
    return Network(zoo.get_model(name, weights=None, **options), (picture(batch, 3, size, size),))


def _register(
    source: str, make: Callable[[str, int, int], Network], lists: dict[str, dict[str, int]]
) -> None:
    for family, models in lists.items():
        for name, size in models.items():
            published(
                f"{family}/{name}",
                source,
                batches=(1, 8) if name in BOTH_BATCHES else (1,),
                dims={"batch": 2} if name in SYMBOLIC else None,
                dtypes=NARROW.get(name, ()),
            )(lambda batch, name=name, size=size: make(name, size, batch))  # type: ignore[misc]


_register("timm", of_timm, TIMM)
_register("torchvision", of_torchvision, TORCHVISION)
