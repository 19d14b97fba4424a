"""Activation functions as layers."""

from __future__ import annotations

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.nn.checks import expect
from dlc_core.nn.module import Module, Parameter
from dlc_core.nn.tensor import Tensor, call, gelu, relu, sigmoid, silu, softmax, tanh


class ReLU(Module):
    """max(x, 0)"""

    def forward(self, x: Tensor) -> Tensor:
        return relu(x)


class GELU(Module):
    """x times the normal distribution function of x; `approximate` "tanh" is an approximation."""

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return gelu(x, self.approximate)


class SiLU(Module):
    """x sigmoid(x)"""

    def forward(self, x: Tensor) -> Tensor:
        return silu(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x))"""

    def forward(self, x: Tensor) -> Tensor:
        return sigmoid(x)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        return tanh(x)


class Softmax(Module):
    """exp(x) over its sum along a dim."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return softmax(x, self.dim)


class LogSoftmax(Module):
    """The logarithm of softmax along a dim."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return call("log_softmax", x, axis=self.dim)


class LeakyReLU(Module):
    """x, or negative_slope x where x < 0"""

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        return call("leaky_relu", x, alpha=self.negative_slope)

    def extra_repr(self) -> str:
        return f"{self.negative_slope}"


class PReLU(Module):
    """x, or weight x where x < 0, with one weight, or one for each of `num_parameters` channels (dim 1)."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, dtype: str = "float32") -> None:
        self.num_parameters = num_parameters
        self.weight = Parameter((num_parameters,), dtype)
        self.weight.data = np.full((num_parameters,), init, self.weight.type.dtype.numpy)

    def forward(self, x: Tensor) -> Tensor:
        if self.num_parameters == 1:
            return call("prelu", x, self.weight)
        expect(x, 1, self.num_parameters)
        return call("prelu", x, self.weight.reshape(self.num_parameters, *(1,) * (x.ndim - 2)))

    def extra_repr(self) -> str:
        return f"{self.num_parameters}"


class ELU(Module):
    """x, or alpha (exp(x) - 1) where x <= 0"""

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        return call("elu", x, alpha=self.alpha)


class CELU(Module):
    """x, or alpha (exp(x / alpha) - 1) where x <= 0"""

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        return call("celu", x, alpha=self.alpha)


class SELU(Module):
    """gamma x, or gamma alpha (exp(x) - 1) where x <= 0, with constants of arXiv:1706.02515"""

    def forward(self, x: Tensor) -> Tensor:
        return call("selu", x)


class Hardtanh(Module):
    """x limited to [min_val, max_val]"""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        self.min_val, self.max_val = min_val, max_val

    def forward(self, x: Tensor) -> Tensor:
        return call("clip", x, min=self.min_val, max=self.max_val)


class ReLU6(Hardtanh):
    """x limited to [0, 6]"""

    def __init__(self) -> None:
        super().__init__(0.0, 6.0)


class Hardsigmoid(Module):
    """x / 6 + 1/2, limited to [0, 1]"""

    def forward(self, x: Tensor) -> Tensor:
        return call("hard_sigmoid", x, alpha=1 / 6, beta=0.5)


class Hardswish(Module):
    """x times its hard sigmoid"""

    def forward(self, x: Tensor) -> Tensor:
        return call("hard_swish", x)


class Mish(Module):
    """x tanh(log(1 + exp(x)))"""

    def forward(self, x: Tensor) -> Tensor:
        return call("mish", x)


class Softplus(Module):
    """log(1 + exp(beta x)) / beta"""

    def __init__(self, beta: float = 1.0) -> None:
        if not beta > 0:
            raise UsageError(f"beta is {beta}", hint="it must be above 0")
        self.beta = beta

    def forward(self, x: Tensor) -> Tensor:
        return call("softplus", x) if self.beta == 1 else call("softplus", x * self.beta) * (1 / self.beta)


class Softsign(Module):
    """x / (1 + |x|)"""

    def forward(self, x: Tensor) -> Tensor:
        return call("softsign", x)


__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "SELU",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Softsign",
    "Tanh",
]
