"""Videos: convolutions over space and time, windows over both, motion."""

from __future__ import annotations

from benchmarks.corpus.exporting import call
from benchmarks.corpus.recipe import Network, published

# name in torchvision -> frames, size of the image.
NETWORKS = {
    "r3d_18": (16, 112), "mc3_18": (16, 112), "r2plus1d_18": (16, 112), "s3d": (16, 224),
    "swin3d_t": (8, 224), "mvit_v2_s": (16, 224),
}  # fmt: skip


def _video(name: str, frames: int, size: int, batch: int) -> Network:
    import torch
    import torchvision.models as zoo

    return Network(zoo.get_model(name, weights=None), (torch.randn(batch, 3, frames, size, size),))


for _name, (_frames, _size) in NETWORKS.items():
    published(
        f"video/{_name}-{_frames}x{_size}",
        "torchvision",
        batches=(1, 8) if _name in ("r3d_18", "s3d") else (1,),
        dims={"batch": 2} if _name == "r3d_18" else None,
    )(lambda batch, name=_name, frames=_frames, size=_size: _video(name, frames, size, batch))  # type: ignore[misc]


@published("video/videomae-small-16x224", "transformers", batches=(1,))
def _videomae(batch: int) -> Network:
    import torch
    import transformers as tf

    config = tf.VideoMAEConfig(hidden_size=384, num_attention_heads=6, intermediate_size=1536)
    inner = call(tf.VideoMAEForVideoClassification(config), ["pixel_values"], ["logits"])
    return Network(inner, (torch.randn(batch, 16, 3, 224, 224),), ("pixel_values",))


@published("flow/raft-small-128x160", "torchvision", batches=(1,))
def _raft(batch: int) -> Network:
    """The motion between two images, four updates."""
    import torch
    import torchvision.models.optical_flow as zoo

    class Flow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = zoo.raft_small(weights=None)

        def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
            return self.inner(first, second, num_flow_updates=4)[-1]

    args = (torch.rand(batch, 3, 128, 160) * 2 - 1, torch.rand(batch, 3, 128, 160) * 2 - 1)
    return Network(Flow(), args, ("first", "second"))
