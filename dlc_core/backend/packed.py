"""The calling convention of emitted sources.

Each entry point is a function

    int32_t <name>__entry(void *const *buffers, const int64_t *scalars, int32_t threads)

on the addresses of its buffers and the values of its integers, in the order of its parameters.  The result is
0.
"""

ENTRY_SUFFIX = "__entry"

FLAGS = "flags"
"""Where an artefact's metadata has the options of the compiler."""

CYCLES = "cycles"
"""Where it has the estimated cycles of each entry."""

__all__ = ["CYCLES", "ENTRY_SUFFIX", "FLAGS"]
