"""The card: memory, a queue and cycles of the core's simulation, which runs the emitted text itself.

For a real card `prepare_kernels` would call its compiler and `execute` its driver; everything else can stay.
"""

from __future__ import annotations

from dlc_backend_dpu.kind import GROUP_THREADS, PAD_BYTES
from dlc_backend_dpu.language import AXES, FORMAT
from dlc_core.backend import LaunchDevice, Spelling

_TYPES = ("dpu_f32", "double", *(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)))
_VECTORS = "\n".join(
    f"typedef struct {{ {name} at[4]; }} __attribute__((packed, may_alias)) {name}_x4;" for name in _TYPES
)


class DpuDevice(LaunchDevice):
    """The simulated card."""

    name = "dpu"
    formats = (FORMAT,)
    memory_bytes = 8 << 30
    group_threads = GROUP_THREADS
    group_bytes = PAD_BYTES
    spelling = Spelling(
        words={
            "dpu_kernel": "",
            "dpu_pad": "DLC_SHARED",
            "dpu_join()": "DLC_BARRIER()",
            AXES["block.x"]: "DLC_GROUP(0)",
            AXES["block.y"]: "DLC_GROUP(1)",
            AXES["thread.x"]: "DLC_THREAD(0)",
            AXES["thread.y"]: "DLC_THREAD(1)",
            "dpu_from": "DLC_SHUFFLE",
            "dpu_above": "DLC_SHUFFLE_DOWN",
            "dpu_across": "DLC_SHUFFLE_XOR",
            "dpu_mad": "fmaf",
            "dpu_pack(type, ...)": "((type##_x4){{__VA_ARGS__}})",
            "dpu_get4(type, p)": "(*(const type##_x4 *)(p))",
            "dpu_put4(type, p, v)": "(*(type##_x4 *)(p) = (v))",
        },
        text=f"typedef float dpu_f32;\n{_VECTORS}",
        shared="dpu_pad",
    )


__all__ = ["DpuDevice"]
