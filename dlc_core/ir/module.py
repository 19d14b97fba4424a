"""IRModule: named functions of both levels and attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any

from dlc_core.diag import UsageError
from dlc_core.ir.text import Printable
from dlc_core.support.record import record


def _freeze(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return values if isinstance(values, MappingProxyType) else MappingProxyType(dict(values))


@record(frozen=True, eq=False)
class IRModule(Printable):
    """Names to graph `Function`s and tensor-level `PrimFunc`s, in insertion order.

    Immutable: `with_function`, `without` and `with_attrs` give new modules.  `entry` is the name of the
    function that callers run.
    """

    functions: Mapping[str, Any] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    entry: str = "main"

    def __post_init__(self) -> None:
        object.__setattr__(self, "functions", _freeze(self.functions))
        object.__setattr__(self, "attrs", _freeze(self.attrs))

    @classmethod
    def of(cls, *functions: Any) -> IRModule:
        """A module of functions under their own names. The entry is `main`, or the first function if there is
        no `main`. Raises UsageError if two functions have the same name.
        """
        named: dict[str, Any] = {}
        for function in functions:
            if function.name in named:
                raise UsageError(
                    f"two functions are called {function.name!r}", hint="pass {name: function} to IRModule"
                )
            named[function.name] = function
        return cls(named, {}, "main" if "main" in named or not named else next(iter(named)))

    def __str__(self) -> str:
        return self.script()

    def __getitem__(self, name: str) -> Any:
        if name not in self.functions:
            known = ", ".join(self.functions) or "none"
            raise UsageError(f"the module has no function {name!r}", hint=f"it has: {known}")
        return self.functions[name]

    def __contains__(self, name: object) -> bool:
        return name in self.functions

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def of_kind(self, kind: type[Any]) -> dict[str, Any]:
        """The functions that are instances of `kind` (graph `Function` or `PrimFunc`)."""
        return {name: f for name, f in self.functions.items() if isinstance(f, kind)}

    def with_function(self, name: str, function: Any) -> IRModule:
        return replace(self, functions={**self.functions, name: function})

    def with_functions(self, functions: Mapping[str, Any]) -> IRModule:
        return replace(self, functions={**self.functions, **functions})

    def without(self, *names: str) -> IRModule:
        return replace(self, functions={n: f for n, f in self.functions.items() if n not in names})

    def with_attrs(self, **attrs: Any) -> IRModule:
        return replace(self, attrs={**self.attrs, **attrs})
