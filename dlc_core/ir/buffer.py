"""Buffers, whose class stands with the expressions that load from them: each is made of the other."""

from __future__ import annotations

from dlc_core.ir.expr.grammar import DEFAULT_ALIGN, Buffer

__all__ = ["DEFAULT_ALIGN", "Buffer"]
