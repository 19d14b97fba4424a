"""Operators with several results: which of them a graph reads."""

from __future__ import annotations

import operator

from dlc_frontend_torch.call import Call


def is_used(c: Call, index: int) -> bool:
    """Whether the graph reads the result at this position."""
    users = list(c.node.users)
    taken = [user for user in users if user.target is operator.getitem]
    return len(taken) != len(users) or any(user.args[1] == index for user in taken)


__all__ = ["is_used"]
