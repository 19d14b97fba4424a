"""Python text of both levels: printing (`script`, `show`), parsing (`parse`), `@T.prim_func` in Python files,
and JSON."""

from typing import TYPE_CHECKING

from dlc_core.script.difference import difference
from dlc_core.support.lazy import names_of

if TYPE_CHECKING:
    from dlc_core.script.json import from_json as from_json
    from dlc_core.script.json import reduced as reduced
    from dlc_core.script.json import to_json as to_json
    from dlc_core.script.namespace import G as G
    from dlc_core.script.namespace import T as T
    from dlc_core.script.namespace import ir_module as ir_module
    from dlc_core.script.namespace import module as module
    from dlc_core.script.parser import parse as parse
    from dlc_core.script.printer import Script as Script
    from dlc_core.script.printer import excerpt as excerpt
    from dlc_core.script.printer import script as script
    from dlc_core.script.printer import show as show
    from dlc_core.script.printer import to_script as to_script
else:
    __getattr__, __dir__ = names_of(
        __name__,
        {
            "json": "from_json reduced to_json",
            "namespace": "G T ir_module module",
            "parser": "parse",
            "printer": "Script excerpt script show to_script",
        },
    )

__all__ = [
    "G",
    "Script",
    "T",
    "difference",
    "excerpt",
    "from_json",
    "ir_module",
    "module",
    "parse",
    "reduced",
    "script",
    "show",
    "to_json",
    "to_script",
]
