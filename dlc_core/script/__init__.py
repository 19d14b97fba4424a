"""Python text of both levels: printing (`script`, `show`), parsing (`parse`), `@T.prim_func` in Python files,
and JSON."""

from dlc_core.script.difference import difference
from dlc_core.script.json import from_json, to_json
from dlc_core.script.namespace import G, T, ir_module
from dlc_core.script.parser import parse
from dlc_core.script.printer import Script, excerpt, script, show, to_script

__all__ = [
    "G",
    "Script",
    "T",
    "difference",
    "excerpt",
    "from_json",
    "ir_module",
    "parse",
    "script",
    "show",
    "to_json",
    "to_script",
]
