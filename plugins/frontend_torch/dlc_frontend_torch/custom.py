"""Custom operators of torch: a few lines of Python define how `namespace::operator` is imported.

    from dlc_core.op import std
    from dlc_frontend_torch.custom import operator

    @operator("acme::swish")                    # an overload: "acme::swish.scalar"
    def swish(c, x, beta=1.0):
        return std.mul(x, std.sigmoid(std.mul(x, c.const(beta, x.dtype))))

    dlc.compile(module, example_inputs=(x,), importers=[swish])

A plugin returns the same values from its hook `dlc_importers`; then every program may use the operators,
under torch.compile too. Custom importers take precedence over those of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dlc_core.diag import UsageError
from dlc_core.plugin.registry import registry
from dlc_core.support.record import record
from dlc_frontend_torch.registry import Converter


@record(frozen=True)
class Importer:
    """How one operator is imported; a declaration of the hook `dlc_importers`.

    `name` is "torch:namespace::operator.overload". `convert` makes the nodes from a `Call` and the operator's
    arguments; see `registry`.
    """

    name: str
    convert: Converter

    @property
    def overload(self) -> str:
        """The name of the overload as in an FX graph, "namespace.operator.overload"."""
        return self.name.removeprefix("torch:").replace("::", ".")


def operator(name: str) -> Callable[[Converter], Importer]:
    """Make an importer of a function. `name` is "namespace::operator", or with an overload
    "namespace::operator.overload". Raises UsageError for other names.
    """
    namespace, separator, rest = name.partition("::")
    if not separator or not namespace.isidentifier() or not all(map(str.isidentifier, rest.split("."))):
        raise UsageError(f"{name!r} names no operator of torch", hint='write "namespace::operator"')
    full = f"torch:{name}" if "." in rest else f"torch:{name}.default"
    return lambda convert: Importer(full, convert)


def importers_for(given: Iterable[Any] = ()) -> Mapping[str, Converter]:
    """Converters by overload: those of plugins, and the given importers, which take precedence.

    Raises UsageError for values that are not importers of torch's operators.
    """
    own = tuple(given)
    for each in own:
        if not isinstance(each, Importer):
            raise UsageError(
                f"{each!r} imports no operator of torch", hint="make importers by dlc_frontend_torch.custom"
            )
    known = [each for each in registry().importers.values() if isinstance(each, Importer)]
    return {each.overload: each.convert for each in (*known, *own)}


__all__ = ["Importer", "importers_for", "operator"]
