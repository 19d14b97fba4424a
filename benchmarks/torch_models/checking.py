"""The outcome of one model: `check`, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.torch_models.recipe import SEED, Model, Sizes

TOLERANCE = 1e-4
"""The largest error of an output, relative to its largest value, in float32."""
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


def check(model: Model, way: str) -> dict[str, Any]:
    """The outcome of a model. `way` is "static", "dynamic", "compile" or "training"."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    record: dict[str, Any] = {"name": model.name, "family": model.family, "way": way, "reasons": []}
    module = _stirred(model.make())
    if way == "training":
        return {**record, **_trained(model, module)}
    return {**record, **(_called(model, module) if way == "compile" else _imported(model, module, way))}


def _stirred(module: Any) -> Any:
    """Change parameters and statistics whose elements are equal at first, such as scales of 1e-6 and biases
    of 0, and weights far smaller than those that keep the size of values, as in heads of some networks.
    Without it parts of a network would not reach its outputs.
    """
    import torch

    with torch.no_grad():
        for each in module.parameters():
            if each.is_floating_point() and each.numel() and each.min() == each.max():
                noise = 0.1 * torch.randn_like(each)
                each.copy_(noise if each.abs().max() < 0.01 else each * (1 + noise))
            elif each.is_floating_point() and each.dim() > 1:
                kept = float(each.std() * (each.numel() / each.shape[0]) ** 0.5)
                each.mul_(1 / kept if 0 < kept < 0.1 else 1)
        for name, each in module.named_buffers():
            if name.endswith("running_mean"):
                each.add_(0.1 * torch.randn_like(each))
            if name.endswith("running_var"):
                each.mul_(0.5 + torch.rand_like(each))
    return module


def _imported(model: Model, module: Any, way: str) -> dict[str, Any]:
    import torch

    import dlc_core as dlc

    module = module.eval()
    examples = model.inputs.draw(model.inputs.sizes, torch.Generator().manual_seed(SEED))
    shapes = _symbolic(model, examples) if way == "dynamic" else None
    begun = time.perf_counter()
    try:
        with torch.no_grad():
            program = torch.export.export(module, (), examples, dynamic_shapes=shapes)
    except Exception as error:  # noqa: BLE001  (torch raises many kinds)
        return {"outcome": "not exported", "reasons": [_line(error)]}
    exported = time.perf_counter()
    try:
        exe = dlc.compile(program, num_threads=1)
    except dlc.DlcError as error:
        return {"outcome": "refused", "reasons": list(error.details) or [error.what]}
    compiled = time.perf_counter()
    sizes = [model.inputs.sizes, *(model.inputs.others if way == "dynamic" else ())]

    def run(inputs: Mapping[str, Any]) -> list[Any]:
        known = {value.name for value in exe.inputs}
        found = exe.run({name: value for name, value in inputs.items() if name in known})
        return [torch.from_numpy(each) for each in found.values()]

    worst = max(_difference(model, module, run, each) for each in sizes)
    return {
        "outcome": _outcome(worst, model, module),
        "error": worst,
        "export_seconds": exported - begun,
        "compile_seconds": compiled - exported,
    }


def _called(model: Model, module: Any) -> dict[str, Any]:
    """Compare calls through torch.compile, of all sizes if the model has symbolic dims."""
    import torch

    _forget()
    module = module.eval()
    compiled = torch.compile(module, backend="dlc")

    def run(inputs: Mapping[str, Any]) -> list[Any]:
        with torch.no_grad():
            return _tensors(compiled(**inputs))

    begun = time.perf_counter()
    sizes = [model.inputs.sizes, *(model.inputs.others if model.dynamic else ())]
    with torch._dynamo.config.patch(allow_rnn=True):
        worst = max(_difference(model, module, run, each) for each in sizes)
    outcome = _outcome(worst, model, module)
    return {
        "outcome": outcome if _has_graphs() or outcome != "right" else "vacuous",
        "error": worst,
        "reasons": _in_torch(),
        "compile_seconds": time.perf_counter() - begun,
    }


def _forget() -> None:
    """Drop the graphs and graph breaks of models before this one."""
    from torch._dynamo.utils import counters

    import dlc_core as dlc

    dlc.torch.reset()
    counters.clear()


def _has_graphs() -> bool:
    """Whether anything ran in dlc. Dynamo may run a whole network in eager."""
    import dlc_core as dlc

    return bool(dlc.torch.report().graphs)


def _in_torch() -> list[str]:
    """The operators that ran in torch, and what Dynamo could not capture."""
    from torch._dynamo.utils import counters

    import dlc_core as dlc

    if not _has_graphs():
        return ["torch runs the whole network"]
    breaks = {f"graph break: {str(why).splitlines()[0]}" for why in counters["graph_break"]}
    return sorted(breaks | {f"{each.op} runs in torch: {each.why}" for each in dlc.torch.report().fallbacks})


def _outcome(worst: float, model: Model, module: Any) -> str:
    """ "right", "wrong", or "vacuous" for equal outputs which show nothing: those of eager for other inputs
    are as near, for instance because biases outweigh all else or no value is finite.
    """
    if not worst <= TOLERANCE:
        return "wrong"
    first, second = (_expected(model, module, model.inputs.sizes, seed) for seed in (SEED + 1, SEED + 2))
    differs = len(first) != len(second) or any(
        _error(one, other) > TOLERANCE for one, other in zip(first, second)
    )
    return "right" if differs else "vacuous"


def _expected(model: Model, module: Any, sizes: Sizes, seed: int) -> list[Any]:
    """The outputs of eager for inputs of a seed."""
    import torch

    inputs = model.inputs.draw(sizes, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        return [each.clone() for each in _tensors(module(**inputs))]


def _difference(
    model: Model, module: Any, run: Callable[[Mapping[str, Any]], Sequence[Any]], sizes: Sizes
) -> float:
    """The largest error of a call's outputs, relative to the largest value of each."""
    import torch

    inputs = model.inputs.draw(sizes, torch.Generator().manual_seed(SEED + 1))
    expected = _expected(model, module, sizes, SEED + 1)
    return max(_error(one, want) for one, want in zip(run(inputs), expected, strict=True))


def _error(found: Any, expected: Any) -> float:
    import torch

    if found.shape != expected.shape or found.dtype != expected.dtype:
        return float("inf")
    if not expected.numel():
        return 0.0
    one, want = found.double(), expected.detach().double()
    finite = torch.isfinite(want)
    if not torch.equal(torch.isfinite(one), finite) or not torch.equal(one[~finite], want[~finite]):
        return float("inf")
    if not finite.any():
        return 0.0
    largest = max(float(want[finite].abs().max()), 1e-6)
    return float((one[finite] - want[finite]).abs().max()) / largest


def _trained(model: Model, module: Any) -> dict[str, Any]:
    """Compare the losses of steps of SGD through torch.compile with those of eager, and with those of float64
    where they differ. Dropout is off.
    """
    import torch

    module = _without_dropout(module.train())
    state = {name: value.clone() for name, value in module.state_dict().items()}
    inputs = model.inputs.draw(model.inputs.sizes, torch.Generator().manual_seed(SEED))
    eager = _losses(model, module, module, inputs)
    module.load_state_dict(state)
    _forget()
    begun = time.perf_counter()
    with torch._dynamo.config.patch(allow_rnn=True):
        found = _losses(model, module, torch.compile(module, backend="dlc"), inputs)
    errors = [abs(a - b) / max(abs(a), 1e-6) for a, b in zip(eager, found, strict=True)]
    reasons, in_dlc = _in_torch(), _has_graphs()
    right = max(errors) <= TRAINING_TOLERANCE
    if not right:
        module.load_state_dict(state)
        exact = _losses(model, module.double(), module, _in_float64(inputs))
        changed = [_changed_losses(model, module.float(), state, inputs, n) for n in range(CHANGED_RUNS)]
        right = _as_precise(found, [eager, *changed], exact)
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


def _as_precise(found: Sequence[float], eager: Sequence[Sequence[float]], exact: Sequence[float]) -> bool:
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
        loss = _loss(model.trains, _tensors(call(**inputs))[0])
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


def _tensors(outputs: Any) -> list[Any]:
    import torch

    leaves = torch.utils._pytree.tree_leaves(outputs)
    return [each for each in leaves if isinstance(each, torch.Tensor)]


def _symbolic(model: Model, examples: Mapping[str, Any]) -> dict[str, Any]:
    """The `dynamic_shapes` of torch.export."""
    import torch

    dims = {name: torch.export.Dim(name, max=8 * size) for name, size in model.inputs.sizes.items()}
    return {
        name: {axis: dims[dim] for axis, dim in model.inputs.axes.get(name, {}).items()} for name in examples
    }


def _line(error: BaseException) -> str:
    lines: Sequence[str] = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"


__all__ = ["CHANGED_RUNS", "STEPS", "TOLERANCE", "TRAINING_TOLERANCE", "check"]
