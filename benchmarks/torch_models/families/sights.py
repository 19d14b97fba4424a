"""Networks of transformers for images."""

from __future__ import annotations

from typing import Any

from benchmarks.torch_models.making import VIT, encoder
from benchmarks.torch_models.recipe import Inputs, images, values, words


def sight(
    name: str, model: str, inputs: Inputs | None = None, *, config: str = "", base: dict[str, Any] = VIT,
    dynamic: bool = True, trains: str = "", **given: Any,
) -> None:  # fmt: skip
    """Register a network of transformers for images. Its config is named by the model's name up to "For"."""
    prefix = config or model.partition("For")[0].removesuffix("Model")
    encoder(name, model, prefix, inputs or images(), dynamic=dynamic, trains=trains, base=base, **given)


sight("vit", "ViTForImageClassification", num_labels=5, trains="classes")
sight("deit", "DeiTForImageClassificationWithTeacher", config="DeiT", num_labels=5)
sight("beit", "BeitForImageClassification", num_labels=5, use_relative_position_bias=True)
sight("data2vecvision", "Data2VecVisionModel", use_shared_relative_position_bias=True)
sight("dinov2", "Dinov2Model")
sight("dinov2registers", "Dinov2WithRegistersModel", num_register_tokens=2)
sight("dinov3", "DINOv3ViTModel", num_register_tokens=2)
sight("ijepa", "IJepaModel")
sight("vitmsn", "ViTMSNModel")
sight("vitdet", "VitDetModel", window_size=2, window_block_indices=[0], use_relative_position_embeddings=True)
sight(
    "hiera",
    "HieraModel",
    base={
        "embed_dim": 16,
        "image_size": [32, 32],
        "patch_size": [7, 7],
        "patch_stride": [4, 4],
        "patch_padding": [3, 3],
        "depths": [1, 1],
        "num_heads": [1, 2],
        "embed_dim_multiplier": 2.0,
        "num_query_pool": 1,
        "query_stride": [2, 2],
        "masked_unit_size": [4, 4],
        "masked_unit_attention": [True, False],
    },
)
sight("swin", "SwinForImageClassification", base={"image_size": 32, "patch_size": 4, "embed_dim": 16,
      "depths": [1, 2], "num_heads": [1, 2], "window_size": 4}, num_labels=5, trains="classes")  # fmt: skip
sight("swinv2", "Swinv2Model", base={"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 2],
      "num_heads": [1, 2], "window_size": 4})  # fmt: skip
sight("swin2sr", "Swin2SRForImageSuperResolution", base={"image_size": 16, "patch_size": 1, "embed_dim": 16,
      "depths": [1], "num_heads": [2], "window_size": 4, "upscale": 2}, inputs=images(16))  # fmt: skip
sight("convnext", "ConvNextForImageClassification", base={"hidden_sizes": [8, 16, 24, 32],
      "depths": [1, 1, 1, 1], "image_size": 32}, num_labels=5, trains="classes")  # fmt: skip
sight("convnextv2", "ConvNextV2Model", base={"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1],
      "image_size": 32})  # fmt: skip
sight("resnet", "ResNetForImageClassification", base={"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32],
      "depths": [1, 1, 2, 1], "layer_type": "bottleneck"}, num_labels=5, trains="classes")  # fmt: skip
sight("regnet", "RegNetForImageClassification", base={"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32],
      "depths": [1, 1, 2, 1], "groups_width": 8}, num_labels=5)  # fmt: skip
sight("bit", "BitModel", base={"embedding_size": 32, "hidden_sizes": [32, 64], "depths": [1, 1],
      "num_groups": 8})  # fmt: skip
sight("mobilenetv1", "MobileNetV1ForImageClassification", base={"depth_multiplier": 0.25, "image_size": 32,
      "min_depth": 8}, num_labels=5)  # fmt: skip
sight("mobilenetv2", "MobileNetV2ForImageClassification", base={"depth_multiplier": 0.25, "image_size": 32,
      "min_depth": 8}, num_labels=5, trains="classes")  # fmt: skip
sight("efficientnet", "EfficientNetForImageClassification", base={"width_coefficient": 0.25,
      "depth_coefficient": 0.25, "hidden_dim": 320, "image_size": 32, "depth_divisor": 4},
      num_labels=5)  # fmt: skip
sight("segformer", "SegformerForSemanticSegmentation", base={"depths": [1, 1, 1, 1],
      "hidden_sizes": [8, 16, 24, 32], "num_attention_heads": [1, 1, 2, 2], "decoder_hidden_size": 16,
      "image_size": 64}, inputs=images(64), num_labels=5)  # fmt: skip
sight("poolformer", "PoolFormerModel", config="PoolFormer", base={"depths": [1, 1, 1, 1],
      "hidden_sizes": [8, 16, 24, 32]},
      inputs=images(64))  # fmt: skip
sight("pvt", "PvtModel", base={"image_size": 64, "depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32],
      "num_attention_heads": [1, 1, 2, 2]}, inputs=images(64))  # fmt: skip
sight("pvtv2", "PvtV2Model", base={"image_size": 64, "depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32],
      "num_attention_heads": [1, 1, 2, 2]}, inputs=images(64))  # fmt: skip
sight("levit", "LevitForImageClassification", base={"image_size": 64, "hidden_sizes": [16, 24, 32],
      "num_attention_heads": [1, 2, 2], "depths": [1, 1, 1], "key_dim": [8, 8, 8]}, inputs=images(64),
      num_labels=5)  # fmt: skip
sight(
    "focalnet",
    "FocalNetModel",
    base={
        "image_size": 32,
        "patch_size": 4,
        "embed_dim": 16,
        "depths": [1, 1],
        "hidden_sizes": [16, 32],
        "focal_levels": [2, 2],
        "focal_windows": [3, 3],
    },
)
sight(
    "mobilevit",
    "MobileViTModel",
    base={
        "image_size": 64,
        "hidden_sizes": [16, 24, 32],
        "neck_hidden_sizes": [8, 8, 8, 16, 16, 24, 32],
        "num_attention_heads": 2,
    },
    inputs=images(64),
)
sight("mobilevitv2", "MobileViTV2Model", base={"image_size": 64, "width_multiplier": 0.25},
      inputs=images(64))  # fmt: skip
sight("swiftformer", "SwiftFormerModel", config="SwiftFormer", base={"depths": [1, 1, 1, 1],
      "embed_dims": [8, 16, 24, 32],
      "image_size": 64}, inputs=images(64))  # fmt: skip
sight("textnet", "TextNetModel", base={"stem_out_channels": 8, "hidden_sizes": [8, 8, 16, 16, 32],
      "conv_layer_kernel_sizes": [[[3, 3]], [[3, 3]], [[3, 1]], [[1, 3]]],
      "conv_layer_strides": [[2], [2], [2], [2]]}, inputs=images(64))  # fmt: skip
sight(
    "hgnetv2",
    "HGNetV2ForImageClassification",
    base={
        "num_labels": 5,
        "embedding_size": 8,
        "stem_channels": [3, 8, 8],
        "hidden_sizes": [8, 16, 24, 32],
        "depths": [1, 1, 1, 1],
        "stage_in_channels": [8, 8, 16, 24],
        "stage_mid_channels": [8, 8, 8, 8],
        "stage_out_channels": [8, 16, 24, 32],
        "stage_num_blocks": [1, 1, 1, 1],
    },
    inputs=images(64),
)
sight("glpn", "GLPNForDepthEstimation", base={"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32],
      "num_attention_heads": [1, 1, 2, 2], "decoder_hidden_size": 16}, inputs=images(64))  # fmt: skip
sight(
    "dpt", "DPTForDepthEstimation", backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8, 8, 16, 16],
    fusion_hidden_size=16, is_hybrid=False, base={**VIT, "num_hidden_layers": 4},
    reassemble_factors=[4, 2, 1, 0.5],
)  # fmt: skip
sight("yolos", "YolosForObjectDetection", num_detection_tokens=5, image_size=[32, 32])
encoder("imagegpt", "ImageGPTModel", "ImageGPT", words(65, 16, mask=False), base={"vocab_size": 65,
        "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 16, "use_cache": False})  # fmt: skip
sight("superpoint", "SuperPointForKeypointDetection", base={"encoder_hidden_sizes": [8, 8, 16, 16],
      "decoder_hidden_size": 16, "descriptor_decoder_dim": 16}, dynamic=False)  # fmt: skip
sight("videomae", "VideoMAEForVideoClassification", num_frames=4, tubelet_size=2, num_labels=5,
      inputs=values({"pixel_values": (4, 3, 32, 32)}))  # fmt: skip
sight("timesformer", "TimesformerModel", num_frames=4, inputs=values({"pixel_values": (4, 3, 32, 32)}))
sight("vivit", "VivitModel", base={**VIT, "tubelet_size": [2, 8, 8], "num_frames": 4},
      inputs=values({"pixel_values": (4, 3, 32, 32)}))  # fmt: skip
