"""The calling convention of emitted sources.

Each entry point is a function

    int32_t <name>__entry(void *const *buffers, const int64_t *scalars, int32_t threads)

It gets the addresses of the buffers and the values of the integers, in the order of its parameters. It
returns 0.
"""

ENTRY_SUFFIX = "__entry"

CYCLES = "cycles"
"""The key for the estimated cycles of each entry point."""

__all__ = ["CYCLES", "ENTRY_SUFFIX"]
