"""What kernels in CUDA C have besides those of the C family: the most threads of their groups."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from dlc_core.backend.kernels import KernelWriter, group_extents
from dlc_core.tir.stmt import PrimFunc


class CudaWriter(KernelWriter):
    """Writes a kernel."""

    def kernel(self, func: PrimFunc, symbol: str) -> str:
        """The text of a PrimFunc that is one launch; compilers know how many threads share the registers."""
        sizes = group_extents(func)
        if sizes is not None:
            head = f"{self.words.head} __launch_bounds__({prod(sizes.values())})"
            self.words = replace(self.words, head=head)
        return super().kernel(func, symbol)


__all__ = ["CudaWriter"]
