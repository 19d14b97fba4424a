"""Networks as Python classes, turned into graphs: `Module`, layers, and parameters by their names.

    class Perceptron(nn.Module):
        def __init__(self):
            self.hidden = nn.Linear(784, 256)
            self.scores = nn.Linear(256, 10)

        def forward(self, x):
            return self.scores(nn.relu(self.hidden(x)))

    model = Perceptron().init(seed=0)
    module = model.to_module({"x": ("batch", 784)})             # a graph whose parameters are inputs
    exe = dlc.compile(module, params=model.state_dict())        # bound: weights are repacked at compile time
    exe = dlc.compile(module)                                   # or passed with each call, by their names

Names of parameters are paths such as `hidden.weight`. Shapes, layouts and names of the layers are those of
PyTorch, so that its state dicts can be loaded (attention has separate projections: `q_proj`, `k_proj`,
`v_proj`, `out_proj`). Layers compute as in inference mode.
"""

from dlc_core.nn.attention import MultiHeadAttention, scaled_dot_product_attention
from dlc_core.nn.layers import (
    GELU,
    AvgPool2d,
    BatchNorm2d,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    GlobalAvgPool,
    Identity,
    LayerNorm,
    Linear,
    MaxPool2d,
    ReLU,
    RMSNorm,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
)
from dlc_core.nn.module import Module, ModuleList, Parameter, Sequential
from dlc_core.nn.state import read_state
from dlc_core.nn.tensor import (
    Spec,
    Tensor,
    call,
    call_many,
    concat,
    constant,
    gelu,
    matmul,
    maximum,
    minimum,
    relu,
    sigmoid,
    silu,
    softmax,
    split,
    tanh,
    where,
)

__all__ = [
    "GELU",
    "AvgPool2d",
    "BatchNorm2d",
    "Conv2d",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAvgPool",
    "Identity",
    "LayerNorm",
    "Linear",
    "MaxPool2d",
    "Module",
    "ModuleList",
    "MultiHeadAttention",
    "Parameter",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Spec",
    "Tanh",
    "Tensor",
    "call",
    "call_many",
    "concat",
    "constant",
    "gelu",
    "matmul",
    "maximum",
    "minimum",
    "read_state",
    "relu",
    "scaled_dot_product_attention",
    "sigmoid",
    "silu",
    "softmax",
    "split",
    "tanh",
    "where",
]
