"""Buffers. The class is defined in `expr/grammar.py`, because buffers and expressions refer to each other."""

from __future__ import annotations

from dlc_core.ir.expr.grammar import DEFAULT_ALIGN, Buffer

__all__ = ["DEFAULT_ALIGN", "Buffer"]
