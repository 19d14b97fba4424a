"""The card's language: C with words of its own.

dpu_kernel void twice(const dpu_f32 *restrict a, dpu_f32 *restrict b)
{
    dpu_pad dpu_f32 tile[64];
    const int32_t g = (int32_t)dpu_group_x();
    const int32_t t = (int32_t)dpu_thread_x();
    tile[t] = a[g * 64 + t];
    dpu_join();
    b[g * 64 + t] = dpu_max(tile[t], tile[63 - t]);
}
"""

from __future__ import annotations

from dataclasses import replace

from dlc_backend_dpu.kind import DTYPES
from dlc_core.backend import LaunchCodegen
from dlc_core.backend.kernels import narrow_index
from dlc_core.ir.module import IRModule
from dlc_core.target import Target
from dlc_core.target.source import C99, Dialect, Kernels, Moves

FORMAT = "dpu-kernels"

NAMES = {"float32": "dpu_f32"}
AXES = {
    "block.x": "dpu_group_x()",
    "block.y": "dpu_group_y()",
    "thread.x": "dpu_thread_x()",
    "thread.y": "dpu_thread_y()",
}
KERNELS = Kernels(
    head="dpu_kernel void",
    axes=AXES,
    words={
        "barrier": "dpu_join()",
        "subgroup_shuffle": "dpu_from({0}, {1}, {2})",
        "subgroup_shuffle_down": "dpu_above({0}, {1}, {2})",
        "subgroup_shuffle_xor": "dpu_across({0}, {1}, {2})",
        "fma": "dpu_mad({0}, {1}, {2})",
    },
    moves=Moves(
        lanes=(4,),
        type="{scalar}_x4",
        make="dpu_pack({scalar}, {values})",
        lane=".at[{lane}]",
        load="dpu_get4({scalar}, {at})",
        store="dpu_put4({scalar}, {at}, {value})",
    ),
)


class DpuCodegen(LaunchCodegen):
    """Emits the artefact format "dpu-kernels"."""

    name = "dpu"
    kinds = ("dpu",)
    format = FORMAT
    forms = ("dpu",)

    def dialect(self, module: IRModule, target: Target) -> Dialect:
        """C, but for types, memory, threads and functions."""
        known = {name: text for name, text in C99.scalars.items() if name in (*DTYPES, "handle")}
        stored = {name: text for name, text in C99.stored.items() if name in known}
        return replace(
            C99,
            name="the dpu's C",
            scalars={**known, **NAMES},
            stored={**stored, **NAMES},
            index="int32_t" if narrow_index(module) else "int64_t",
            scopes={"local": "", "global": "", "shared": "dpu_pad"},
            headers=(),
            kernels=KERNELS,
        )


__all__ = ["AXES", "FORMAT", "DpuCodegen"]
