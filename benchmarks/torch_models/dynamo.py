"""Facts about calls through Dynamo, with backend dlc: graphs, graph breaks, operators that run in torch."""

from __future__ import annotations

from typing import Any


def forget() -> None:
    """Drop the graphs and graph breaks of models before this one."""
    from torch._dynamo.utils import counters

    import dlc_core as dlc

    dlc.torch.reset()
    counters.clear()


def has_graphs() -> bool:
    """Whether anything ran in dlc. Dynamo may run a whole network in eager."""
    import dlc_core as dlc

    return bool(dlc.torch.report().graphs)


def in_torch() -> list[str]:
    """The operators that ran in torch, and what Dynamo could not capture."""
    from torch._dynamo.utils import counters

    import dlc_core as dlc

    if not has_graphs():
        return ["torch runs the whole network"]
    breaks = {f"graph break: {str(why).splitlines()[0]}" for why in counters["graph_break"]}
    return sorted(breaks | {f"{each.op} runs in torch: {each.why}" for each in dlc.torch.report().fallbacks})


def tensors(outputs: Any) -> list[Any]:
    import torch

    leaves = torch.utils._pytree.tree_leaves(outputs)
    return [each for each in leaves if isinstance(each, torch.Tensor)]


__all__ = ["forget", "has_graphs", "in_torch", "tensors"]
