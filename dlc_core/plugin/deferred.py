"""Imports of plugins' declarations."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from dlc_core.diag import PluginError
from dlc_core.hooks import Deferred
from dlc_core.plugin.categories import check_declaration
from dlc_core.support.lazy import is_imported, lazy

if TYPE_CHECKING:
    from dlc_core import cancel
else:
    cancel = lazy("dlc_core.cancel")


def without_token() -> AbstractContextManager[None]:
    """A context without a cancel token: a plugin that fails to load stays broken. If tokens are not imported,
    there is none.
    """
    return cancel.shielded() if is_imported(cancel.__name__) else nullcontext()


def load_deferred(category: str, deferred: Deferred) -> Any:
    """Import a deferred declaration. Raises PluginError if it is not what was announced; exceptions of the
    import pass through."""
    with without_token():
        found = deferred.load()
    for attribute, announced in {"name": deferred.name, **deferred.known}.items():
        value = getattr(found, attribute, None)
        if value != announced:
            raise PluginError(
                f"{deferred.entry} differs from the announced {deferred.name!r}",
                why=f"its {attribute} is {value!r}, not {announced!r}",
            )
    check_declaration(category, found)
    return found


__all__ = ["load_deferred", "without_token"]
