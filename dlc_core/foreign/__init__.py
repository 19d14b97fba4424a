"""Foreign functions: functions outside of dlc that tensor programs and graphs call by name.

declare      `ForeignFunction` and its implementations: C symbols, Python callables, texts in a language
prototype    signatures as text
lookup       all functions by name
calls        calls in tensor programs: their checks, and the implementation that a code generator takes
needed       the functions that an artefact needs
trampoline   Python functions as C functions, and their errors
resolve      addresses and Python functions for this process
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlc_core.support.lazy import names_of

if TYPE_CHECKING:
    from dlc_core.foreign.declare import CSymbol as CSymbol
    from dlc_core.foreign.declare import ForeignFunction as ForeignFunction
    from dlc_core.foreign.declare import PythonCallable as PythonCallable
    from dlc_core.foreign.declare import Source as Source
    from dlc_core.foreign.lookup import find_foreign as find_foreign
    from dlc_core.foreign.lookup import foreign_functions as foreign_functions
    from dlc_core.foreign.lookup import get_foreign as get_foreign
    from dlc_core.foreign.lookup import register_foreign as register_foreign
    from dlc_core.foreign.lookup import unregister_foreign as unregister_foreign
else:
    # The registry of plugins imports `lookup`, which every command of the command line waits for.
    __getattr__, __dir__ = names_of(
        __name__,
        {
            "declare": "CSymbol ForeignFunction PythonCallable Source",
            "lookup": "find_foreign foreign_functions get_foreign register_foreign unregister_foreign",
        },
    )
