"""Foreign functions: functions outside of dlc that tensor programs and graphs call by name.

declare      `ForeignFunction` and its implementations: C symbols, Python callables, texts in a language
prototype    signatures as text
lookup       all functions by name
calls        calls in tensor programs: their checks, and the implementation that a code generator takes
trampoline   Python functions as C functions, and their errors
resolve      addresses and Python functions for this process
"""

from __future__ import annotations

from dlc_core.foreign.declare import CSymbol, ForeignFunction, PythonCallable, Source
from dlc_core.foreign.lookup import (
    find_foreign,
    foreign_functions,
    get_foreign,
    register_foreign,
    unregister_foreign,
)

__all__ = [
    "CSymbol",
    "ForeignFunction",
    "PythonCallable",
    "Source",
    "find_foreign",
    "foreign_functions",
    "get_foreign",
    "register_foreign",
    "unregister_foreign",
]
