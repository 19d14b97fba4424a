"""Runs of eager torch that samples are compared with: the modes `StableSorts`, `NumbersOf`, `RandomRounding`.

They apply to backward passes too, because these run in the calling thread.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from dlc_frontend_torch.decomposed import DECOMPOSED
from dlc_frontend_torch.random_ops import DRAWN

_RANDOM = frozenset(name.split(".")[1] for name in DRAWN)


class StableSorts(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """Sorts keep the order of equal elements.

    torch leaves this order open, and it depends on the processor. It decides which of several equal elements
    gets which index and gradient. Sorts of dlc are stable, and have the results of torch in this mode.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {**(kwargs or {})}
        if func is torch.ops.aten.sort.default:
            func, given["stable"] = torch.ops.aten.sort.stable, True
            given.update(zip(("dim", "descending"), args[1:]))
            args = args[:1]
        return func(*args, **given)


class NumbersOf(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """A float64 run draws the random numbers of a run in another dtype.

    The numbers of torch's generator depend on the dtype. Without this mode a float64 run of a random operator
    is the exact result of another sample.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.name.removeprefix("aten::").removesuffix("_") not in _RANDOM:
            return func(*args, **kwargs)
        rule = DECOMPOSED.get(func)
        if rule is not None:
            # Only the draw is in the narrow dtype, and not the arithmetic on it.
            with self:
                return rule(*args, **kwargs)
        narrow_args, narrow_kwargs = pytree.tree_map(self._narrow, (args, kwargs))
        made = func(*narrow_args, **narrow_kwargs)
        return args[0].copy_(made) if func._schema.is_mutable else made.double()

    def _narrow(self, given: Any) -> Any:
        if isinstance(given, torch.Tensor) and given.dtype is torch.float64:
            return given.to(self._dtype)
        return self._dtype if given is torch.float64 else given


class RandomRounding(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """A float64 run rounds the result of each operator to a narrower dtype, up or down at random.

    Runs with several seeds show how far roundings alone move each element of a result (Monte Carlo
    arithmetic, Parker 1997). Numbers of the dtype stay as they are, so that moves of data have no error.
    """

    def __init__(self, dtype: torch.dtype, seed: int) -> None:
        super().__init__()
        self._limits = torch.finfo(dtype)
        self._dtype = dtype
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for result in pytree.tree_leaves(made):
            if isinstance(result, torch.Tensor) and result.dtype is torch.float64:
                rounded = self._rounded(result)
                # A view has rounded numbers already, and cannot be written if its elements share memory.
                if not bool(((rounded == result) | result.isnan()).all()):
                    result.copy_(rounded)
        return made

    def _rounded(self, x: torch.Tensor) -> torch.Tensor:
        """The neighbour below or above in the dtype, the nearer one more often."""
        _, exponent = torch.frexp(x)
        unit = torch.ldexp(torch.full_like(x, self._limits.eps), exponent - 1)
        unit = unit.clamp(min=self._limits.tiny * self._limits.eps)
        noise = torch.rand(x.shape, generator=self._generator, dtype=x.dtype) - 0.5
        nearest = x.to(self._dtype).double()
        return torch.where(nearest == x, x, (x + unit * noise).to(self._dtype).double())


__all__ = ["NumbersOf", "RandomRounding", "StableSorts"]
