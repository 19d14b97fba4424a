"""Locations in a model, and errors that name them.

Names in a model are not trusted. Messages quote, escape and shorten them, so that no name can forge a line of
a log.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc_core.diag import ModelError, Span, UnsupportedError

SHOWN = 96
"""Characters of a foreign name that a message shows at most."""


def shorten(text: str) -> str:
    """The text with unprintable characters escaped, and cut when it is longer than `SHOWN` characters."""
    short = text if len(text) <= SHOWN else text[:SHOWN] + "…"
    return short if short.isprintable() else repr(short)[1:-1]


def quoted(name: str) -> str:
    """A name of the model, escaped, shortened and in quotes."""
    return repr(name if len(name) <= SHOWN else name[:SHOWN] + "…")


@dataclass(slots=True, eq=False)
class Place:
    """A node of a graph (or, with `index` -1, the graph or function itself) in the model `source`."""

    source: str
    scope: str
    index: int = -1
    name: str = ""
    op: str = ""
    domain: str = ""

    @property
    def span(self) -> Span:
        """The place as the core's `Span`."""
        name = self.name if len(self.name) <= SHOWN else self.name[:SHOWN] + "…"
        return Span(shorten(self.source), name, shorten(self.op))

    def describe(self) -> str:
        """One phrase: which node, its operator and domain, its index, and the graph around it."""
        if self.index < 0:
            return f"in {self.scope}"
        name = quoted(self.name) if self.name else "(unnamed)"
        domain = quoted(self.domain or "ai.onnx")
        return f"in node {self.index} {name}, operator {quoted(self.op)} of domain {domain}, of {self.scope}"

    def error(self, what: str, *, why: str = "", hint: str = "") -> ModelError:
        """An error about a malformed, inconsistent or unsafe part of the model at this place."""
        return ModelError(what, spans=[self.span], why=why, hint=hint, details=[self.describe()])

    def unsupported(self, what: str, *, why: str = "", hint: str = "") -> UnsupportedError:
        """An error about a valid part of the model at this place that this version cannot read."""
        return UnsupportedError(what, spans=[self.span], why=why, hint=hint, details=[self.describe()])


__all__ = ["Place", "quoted", "shorten"]
