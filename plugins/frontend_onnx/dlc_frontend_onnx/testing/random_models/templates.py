"""Templates of random models: a function per operator draws its inputs and attributes.

@template("Relu Sigmoid")
def unary(b, op):
    b.emit(op, [b.need(b.draw_dtype(op))])
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TypeAlias

from dlc_frontend_onnx.testing.random_models.builder import Builder

Template: TypeAlias = Callable[[Builder, str], object]

TEMPLATES: dict[str, tuple[Template, float]] = {}
"""Operator -> its template, and its relative frequency."""


def template(ops: str, weight: float = 1.0) -> Callable[[Template], Template]:
    """Register a function for operators, whose names are separated by blanks."""

    def register(function: Template) -> Template:
        for op in ops.split():
            TEMPLATES[op] = (function, weight)
        return function

    return register


def all_templates() -> dict[str, tuple[Template, float]]:
    """The table with all templates registered."""
    for family in ("elementwise", "reductions", "shaping", "networks", "control"):
        import_module(f"dlc_frontend_onnx.testing.random_models.{family}")
    return TEMPLATES


__all__ = ["TEMPLATES", "Template", "all_templates", "template"]
