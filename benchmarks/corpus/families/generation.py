"""Images made or changed: diffusion, autoencoders, adversarial generators, resolution, style."""

from __future__ import annotations

from benchmarks.corpus.exporting import picture
from benchmarks.corpus.recipe import Network, published


@published("diffusion/unet-sd15-third-64", "here", batches=(1,), dtypes=("bfloat16",))
def _diffusion(batch: int) -> Network:
    import torch

    from benchmarks.corpus.networks.diffusion import Diffusion

    args = (torch.randn(batch, 4, 64, 64), torch.full((batch,), 501), torch.randn(batch, 77, 768))
    return Network(Diffusion(96), args, ("latents", "step", "text"))


@published("diffusion/unet-sd15-quarter-32", "here", batches=(8,), dims={"batch": 2})
def _small_diffusion(batch: int) -> Network:
    import torch

    from benchmarks.corpus.networks.diffusion import Diffusion

    args = (torch.randn(batch, 4, 32, 32), torch.full((batch,), 501), torch.randn(batch, 77, 768))
    return Network(Diffusion(64), args, ("latents", "step", "text"))


@published("diffusion/dit-s2-32", "here", dims={"batch": 2})
def _dit(batch: int) -> Network:
    """A transformer of diffusion whose norms are scaled by the step."""
    import torch

    from benchmarks.corpus.networks.images import DiT

    return Network(DiT(), (torch.randn(batch, 4, 32, 32), torch.full((batch,), 501)), ("latents", "step"))


@published("autoencoder/vae-decoder-half-32", "here", batches=(1,))
def _vae(batch: int) -> Network:
    import torch

    from benchmarks.corpus.networks.images import VaeDecoder

    return Network(VaeDecoder(64), (torch.randn(batch, 4, 32, 32),))


@published("gan/dcgan-64", "here", dims={"batch": 2})
def _dcgan(batch: int) -> Network:
    import torch

    from benchmarks.corpus.networks.images import Generator

    return Network(Generator(), (torch.randn(batch, 100, 1, 1),))


@published("resolution/espcn-x3-224", "here", dims={"batch": 2}, dtypes=("int8",))
def _espcn(batch: int) -> Network:
    from benchmarks.corpus.networks.images import Espcn

    return Network(Espcn(), (picture(batch, 1, 224, 224),))


@published("resolution/edsr-baseline-x2-128", "here", batches=(1,), dtypes=("bfloat16",))
def _edsr(batch: int) -> Network:
    from benchmarks.corpus.networks.images import Edsr

    return Network(Edsr(), (picture(batch, 3, 128, 128),))


@published("resolution/swin2sr-light-64", "transformers", batches=(1,))
def _swin2sr(batch: int) -> Network:
    from benchmarks.corpus.families.scenes import of_transformers

    return of_transformers(
        batch, "Swin2SRConfig", "Swin2SRForImageSuperResolution", 3, 64, 64, outputs=("reconstruction",),
        embed_dim=60, depths=[6, 6, 6, 6], num_heads=[6, 6, 6, 6], upsampler="pixelshuffledirect",
    )  # fmt: skip


@published("style/style-224", "here")
def _style(batch: int) -> Network:
    from benchmarks.corpus.networks.images import Style

    return Network(Style(), (picture(batch, 3, 224, 224),))
