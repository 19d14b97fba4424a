"""Training through torch.compile: `trained` compares the losses of steps with those of eager."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.torch_models.dynamo import forget, has_graphs, in_torch, tensors
from benchmarks.torch_models.recipe import SEED, Model

STEPS = 20
TRAINING_TOLERANCE = 1e-3
"""The relative difference of the losses of one step of training that is right in any case."""
CHANGED_RUNS = 4
"""How many times eager trains from parameters that are changed by one unit in the last place, if a loss
differs by more. In some networks rounding grows from step to step, so that any two orders of summation give
different losses: ResNet-18 normalizes its last images over 8 numbers of a batch of 2. An error is the
distance from training in float64. It may be as large as the largest one of these runs of eager up to its
step, since no arithmetic in float32 knows its operands better.
"""


def trained(model: Model, module: Any) -> dict[str, Any]:
    """Compare the losses of steps of SGD through torch.compile with those of eager, and with those of float64
    where they differ. Dropout is off.
    """
    import torch

    module = _without_dropout(module.train())
    state = {name: value.clone() for name, value in module.state_dict().items()}
    inputs = model.inputs.draw(model.inputs.sizes, torch.Generator().manual_seed(SEED))
    eager = _losses(model, module, module, inputs)
    module.load_state_dict(state)
    forget()
    begun = time.perf_counter()
    with torch._dynamo.config.patch(allow_rnn=True):
        found = _losses(model, module, torch.compile(module, backend="dlc"), inputs)
    errors = [abs(a - b) / max(abs(a), 1e-6) for a, b in zip(eager, found, strict=True)]
    reasons, in_dlc = in_torch(), has_graphs()
    right = max(errors) <= TRAINING_TOLERANCE
    if not right:
        module.load_state_dict(state)
        exact = _losses(model, module.double(), module, _in_float64(inputs))
        changed = [_changed_losses(model, module.float(), state, inputs, n) for n in range(CHANGED_RUNS)]
        right = as_precise(found, [eager, *changed], exact)
    moved = abs(eager[0] - eager[-1]) > TRAINING_TOLERANCE * abs(eager[0])
    shown = "vacuous" if not in_dlc else "right" if moved else "still"
    return {
        "outcome": shown if right else "wrong",
        "error": max(errors),
        "reasons": reasons,
        "losses": [found[0], found[-1]],
        "compile_seconds": time.perf_counter() - begun,
    }


def _in_float64(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: x.double() if x.is_floating_point() else x for name, x in inputs.items()}


def _changed_losses(
    model: Model, module: Any, state: Mapping[str, Any], inputs: Mapping[str, Any], seed: int
) -> list[float]:
    """The losses of eager after a change of each parameter by one unit in the last place, up or down."""
    import torch

    module.load_state_dict(state)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for each in module.parameters():
            ups = torch.rand(each.shape, generator=random) < 0.5
            each.copy_(torch.nextafter(each, torch.where(ups, torch.inf, -torch.inf).to(each.dtype)))
    return _losses(model, module, module, inputs)


def as_precise(found: Sequence[float], eager: Sequence[Sequence[float]], exact: Sequence[float]) -> bool:
    """Whether each loss is as near to the first of eager's as TRAINING_TOLERANCE says, or to the exact one as
    one of eager's up to its step.
    """
    limit = 0.0
    for step, (one, true) in enumerate(zip(found, exact, strict=True)):
        limit = max(limit, *(abs(losses[step] - true) for losses in eager))
        other = eager[0][step]
        # NaN is near to nothing.
        if not (abs(one - other) <= TRAINING_TOLERANCE * abs(other) or abs(one - true) <= limit):
            return False
    return True


def _losses(model: Model, module: Any, call: Any, inputs: Mapping[str, Any]) -> list[float]:
    import torch

    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = _loss(model.trains, tensors(call(**inputs))[0])
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def _loss(kind: str, output: Any) -> Any:
    import torch

    random = torch.Generator().manual_seed(SEED)
    if kind == "values":
        return (output - torch.randn(output.shape, generator=random)).square().mean()
    flat = output.reshape(-1, output.shape[-1])
    return torch.nn.functional.cross_entropy(
        flat, torch.randint(output.shape[-1], (len(flat),), generator=random)
    )


def _without_dropout(module: Any) -> Any:
    """Set the probabilities of dropout to zero, in modules and in numbers that modules hold."""
    import torch

    for each in module.modules():
        if isinstance(each, torch.nn.Dropout):
            each.p = 0.0
        for name, value in list(vars(each).items()):
            if isinstance(value, float) and ("dropout" in name or "drop_prob" in name):
                setattr(each, name, 0.0)
    config = getattr(module, "config", None)
    for name, value in list(vars(config).items()) if config is not None else ():
        if isinstance(value, float) and ("dropout" in name or name.endswith("pdrop")):
            setattr(config, name, 0.0)
    return module


__all__ = ["CHANGED_RUNS", "STEPS", "TRAINING_TOLERANCE", "as_precise", "trained"]
