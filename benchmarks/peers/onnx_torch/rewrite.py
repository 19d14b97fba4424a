"""Recovers the structure that an export loses: biases, folded norms, activations, attention. Each function
changes the graph of a module of `trace`, whose values have their shapes in `meta["shape"]`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx
from torch.nn import functional

CONVOLUTIONS = (torch.conv1d, torch.conv2d, torch.conv3d)
POINTWISE = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.pow,
    torch.erf, torch.tanh, torch.sigmoid, torch.exp, torch.clamp, functional.softplus,
)  # fmt: skip
Activation = Callable[..., torch.Tensor]
ACTIVATIONS: Sequence[Activation] = (
    functional.gelu, partial(functional.gelu, approximate="tanh"),
    functional.silu, functional.hardswish, functional.mish,
)  # fmt: skip
LONGEST = 10
"""The maximum number of operators of an exported activation."""
SAMPLES = torch.linspace(-8, 8, 257, dtype=torch.float64)
"""The points at which a chain of operators is compared with activations."""
FRESH = (*CONVOLUTIONS, *POINTWISE, functional.linear, functional.batch_norm, torch.matmul)
"""Functions whose result is not shared, so that it may be overwritten."""
INSIDE = {torch.relu: "relu_", torch.clamp: "clamp_", operator.add: "add_"}
"""Functions, and the methods that overwrite their first argument."""


def improve(module: fx.GraphModule) -> None:
    steps = fold_scales, add_biases, name_activations, name_attention, arrange_channels, reuse_memory
    for step in steps:
        step(module)
        module.graph.eliminate_dead_code()
    used = {node.target for node in module.graph.nodes if node.op == "get_attr"}
    for name in [name for name, _ in module.named_buffers() if name not in used]:
        delattr(module, name)
    module.recompile()


def fold_scales(module: fx.GraphModule) -> None:
    """Fold scales and shifts of channels, including norms with constant statistics, into the weights before
    them.
    """
    for node in module.graph.nodes:
        for source, scale, shift in _scaled(module, node):
            if not isinstance(source, fx.Node) or len(source.users) > 1:
                continue
            at = {**dict.fromkeys(CONVOLUTIONS, 1), functional.batch_norm: 3}.get(source.target)
            weight = None if at is None else _constant(module, _argument(source, at, "weight"))
            if weight is None or not {scale.numel(), shift.numel()} <= {1, len(weight)}:
                continue
            bias = _constant(module, _argument(source, at + 1, "bias"))
            bias = torch.zeros(len(weight)) if bias is None else bias
            by_channel = scale.expand(len(weight)).reshape(-1, *[1] * (weight.dim() - 1))
            _set(module, source, at, "weight", weight * by_channel)
            _set(module, source, at + 1, "bias", bias * scale + shift)
            node.replace_all_uses_with(source)
            module.graph.erase_node(node)
            break


def _scaled(module: fx.GraphModule, node: fx.Node) -> Iterator[tuple[Any, torch.Tensor, torch.Tensor]]:
    """Yield the input of a node, and the scale and shift of its channels."""
    if node.target is functional.batch_norm:
        mean, var, weight, bias = (
            _constant(module, _argument(node, position, name))
            for position, name in ((1, "running_mean"), (2, "running_var"), (3, "weight"), (4, "bias"))
        )
        if mean is not None and var is not None and weight is not None and bias is not None:
            scale = weight / torch.sqrt(var + _argument(node, 7, "eps"))
            yield node.args[0], scale, bias - mean * scale
    elif node.target in (operator.mul, operator.add):
        for source, other in (node.args, node.args[::-1]):
            value, rank = _constant(module, other), len(node.meta.get("shape") or ())
            if value is None or not 2 < rank <= value.dim() + 1:
                continue
            if value.numel() == value.shape[1 - rank]:
                flat, one, none = value.reshape(-1), torch.ones(1), torch.zeros(1)
                yield (source, flat, none) if node.target is operator.mul else (source, one, flat)


def add_biases(module: fx.GraphModule) -> None:
    """Make vectors that are added to a product with a weight its bias."""
    for node in module.graph.nodes:
        if node.target is not operator.add:
            continue
        for source, other in (node.args, node.args[::-1]):
            bias = _constant(module, other)
            if bias is None or not _only(source, functional.linear) or source.args[2] is not None:
                continue
            if bias.shape == _constant(module, source.args[1]).shape[:1]:
                _set(module, source, 2, "bias", bias)
                node.replace_all_uses_with(source)
                break


def name_activations(module: fx.GraphModule) -> None:
    """Replace chains of elementwise functions that compute an activation of torch."""
    positions = {node: position for position, node in enumerate(module.graph.nodes)}
    for last in reversed(module.graph.nodes):
        found = _activation_up_to(last, positions)
        if found is None:
            continue
        source, activation = found
        function, options = activation, {}
        if isinstance(activation, partial):
            function, options = activation.func, activation.keywords
        with module.graph.inserting_after(last):
            new = module.graph.call_function(function, (source,), options)
        _replace(last, new)
        module.graph.eliminate_dead_code()


def _activation_up_to(last: fx.Node, positions: Mapping[fx.Node, int]) -> tuple[fx.Node, Activation] | None:
    """The activation that a node computes, if any, and its argument."""
    chain: list[fx.Node] = []
    ends = {last}
    while len(chain) < LONGEST:
        known = set(chain)
        inside = [
            end for end in ends if end.target in POINTWISE and (end is last or known.issuperset(end.users))
        ]
        if not inside:
            return None
        node = max(inside, key=positions.__getitem__)
        chain.append(node)
        ends = ends - {node} | set(node.all_input_nodes)
        if len(ends) == 1 and len(chain) > 1:
            (source,) = ends
            values = {source: SAMPLES}
            for each in reversed(chain):
                arguments = fx.node.map_arg((each.args, each.kwargs), values.__getitem__)
                values[each] = each.target(*arguments[0], **arguments[1])
            for activation in ACTIVATIONS:
                if torch.allclose(values[last], activation(SAMPLES), rtol=1e-6, atol=1e-6):
                    return source, activation
    return None


def name_attention(module: fx.GraphModule) -> None:
    """Replace `softmax(scale q k + mask) v`, of four dimensions, by torch's attention."""
    for last in module.graph.nodes:
        if last.target is not torch.matmul or not _only(last.args[0], torch.softmax):
            continue
        (soft, value), mask, scale = last.args, None, 1.0
        scores = soft.args[0]
        if _only(scores, operator.add):
            scores, mask = scores.args
            if not _only(scores, torch.matmul, operator.mul, operator.truediv):
                scores, mask = mask, scores
        if _only(scores, operator.mul, operator.truediv) and isinstance(scores.args[1], (int, float)):
            factor = scores.args[1]
            scale = factor if scores.target is operator.mul else 1 / factor
            scores = scores.args[0]
        if not _only(scores, torch.matmul) or soft.args[1] not in (-1, 3):
            continue
        query, key = scores.args
        shapes = [each.meta.get("shape") for each in (query, key, value)]
        if any(each is None or len(each) != 4 or each[:2] != shapes[0][:2] for each in shapes):
            continue
        with module.graph.inserting_before(last):
            transposed = module.graph.call_method("transpose", (key, -1, -2))
            new = module.graph.call_function(
                functional.scaled_dot_product_attention,
                (query, transposed, value),
                {"attn_mask": mask, "scale": scale},
            )
        _replace(last, new)


def arrange_channels(module: fx.GraphModule) -> None:
    """Store images and weights of their convolutions with channels last, which is faster in oneDNN."""
    by_channel = {"memory_format": torch.channels_last}
    if not any(node.target is torch.conv2d for node in module.graph.nodes):
        return
    for node in module.graph.nodes:
        weight = _constant(module, node.args[1]) if node.target is torch.conv2d else None
        if weight is not None:
            _set(module, node, 1, "weight", weight.contiguous(**by_channel))
        if node.op == "placeholder" and len(node.meta.get("shape") or ()) == 4:
            with module.graph.inserting_after(node):
                new = module.graph.call_method("contiguous", (node,), by_channel)
            node.replace_all_uses_with(new, lambda user, new=new: user is not new)


def reuse_memory(module: fx.GraphModule) -> None:
    """Let activations and sums overwrite values without other readers, as `inplace=True` and `+=` do."""
    for node in module.graph.nodes:
        if node.target not in INSIDE or not isinstance(node.args[0], fx.Node):
            continue
        first, *others = node.args
        if node.target is operator.add and not _over(first, node) and _over(others[0], node):
            first, others = others[0], [first]
        if _over(first, node):
            node.op, node.target, node.args = "call_method", INSIDE[node.target], (first, *others)


def _over(source: Any, node: fx.Node) -> bool:
    """Whether a node may overwrite the source, which has its shape and no other user."""
    shape = node.meta.get("shape") or [None]
    return _only(source, *FRESH, *INSIDE.values()) and None not in shape and source.meta.get("shape") == shape


def _replace(old: fx.Node, new: fx.Node) -> None:
    new.meta = dict(old.meta)
    old.replace_all_uses_with(new)


def _only(value: Any, *functions: Any) -> bool:
    """Whether a value is the result of one of the functions and has one user."""
    return isinstance(value, fx.Node) and value.target in functions and len(value.users) == 1


def _constant(module: fx.GraphModule, value: Any) -> torch.Tensor | None:
    known = isinstance(value, fx.Node) and value.op == "get_attr"
    return module.get_buffer(value.target) if known else None


def _argument(node: fx.Node, position: int, name: str) -> Any:
    return node.kwargs.get(name) if position >= len(node.args) else node.args[position]


def _set(module: fx.GraphModule, node: fx.Node, position: int, name: str, value: torch.Tensor) -> None:
    """A new constant as an argument of a node."""
    target = f"{name}_{len(module._buffers)}"
    module.register_buffer(target, value)
    with module.graph.inserting_before(node):
        new = module.graph.get_attr(target)
    if position < len(node.args):
        node.update_arg(position, new)
    else:
        node.update_kwarg(name, new)
