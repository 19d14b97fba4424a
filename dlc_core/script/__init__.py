"""Both levels as Python text: `script(value)`, `show(value)`, and `parse(text)` back."""

from dlc_core.script.printer import Script, excerpt, script, show, to_script

__all__ = ["Script", "excerpt", "script", "show", "to_script"]
