"""Detectors, segmentation, depth, keypoints."""

from __future__ import annotations

from typing import Any

from benchmarks.corpus.exporting import call, picture
from benchmarks.corpus.recipe import Network, published


def of_transformers(
    batch: int, config: str, model: str, *shape: int, outputs: tuple[str, ...] = ("logits",), **values: Any
) -> Network:
    """A model of images, whose only input is `pixel_values`."""
    import transformers as tf

    made = getattr(tf, model)(getattr(tf, config)(**values))
    return Network(call(made, ["pixel_values"], outputs), (picture(batch, *shape),), ("pixel_values",))


# --- Detectors ---


def _yolo(size: int, batch: int) -> Network:
    from benchmarks.corpus.networks.yolo import YoloV8

    return Network(YoloV8(size), (picture(batch, 3, size, size),))


published("yolo/yolov8n-640", "here", dims={"batch": 2}, dtypes=("bfloat16", "int8"))(
    lambda batch: _yolo(640, batch)
)
published("yolo/yolov8n-416", "here", batches=(1,))(lambda batch: _yolo(416, batch))


@published("detr/detr-resnet50-800x1066", "transformers", batches=(1,))
def _detr(batch: int) -> Network:
    import torch
    import transformers as tf

    backbone = tf.ResNetConfig(out_features=["stage4"])
    config = tf.DetrConfig(backbone_config=backbone, use_timm_backbone=False, backbone=None)
    inner = call(tf.DetrForObjectDetection(config), ["pixel_values", "pixel_mask"], ["logits", "pred_boxes"])
    args = (picture(batch, 3, 800, 1066), torch.ones(batch, 800, 1066, dtype=torch.int64))
    return Network(inner, args, ("pixel_values", "pixel_mask"))


@published("detr/rtdetr-r18-640", "transformers", batches=(1,))
def _rtdetr(batch: int) -> Network:
    import transformers as tf

    backbone = tf.RTDetrResNetConfig(
        layer_type="basic", depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512],
        out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip
    return of_transformers(
        batch, "RTDetrConfig", "RTDetrForObjectDetection", 3, 640, 640, outputs=("logits", "pred_boxes"),
        backbone_config=backbone, encoder_in_channels=[128, 256, 512], decoder_layers=3,
        hidden_expansion=0.5,
    )  # fmt: skip


@published("detr/yolos-512x864", "transformers", batches=(1,))
def _yolos(batch: int) -> Network:
    values = {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768, "num_labels": 91}
    return of_transformers(batch, "YolosConfig", "YolosForObjectDetection", 3, 512, 864, **values)


def _boxes(name: str, size: int, **options: Any) -> Network:
    """A detector of torchvision: one image to boxes, scores, labels, whose number depends on the data."""
    import torch
    import torchvision.models as zoo

    class Boxes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = zoo.get_model(name, weights=None, weights_backbone=None, **options)

        def forward(self, x: Any) -> Any:
            found = self.inner([x])[0]
            return tuple(found[key] for key in ("boxes", "scores", "labels"))

    return Network(Boxes(), ((picture(1, 3, size, size)[0] + 1) / 2,), dynamo=False)


DETECTORS = {
    "ssdlite320_mobilenet_v3_large": 320, "fasterrcnn_mobilenet_v3_large_320_fpn": 320,
    "retinanet_resnet50_fpn": 512,
}  # fmt: skip
for _name, _size in DETECTORS.items():
    _sizes = {"min_size": 512, "max_size": 512} if _name.startswith("retina") else {}
    published(f"anchors/{_name}", "torchvision", batches=(1,))(
        lambda batch, name=_name, size=_size, sizes=_sizes: _boxes(name, size, **sizes)  # type: ignore[misc]
    )


# --- Segmentation ---


@published("unet/unet-512", "here", batches=(1,), dtypes=("int8",))
def _unet(batch: int) -> Network:
    from benchmarks.corpus.networks.unet import UNet

    return Network(UNet(), (picture(batch, 3, 512, 512),))


@published("unet/unet-256", "here", dims={"batch": 2})
def _unet_256(batch: int) -> Network:
    from benchmarks.corpus.networks.unet import UNet

    return Network(UNet(32), (picture(batch, 3, 256, 256),))


def _segmenting(name: str, batch: int) -> Network:
    import torch
    import torchvision.models as zoo

    class Out(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = zoo.get_model(name, weights=None, weights_backbone=None)

        def forward(self, x: Any) -> Any:
            return self.inner(x)["out"]

    return Network(Out(), (picture(batch, 3, 520, 520),))


for _name in ("deeplabv3_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"):
    published(f"deeplab/{_name}-520", "torchvision", batches=(1,) if "resnet" in _name else (1, 8))(
        lambda batch, name=_name: _segmenting(name, batch)
    )  # type: ignore[misc]


@published("segformer/segformer-b0-512", "transformers", dims={"batch": 2})
def _segformer(batch: int) -> Network:
    return of_transformers(
        batch, "SegformerConfig", "SegformerForSemanticSegmentation", 3, 512, 512, num_labels=150
    )


@published("upernet/upernet-swin-tiny-512", "transformers", batches=(1,))
def _upernet(batch: int) -> Network:
    import transformers as tf

    backbone = tf.SwinConfig(out_features=["stage1", "stage2", "stage3", "stage4"])
    return of_transformers(
        batch, "UperNetConfig", "UperNetForSemanticSegmentation", 3, 512, 512, backbone_config=backbone,
        num_labels=150, use_auxiliary_head=False,
    )  # fmt: skip


@published("sam/sam-encoder-1024", "transformers", batches=(1,))
def _sam_encoder(batch: int) -> Network:
    return of_transformers(
        batch, "SamVisionConfig", "SamVisionModel", 3, 1024, 1024, outputs=("last_hidden_state",),
        num_hidden_layers=4, global_attn_indexes=[1, 3], initializer_range=0.02,
    )  # fmt: skip


@published("sam/sam-decoder-1024", "transformers", batches=(1,))
def _sam_decoder(batch: int) -> Network:
    import torch
    import transformers as tf

    vision = tf.SamVisionConfig(num_hidden_layers=1, global_attn_indexes=[0])
    model = tf.SamModel(tf.SamConfig(vision_config=vision.to_dict()))
    del model.vision_encoder

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, image: Any, points: Any, labels: Any) -> Any:
            found = self.inner(image_embeddings=image, input_points=points, input_labels=labels)
            return found.pred_masks, found.iou_scores

    labels = torch.tensor([[[1, 1, 0]]])
    args = (torch.randn(batch, 256, 64, 64), torch.rand(batch, 1, 3, 2) * 1024, labels)
    return Network(Decoder(), args, ("image", "points", "labels"))


# --- Depth, keypoints ---


@published("depth/depth-anything-518", "transformers", batches=(1,))
def _depth_anything(batch: int) -> Network:
    return of_transformers(
        batch, "DepthAnythingConfig", "DepthAnythingForDepthEstimation", 3, 518, 518,
        outputs=("predicted_depth",), depth_estimation_type="metric", max_depth=20,
    )  # fmt: skip


@published("depth/glpn-320", "transformers")
def _glpn(batch: int) -> Network:
    return of_transformers(
        batch, "GLPNConfig", "GLPNForDepthEstimation", 3, 320, 320, outputs=("predicted_depth",)
    )


@published("keypoints/vitpose-small-256x192", "transformers", dims={"batch": 2})
def _vitpose(batch: int) -> Network:
    import transformers as tf

    backbone = tf.VitPoseBackboneConfig(
        hidden_size=384, num_attention_heads=6, out_features=["stage12"], image_size=[256, 192]
    )
    return of_transformers(
        batch, "VitPoseConfig", "VitPoseForPoseEstimation", 3, 256, 192, outputs=("heatmaps",),
        backbone_config=backbone, num_labels=17,
    )  # fmt: skip


@published("keypoints/superpoint-480x640", "transformers", batches=(1,))
def _superpoint(batch: int) -> Network:
    """The encoder and the score head of SuperPoint, before keypoints are chosen."""
    import torch
    import transformers as tf

    class Scores(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            model = tf.SuperPointForKeypointDetection(tf.SuperPointConfig())
            self.encoder, self.decoder = model.encoder, model.keypoint_decoder

        def forward(self, x: Any) -> Any:
            features = self.encoder(x)[0]
            return self.decoder._get_pixel_scores(features)

    return Network(Scores(), (picture(batch, 1, 480, 640),))
