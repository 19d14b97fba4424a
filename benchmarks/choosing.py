"""Names on command lines."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence


def chosen_networks(
    parser: argparse.ArgumentParser, names: Sequence[str], known: Iterable[str]
) -> tuple[str, ...]:
    """The named networks, or all that are known without names. The parser exits with an error for an unknown
    name.
    """
    every = tuple(known)
    if unknown := set(names) - set(every):
        parser.error(f"no network {min(unknown)}; there are {', '.join(every)}")
    return tuple(names) or every


__all__ = ["chosen_networks"]
