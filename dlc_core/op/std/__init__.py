"""The standard ops.  `OPS` are all declarations, `BY_NAME` the same by name; `std.relu(x)` builds a node.

One file for each family of ops.
"""

from __future__ import annotations

from dlc_core.graph.node import Node
from dlc_core.op.declare import OpDecl
from dlc_core.op.std import (
    activation,
    attentions,
    bands,
    binary,
    bounded_loops,
    control,
    convolution,
    convolution_gradient,
    creation,
    data_dims,
    foreign_call,
    indexing,
    integer_product,
    interpolation,
    linalg,
    norm,
    packed_product,
    pool,
    product,
    programs,
    quantization,
    quantized_groups,
    random_numbers,
    ranking,
    reduce,
    regions,
    resizing,
    scans,
    scatter,
    selecting,
    shape,
    shape_checks,
    slicing,
    softmaxes,
    strings,
    unary,
    value_checks,
    weighted_gather,
)

OPS: tuple[OpDecl, ...] = (
    *unary.OPS,
    *activation.OPS,
    *binary.OPS,
    *shape.OPS,
    *shape_checks.OPS,
    *value_checks.OPS,
    *slicing.OPS,
    *bands.OPS,
    *indexing.OPS,
    *scatter.OPS,
    *creation.OPS,
    *reduce.OPS,
    *scans.OPS,
    *softmaxes.OPS,
    *product.OPS,
    *quantization.OPS,
    *packed_product.OPS,
    *quantized_groups.OPS,
    *attentions.OPS,
    *convolution.OPS,
    *convolution_gradient.OPS,
    *integer_product.OPS,
    *pool.OPS,
    *norm.OPS,
    *resizing.OPS,
    *interpolation.OPS,
    *regions.OPS,
    *weighted_gather.OPS,
    *control.OPS,
    *programs.OPS,
    *bounded_loops.OPS,
    *linalg.OPS,
    *ranking.OPS,
    *selecting.OPS,
    *data_dims.OPS,
    *random_numbers.OPS,
    *strings.OPS,
    *foreign_call.OPS,
)
BY_NAME = {decl.name: decl for decl in OPS}


class _Build:
    """The type of `std.<name>`: a call makes a node of the op, `.decl` is its declaration."""

    __slots__ = ("decl",)

    def __init__(self, decl: OpDecl) -> None:
        self.decl = decl

    def __call__(self, *args: Node, **attrs: object) -> Node:
        return self.decl.build(*args, **attrs)

    def __repr__(self) -> str:
        return f"<builder of {self.decl.name}({', '.join((*self.decl.inputs, *self.decl.attrs))})>"


def __getattr__(name: str) -> _Build:
    if name not in BY_NAME:
        raise AttributeError(f"no standard op {name!r}")
    return _Build(BY_NAME[name])


def __dir__() -> list[str]:
    return [*globals(), *BY_NAME]
