"""The frontend for portable models: `dlc.load` and `dlc.compile` take them like any other model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_core.support.lazy import lazy
from dlc_core.support.record import record

if TYPE_CHECKING:
    from dlc_core.driver.portable import form
    from dlc_core.graph import resize
else:
    form = lazy("dlc_core.driver.portable.form")
    resize = lazy("dlc_core.graph.resize")


@record(frozen=True)
class PortableFrontend:
    """Reads `.dlc` files in portable form, and the values that `read_portable` returns."""

    name: str = "portable"
    suffixes: tuple[str, ...] = (".dlc",)
    help: str = "portable models: graphs and weights in a .dlc file"
    options: tuple[str, ...] = ("shapes",)

    def load(self, model: Any, context: Mapping[str, Any] | None = None) -> Any:
        """The model as an `IRModule`. Raises a DlcError for a file that is damaged or breaks a rule."""
        return resize.with_shapes(_read(model).module(), dict((context or {}).get("shapes", {})))

    def digest(self, model: Any, context: Mapping[str, Any] | None = None) -> str | None:
        """The checksum of the file's header, which has those of its contents."""
        del context
        return _read(model).digest

    def accepts(self, model: Any) -> bool:
        """Whether `load` takes this in-memory value."""
        return isinstance(model, form.PortableModel)


def _read(model: Any) -> form.PortableModel:
    if isinstance(model, (str, os.PathLike)):
        return form.read_portable(Path(model))
    found: form.PortableModel = model
    return found


PORTABLE = PortableFrontend()

__all__ = ["PORTABLE", "PortableFrontend"]
