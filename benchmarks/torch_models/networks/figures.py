"""Networks for images: autoencoders, U-Net, generators, super-resolution, mixers, recurrent convolutions."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


def block(channels: int, wanted: int, stride: int = 1) -> nn.Sequential:
    """A convolution with batch normalisation and ReLU."""
    return nn.Sequential(
        nn.Conv2d(channels, wanted, 3, stride, 1, bias=False), nn.BatchNorm2d(wanted), nn.ReLU()
    )


def perceptron() -> nn.Module:
    """Layers with every kind of normalisation of vectors."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(192, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 32), nn.BatchNorm1d(32),
        nn.SiLU(), nn.Linear(32, 10),
    )  # fmt: skip


def convolutional() -> nn.Module:
    """Convolutions, batch normalisation and pools."""
    return nn.Sequential(
        block(3, 16), nn.MaxPool2d(2), block(16, 24), nn.AvgPool2d(2), block(24, 32, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def lenet() -> nn.Module:
    """LeNet-5 for images of 32 by 32."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10),
    )  # fmt: skip


def activations() -> nn.Module:
    """A layer for each activation of torch.nn."""
    names = ("ReLU", "ReLU6", "ELU", "SELU", "CELU", "GELU", "SiLU", "Mish", "Hardswish", "Hardsigmoid",
             "Hardtanh", "LeakyReLU", "PReLU", "Softplus", "Softsign", "Softshrink", "Hardshrink",
             "Tanhshrink", "LogSigmoid", "Tanh", "Sigmoid", "RReLU")  # fmt: skip
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(192, 32)]
    for name in names:
        layers += [nn.Linear(32, 32), getattr(nn, name)()]
    return nn.Sequential(*layers, nn.Linear(32, 10))


class Autoencoder(nn.Module):
    """Convolutions down and transposed convolutions up."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(block(3, 8, 2), block(8, 16, 2))
        self.up = nn.Sequential(
            nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 3, 3, 2, 1, 1), nn.Sigmoid()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(self.down(x))


class Variational(nn.Module):
    """A variational autoencoder whose noise is an argument: reconstruction, mean and logarithmic variance."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.mean, self.spread = nn.Linear(48, 32), nn.Linear(32, 8), nn.Linear(32, 8)
        self.decoder = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 48))

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = functional.relu(self.encoder(x))
        mean, spread = self.mean(h), self.spread(h)
        return self.decoder(mean + noise * torch.exp(0.5 * spread)), mean, spread


class UNet(nn.Module):
    """Two levels with skip connections (arXiv:1505.04597). `resize` enlarges by interpolation."""

    def __init__(self, *, resize: bool = False) -> None:
        super().__init__()
        self.first, self.second, self.third = block(3, 8), block(8, 16), block(16, 32)
        self.resize = resize
        if not resize:
            self.up1, self.up2 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.up_block1 = block(32 + 16 if resize else 32, 16)
        self.up_block2 = block(16 + 8 if resize else 16, 8)
        self.head = nn.Conv2d(8, 4, 1)

    def _up(self, x: torch.Tensor, number: int) -> torch.Tensor:
        if self.resize:
            return functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
        return (self.up1, self.up2)[number](x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.first(x)
        two = self.second(functional.max_pool2d(one, 2))
        three = self.third(functional.max_pool2d(two, 2))
        made = self.up_block1(torch.cat([self._up(three, 0), two], 1))
        return self.head(self.up_block2(torch.cat([self._up(made, 1), one], 1)))


def generator() -> nn.Module:
    """The generator of DCGAN (arXiv:1511.06434), from noise [batch, 16, 1, 1]."""
    return nn.Sequential(
        nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU(True),
        nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
        nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False), nn.Tanh(),
    )  # fmt: skip


def discriminator() -> nn.Module:
    """The discriminator of DCGAN with spectral normalisation."""
    spectral = nn.utils.parametrizations.spectral_norm
    return nn.Sequential(
        spectral(nn.Conv2d(3, 8, 4, 2, 1)), nn.LeakyReLU(0.2), spectral(nn.Conv2d(8, 16, 4, 2, 1)),
        nn.InstanceNorm2d(16, affine=True), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(1024, 1),
    )  # fmt: skip


def enlarger() -> nn.Module:
    """Super-resolution by a pixel shuffle (arXiv:1609.05158)."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, padding=2), nn.Tanh(), nn.Conv2d(16, 12, 3, padding=1), nn.PixelShuffle(2)
    )


class Mixer(nn.Module):
    """MLP-Mixer (arXiv:2105.01601)."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 8, 8)
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(4))
        self.across = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(2)
        )
        self.along = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(2)
        )
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        for index in range(2):
            x = x + self.across[index](self.norms[2 * index](x).transpose(1, 2)).transpose(1, 2)
            x = x + self.along[index](self.norms[2 * index + 1](x))
        return self.head(x.mean(1))


class ConvLstm(nn.Module):
    """A recurrent convolution over the frames of a video (arXiv:1506.04214)."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Conv2d(3 + 8, 32, 3, padding=1)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        batch, count, _, height, width = frames.shape
        h = c = frames.new_zeros(batch, 8, height, width)
        made = []
        for index in range(count):
            i, f, o, g = self.gates(torch.cat([frames[:, index], h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            made.append(h)
        return torch.stack(made, 1)


class Reader(nn.Module):
    """Convolutions and a recurrent layer over the columns of a line of text (arXiv:1507.05717)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(block(1, 8), nn.MaxPool2d(2), block(8, 16), nn.MaxPool2d((2, 1)))
        self.columns = nn.LSTM(16 * 4, 16, bidirectional=True, batch_first=True)
        self.head = nn.Linear(32, 11)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.body(x).flatten(1, 2).transpose(1, 2)
        return functional.log_softmax(self.head(self.columns(made)[0]), -1)


class Spatial(nn.Module):
    """A spatial transformer (arXiv:1506.02025): an affine grid and samples of it."""

    def __init__(self) -> None:
        super().__init__()
        self.where = nn.Linear(3 * 16 * 16, 6)
        self.body = block(3, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        theta = 0.1 * self.where(x.flatten(1)).view(-1, 2, 3) + torch.eye(2, 3)
        grid = functional.affine_grid(theta, x.shape, align_corners=False)
        return self.body(functional.grid_sample(x, grid, align_corners=False))
