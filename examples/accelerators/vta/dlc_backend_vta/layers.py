"""The machine's work: layers, each an instance of one loop nest over tensors on the card.

A layer is a product (`gemm`: convolutions, and matrix products as convolutions of one row), a maximum over
windows (`max`) or nothing (`copy`), then steps of vector arithmetic on each result, and a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlc_backend_vta.config import Config
from dlc_backend_vta.isa import Op


@dataclass(frozen=True)
class View:
    """A tensor on the card: base register, first byte, bytes between images, channels, rows and columns.

    `wide` elements are int32, others bytes; `flip` bytes are unsigned, and less 128 on the chip.
    """

    base: int
    offset: int
    strides: tuple[int, int, int, int]
    wide: bool = False
    flip: bool = False


@dataclass(frozen=True)
class Weights:
    """Where weights are: strides in bytes of output channels, input channels, and taps.

    Those that are `packed` are stored block after block, [output][input][tap] of [block_out, block_in].
    """

    base: int
    offset: int
    strides: tuple[int, int, int] = (0, 0, 0)
    packed: bool = True
    flip: bool = False


@dataclass(frozen=True)
class Step:
    """A vector operation on the results (`tensor_out` None) or on an operand of their shape.

    The operand is a vector over channels (`vector`: which one; the second operand is the next vector), a
    tensor, or the immediate numbers `first` and `second`.
    """

    op: Op
    vector: int | None = None
    tensor: int | None = None
    first: int = 0
    second: int = 0
    tensor_out: int | None = None


@dataclass(frozen=True)
class Layer:
    """One loop nest.  Sizes in elements, of results [images, channels, rows, columns].

    Rows of matrices are columns here, `batch` of them being the images of one: `images` is then `batch`, and
    the last column has only `ragged` of them (0: all).
    """

    name: str
    kind: str
    images: int
    channels: int
    rows: int
    columns: int
    source: View
    target: View
    inputs: int = 1
    """Channels of the input; those of `max` and `copy` are the results'."""
    height: int = 1
    width: int = 1
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)
    fill: int = 0
    ragged: int = 0
    weights: Weights | None = None
    parts: int = 1
    """Weights of more than 8 bits are sums of so many."""
    steps: tuple[Step, ...] = ()
    vectors: View | None = None
    """Vectors over channels, [blocks][vectors][block_out] of int32."""
    vector_count: int = 0
    tensors: tuple[View, ...] = ()
    starts: tuple[int, ...] = ()
    """Where channels are in groups: the first of the `inputs` channels that each block of results reads."""

    @property
    def taps(self) -> int:
        """Products for each pair of an input and an output channel."""
        return self.kernel[0] * self.kernel[1] * self.parts

    def blocks(self, config: Config) -> tuple[int, int, int]:
        """Blocks of images, output channels, input channels."""
        lanes = config.block_in if self.kind == "gemm" else config.block_out
        return (
            -(-self.images // config.batch),
            -(-self.channels // config.block_out),
            -(-self.inputs // lanes) if self.kind == "gemm" else 1,
        )

    def macs(self) -> int:
        """Multiplications of numbers that are no padding; with groups, those of all that a block reads."""
        columns = self.images * self.columns - (self.images - self.ragged if self.ragged else 0)
        return columns * self.rows * self.channels * self.inputs * self.kernel[0] * self.kernel[1]


def matmul(name: str, m: int, n: int, k: int, config: Config, **more: object) -> Layer:
    """A product [m, k] by [k, n] of compact matrices in base registers 0 and 1, its sums in register 2."""
    columns = -(-m // config.batch)
    given: Mapping[str, object] = {
        "source": View(0, 0, (k, 1, 0, config.batch * k)),
        "target": View(2, 0, (4 * n, 4, 0, 4 * config.batch * n), wide=True),
        "weights": Weights(1, 0, (1, n, 0), packed=False),
        **more,
    }
    return Layer(
        name,
        "gemm",
        min(config.batch, m) if columns == 1 else config.batch,
        n,
        1,
        columns,
        inputs=k,
        width=columns,
        ragged=0 if columns == 1 else m - (columns - 1) * config.batch,
        **given,  # type: ignore[arg-type]
    )


__all__ = ["Layer", "Step", "View", "Weights", "matmul"]
