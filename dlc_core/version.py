"""The version of dlc-core: part of every artefact, cache key and reproducer."""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["__version__"]
