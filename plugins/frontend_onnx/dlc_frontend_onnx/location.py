"""Locations in a model, and errors that name them.

Names in a model are untrusted. Messages quote, escape and shorten them, so that no name can forge a line of a
log.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc_core.diag import ModelError, Span, UnsupportedError

SHOWN = 96
"""Limit of characters of an untrusted name in a message."""


def shorten(text: str) -> str:
    """The text with unprintable characters escaped, truncated to `SHOWN` characters."""
    short = text if len(text) <= SHOWN else text[:SHOWN] + "…"
    return short if short.isprintable() else repr(short)[1:-1]


def quoted(name: str) -> str:
    """A name of the model, escaped, shortened and in quotes."""
    return repr(name if len(name) <= SHOWN else name[:SHOWN] + "…")


@dataclass(slots=True, eq=False)
class Location:
    """A node in the model `source`. If `index` is -1, it is the graph or function itself."""

    source: str
    scope: str
    index: int = -1
    name: str = ""
    op: str = ""
    domain: str = ""

    @property
    def span(self) -> Span:
        """The location as the core's `Span`."""
        name = self.name if len(self.name) <= SHOWN else self.name[:SHOWN] + "…"
        return Span(shorten(self.source), name, shorten(self.op))

    def describe(self) -> str:
        """A phrase with the node's index, name, operator and domain, and the enclosing graph."""
        if self.index < 0:
            return f"in {self.scope}"
        name = quoted(self.name) if self.name else "(unnamed)"
        domain = quoted(self.domain or "ai.onnx")
        return f"in node {self.index} {name}, operator {quoted(self.op)} of domain {domain}, of {self.scope}"

    def error(self, what: str, *, why: str = "", hint: str = "") -> ModelError:
        """An error about a malformed, inconsistent or unsafe part of the model."""
        return ModelError(what, spans=[self.span], why=why, hint=hint, details=[self.describe()])

    def unsupported(self, what: str, *, why: str = "", hint: str = "") -> UnsupportedError:
        """An error about a valid part of the model that this version does not support."""
        return UnsupportedError(what, spans=[self.span], why=why, hint=hint, details=[self.describe()])


__all__ = ["Location", "quoted", "shorten"]
