"""The constant weights of a contraction by channels, and how scaling and shifting of channels changes
them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core.graph.node import Node, const_array, constant
from dlc_core.ir.dtype import DType
from dlc_core.op.declare import NDArray, OpDecl
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.support.record import record

CONV, CONV_TRANSPOSE, MATMUL, ADD = (OPS[name] for name in ("conv", "conv_transpose", "matmul", "add"))


@record(frozen=True)
class Weights:
    """A contraction `node` over `args` whose weights are constant.

    `grouped` views the weights as [groups, inputs of a group, outputs of a group, window…].
    """

    node: Node
    args: tuple[Node, ...]
    array: NDArray
    bias: NDArray | None
    groups: int
    inputs: int
    outputs: int
    input_axis: int
    """The axis of the contraction's input that holds the input channels."""
    result_axis: int
    """The axis of its result that holds the output channels."""

    @staticmethod
    def of(node: Node, args: Sequence[Node]) -> Weights | None:
        """Return the weights of a floating-point convolution or GEMM; None if they are not constant."""
        if node.op not in (CONV, CONV_TRANSPOSE, MATMUL) or not node.dtype.is_float:
            return None
        array = const_array(args[1])
        bias = const_array(args[2]) if len(args) > 2 else None
        if array is None or (len(args) > 2 and bias is None) or node.dtype is not args[0].dtype:
            return None
        if node.op is MATMUL:
            transposed = node.attrs["transpose_a"] or node.attrs["transpose_b"]
            if array.ndim != 2 or transposed:
                return None
            inputs, outputs = array.shape
            return Weights(node, tuple(args), array, None, 1, inputs, outputs, -1, -1)
        groups, first = node.attrs["groups"], node.attrs["kernel_layout"] != "XIO"
        a, b = array.shape[:2] if first else array.shape[-2:]
        if node.op is CONV:
            inputs, outputs = (b * groups, a) if first else (a * groups, b)
        else:
            inputs, outputs = a, b * groups
        axis = 1 if node.attrs["layout"] == "NCX" else -1
        return Weights(node, tuple(args), array, bias, groups, inputs, outputs, axis, axis)

    def scaled_outputs(self, factor: NDArray) -> Node | None:
        """Return the contraction with each output channel scaled."""
        by_group = factor.reshape(self.groups, 1, -1)
        bias = None if self.bias is None else self.bias.astype(np.float64) * factor
        return self._rebuilt(
            self.args[0], self._ungrouped(self._grouped() * self._over_window(by_group)), bias
        )

    def shifted_outputs(self, term: NDArray) -> Node | None:
        """Add a term to each output channel; None for a GEMM, which has no bias."""
        if self.node.op is MATMUL:
            return None
        bias = term if self.bias is None else self.bias.astype(np.float64) + term
        return self._rebuilt(self.args[0], None, bias)

    def scaled_inputs(self, source: Node, factor: NDArray) -> Node | None:
        """Fold the scale of the input channels into the weights; `source` is the unscaled input."""
        by_group = factor.reshape(self.groups, -1, 1)
        bias = None if self.bias is None else self.bias.astype(np.float64)
        return self._rebuilt(source, self._ungrouped(self._grouped() * self._over_window(by_group)), bias)

    def shifted_inputs(self, source: Node, term: NDArray) -> Node | None:
        """Fold a shift of the input channels into the bias; None with padding, which is not shifted."""
        padding = self.node.attrs.get("padding")
        if self.node.op is CONV_TRANSPOSE or (padding is not None and any(padding)):
            return None
        weights = self._grouped().astype(np.float64)
        sums = (weights * self._over_window(term.reshape(self.groups, -1, 1))).sum(
            (1, *range(3, weights.ndim))
        )  # [groups, outputs of a group]
        if self.node.op is MATMUL:
            shift = _rounded(sums.reshape(-1), self.node.dtype)
            made = self._rebuilt(source, None, None)
            return None if made is None or shift is None else ADD.build(made, constant(shift))
        total = sums.reshape(-1)
        return self._rebuilt(
            source, None, total if self.bias is None else total + self.bias.astype(np.float64)
        )

    def _over_window(self, factor: NDArray) -> NDArray:
        window = self.array.ndim - 2
        spread: NDArray = factor.reshape(factor.shape + (1,) * window)
        return spread

    def _grouped(self) -> NDArray:
        array, groups = self.array, self.groups
        if self.node.op is MATMUL:
            return np.expand_dims(array, 0)
        by_channel = array
        if self.node.attrs["kernel_layout"] == "XIO":
            by_channel = np.moveaxis(array, (-2, -1), (0, 1))
            if self.node.op is CONV:
                by_channel = np.swapaxes(by_channel, 0, 1)
        window = by_channel.shape[2:]
        if self.node.op is CONV:  # [out, in / groups, window…]
            split = by_channel.reshape(groups, self.outputs // groups, self.inputs // groups, *window)
            return np.swapaxes(split, 1, 2)
        result: NDArray = by_channel.reshape(groups, self.inputs // groups, self.outputs // groups, *window)
        return result

    def _ungrouped(self, grouped: NDArray) -> NDArray:
        if self.node.op is MATMUL:
            matrix: NDArray = grouped[0]
            return matrix
        window = grouped.shape[3:]
        if self.node.op is CONV:
            by_channel = np.swapaxes(grouped, 1, 2).reshape(self.outputs, self.inputs // self.groups, *window)
            swapped = np.swapaxes(by_channel, 0, 1)
        else:
            by_channel = swapped = grouped.reshape(self.inputs, self.outputs // self.groups, *window)
        last = self.node.attrs["kernel_layout"] == "XIO"
        result: NDArray = np.moveaxis(swapped, (0, 1), (-2, -1)) if last else by_channel
        return result

    def _rebuilt(self, source: Node, array: NDArray | None, bias: NDArray | None) -> Node | None:
        args = [source, self.args[1]]
        if array is not None:
            weights = _rounded(array, self.args[1].dtype)
            if weights is None:
                return None
            args[1] = constant(weights)
        if bias is not None:
            narrow = _rounded(bias, self.node.dtype)
            if narrow is None:
                return None
            args.append(constant(narrow))
        decl = self.node.op
        assert isinstance(decl, OpDecl)
        return decl.build(*args, **self.node.attrs)


def _rounded(array: NDArray, to: DType) -> NDArray | None:
    """Round an array to a narrower dtype; None if a finite number would overflow."""
    with np.errstate(all="ignore"):
        narrow = array.astype(to.numpy)
    if np.isfinite(narrow.astype(np.float32) if to.bits < 32 else narrow).all():
        return narrow
    lost = np.isfinite(array) & ~np.isfinite(narrow.astype(np.float64))
    return None if lost.any() else narrow
