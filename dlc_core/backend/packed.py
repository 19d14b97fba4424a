"""What emitted sources and those who call them agree on.

Each entry point is a function

    int32_t <name>__entry(void *const *buffers, const int64_t *scalars, int32_t threads)

on the addresses of its buffers and the values of its integers, in the order of its parameters.  The result is
0, or the code of a check that failed where the module is checked.
"""

ENTRY_SUFFIX = "__entry"

FAILURE = "dlc_failure"
"""The symbol of three int64_t: the code of the first check that failed, or 0; the numbers it has seen."""

FLAGS = "flags"
"""Where an artefact's metadata has the options of the compiler."""

CYCLES = "cycles"
"""Where it has the estimated cycles of each entry."""

__all__ = ["CYCLES", "ENTRY_SUFFIX", "FAILURE", "FLAGS"]
