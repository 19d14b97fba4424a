"""Detectors and segmenters of transformers."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.torch_models.recipe import add, images

PARTS = {
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_queries": 5,
    "num_labels": 5,
}  # fmt: skip


def resnet(stages: int = 4) -> Any:
    """The config of a small ResNet as a backbone."""
    import transformers as tf

    return tf.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 24, 32][:stages], depths=[1] * stages, layer_type="basic",
        out_features=[f"stage{n + 1}" for n in range(stages)],
    )  # fmt: skip


def swin() -> Any:
    """The config of a small Swin as a backbone."""
    import transformers as tf

    return tf.SwinConfig(
        image_size=64, patch_size=4, embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 1, 2, 2], window_size=4,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )  # fmt: skip


def detector(model: str, config: str, backbone: str, **given: Any) -> Any:
    """A detector on a backbone."""
    import transformers as tf

    made = swin() if backbone == "swin" else resnet()
    values = getattr(tf, f"{config}Config")(backbone_config=made, **given)
    return getattr(tf, model)(values)


def scene(name: str, model: str, config: str, backbone: str = "resnet", side: int = 64, **given: Any) -> None:
    add(name, partial(detector, model, config, backbone, **given), images(side))


scene("detr", "DetrForObjectDetection", "Detr", **PARTS)
scene("conditionaldetr", "ConditionalDetrForObjectDetection", "ConditionalDetr", **PARTS)
scene("tabletransformer", "TableTransformerForObjectDetection", "TableTransformer", **PARTS)
scene("upernet", "UperNetForSemanticSegmentation", "UperNet", hidden_size=16, num_labels=5,
      use_auxiliary_head=False)  # fmt: skip
scene("maskformer", "MaskFormerForInstanceSegmentation", "MaskFormer", "swin", fpn_feature_size=32,
      mask_feature_size=32, num_labels=5)  # fmt: skip
scene("mask2former", "Mask2FormerForUniversalSegmentation", "Mask2Former", "swin", feature_size=32,
      mask_feature_size=32, hidden_dim=32, encoder_feedforward_dim=64, encoder_layers=1, decoder_layers=2,
      num_attention_heads=2, dim_feedforward=64, num_queries=5, num_labels=5)  # fmt: skip
