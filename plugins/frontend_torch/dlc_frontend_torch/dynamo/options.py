"""The options of `torch.compile(model, backend="dlc", options={...})`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dlc_core.diag import UsageError
from dlc_core.support.record import record


@record(frozen=True)
class Options:
    """How graphs are compiled.

    `target`, `precision`, `opt_level`, `config` and `num_threads` are those of `dlc.compile`; `num_threads`
    None is torch's number of threads at each call. `freeze`: parameters are constants of graphs that
    need no gradients, packed once. Parameters that were changed since are noticed by torch's version counters
    and packed again; writes that these counters do not see, such as those through `tensor.data` or
    `tensor.numpy()`, need `freeze=False`. `fallback`: operators that dlc lacks run in torch; False makes
    them an error.
    """

    target: Any = None
    precision: str = "float32"
    opt_level: int = 3
    config: Mapping[str, Any] | None = None
    num_threads: int | None = None
    freeze: bool = True
    fallback: bool = True

    @staticmethod
    def of(given: Mapping[str, Any] | None) -> Options:
        """Options by name. Raises UsageError for unknown ones, and for flags that are no bools."""
        known = [each.name for each in fields(Options)]
        unknown = [name for name in given or {} if name not in known]
        if unknown:
            raise UsageError(
                f"backend 'dlc' has no option {unknown[0]!r}", hint=f"its options: {', '.join(known)}"
            )
        made = Options(**dict(given or {}))
        for name in ("freeze", "fallback"):
            if not isinstance(getattr(made, name), bool):
                raise UsageError(f"the option {name!r} is {getattr(made, name)!r}", hint="give True or False")
        return made


__all__ = ["Options"]
