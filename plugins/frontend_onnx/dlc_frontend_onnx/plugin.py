"""What this package gives to dlc."""

from __future__ import annotations

DLC_API = "0.1"
