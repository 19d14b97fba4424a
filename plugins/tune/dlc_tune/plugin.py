"""The declarations of this package."""

from __future__ import annotations

DLC_API = "0.1"
