"""LSTM, GRU and RNN: exported programs and compiled modules, against eager."""

import pytest
import torch
from torch.export import Dim

import dlc_core as dlc

pytestmark = [  # torch.export warns of itself and of torch.nn
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The tensor attributes self._flat_weights:UserWarning"),
]
KINDS = {
    "lstm": (torch.nn.LSTM, {}),
    "projected": (torch.nn.LSTM, {"proj_size": 3}),
    "gru": (torch.nn.GRU, {}),
    "tanh": (torch.nn.RNN, {}),
    "relu": (torch.nn.RNN, {"nonlinearity": "relu"}),
}
OPTIONS = [
    {},
    {"num_layers": 2, "bidirectional": True, "batch_first": True, "dropout": 0.5},
    {"bias": False, "bidirectional": True},
]


def flat(results):
    return [each for part in results for each in (part if isinstance(part, tuple) else (part,))]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:dropout option adds dropout:UserWarning")
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN:UserWarning")
def test_exported_layers(kind, options):
    torch._dynamo.reset()
    torch.manual_seed(0)
    made, more = KINDS[kind]
    layer = made(6, 5, **options, **more).eval()
    x = torch.randn(4, 3, 6)
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    batch = 4 if layer.batch_first else 3
    hidden = torch.randn(count, batch, more.get("proj_size", 5))
    state = (hidden, torch.randn(count, batch, 5)) if made is torch.nn.LSTM else hidden
    program = torch.export.export(layer, (x, state))
    exe = dlc.compile(program, "llvm")
    found = exe(x.numpy(), *(each.numpy() for each in flat((state,))))
    for one, other in zip(found, flat(layer(x, state)), strict=True):
        torch.testing.assert_close(torch.from_numpy(one), other)


def test_the_batch_may_be_symbolic():
    """The number of steps cannot: torch unrolls it while it infers shapes."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    layer = torch.nn.LSTM(6, 5, bidirectional=True).eval()
    program = torch.export.export(layer, (torch.randn(4, 3, 6),), dynamic_shapes=({1: Dim("batch", max=64)},))
    exe = dlc.compile(program, "llvm")
    for batch in (2, 3, 33):
        x = torch.randn(4, batch, 6)
        for one, other in zip(exe(x.numpy()), flat(layer(x)), strict=True):
            torch.testing.assert_close(torch.from_numpy(one), other)


@pytest.mark.parametrize("freeze", [True, False])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.filterwarnings("ignore:dropout option adds dropout:UserWarning")
def test_compiled_lstm(options, freeze):
    """In inference torch makes layers of oneDNN of an LSTM."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    layer = torch.nn.LSTM(6, 5, **options).eval()
    x = torch.randn(4, 3, 6)
    compiled = torch.compile(layer, backend="dlc", options={"fallback": False, "freeze": freeze})
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        for one, other in zip(flat(compiled(x)), flat(layer(x)), strict=True):
            torch.testing.assert_close(one, other)
