"""A simulated device with thread axes, its language and its target kind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc_core.backend import LaunchCodegen, LaunchDevice, Spelling
from dlc_core.backend.kernels import narrow_index
from dlc_core.hooks import hookimpl
from dlc_core.plugin.registry import fresh_registry
from dlc_core.target import COMPUTED, Description, Option, TargetKind
from dlc_core.target.source import C99, Kernels, Moves

AXES = {
    f"{level}.{d}": f"{word}({i})"
    for i, d in enumerate("xyz")
    for level, word in (("block", "tile_of"), ("thread", "lane_of"))
}


class Codegen(LaunchCodegen):
    name, kinds, format = "card", ("card",), "card-text"

    def dialect(self, module, target):
        return replace(
            C99,
            name="card",
            inline="static inline",
            index="int32_t" if narrow_index(module) else "int64_t",
            scopes={"local": "", "global": "", "shared": "pool"},
            headers=(),
            kernels=Kernels(
                head="task void",
                axes=AXES,
                words={
                    "barrier": "meet()",
                    "subgroup_shuffle": "from_lane({0}, {1}, {2})",
                    "subgroup_shuffle_down": "from_above({0}, {1}, {2})",
                    "subgroup_shuffle_xor": "from_other({0}, {1}, {2})",
                    "extern.tally": "tally({0}, {1})",
                },
                moves=Moves(
                    (4,),
                    "{scalar}_4",
                    "make_{type}({values})",
                    ".v[{lane}]",
                    "*(const {type} *)({at})",
                    "*({type} *)({at}) = {value}",
                ),
            ),
        )


class Device(LaunchDevice):
    name, formats = "card", ("card-text",)
    group_threads, group_bytes = 256, 16 << 10
    spelling = Spelling(
        words={
            "task": "",
            "pool": "DLC_SHARED",
            "meet()": "DLC_BARRIER()",
            "tile_of(d)": "DLC_GROUP(d)",
            "lane_of(d)": "DLC_THREAD(d)",
            "from_lane": "DLC_SHUFFLE",
            "from_above": "DLC_SHUFFLE_DOWN",
            "from_other": "DLC_SHUFFLE_XOR",
            "tally": "DLC_ATOMIC_ADD",
        },
        text="\n".join(
            f"typedef struct {{ {t} v[4]; }} __attribute__((packed, may_alias)) {t}_4;\n"
            f"#define make_{t}_4(...) (({t}_4){{{{__VA_ARGS__}}}})"
            for t in ("float", "double", *(f"{s}int{b}_t" for s in ("", "u") for b in (8, 16, 32, 64)))
        ),
        shared="pool",
    )


def describe(options):
    return Description(
        parallel=False,
        dtypes=COMPUTED,
        memory_scopes=("global", "local", "shared"),
        thread_axes={
            "block.x": 1 << 30,
            "block.y": 1 << 16,
            "block.z": 1 << 16,
            "thread.x": 256,
            "thread.y": 256,
            "thread.z": 64,
        },
        group_threads=256,
        shared_bytes=16 << 10,
        cores=4,
    )


class Plugin:
    DLC_API = "0.1"

    @hookimpl
    def dlc_targets(self):
        options = (Option("check", "bool", False, "whether the simulation checks accesses"),)
        return [TargetKind("card", "a card of threads", "card", "card", options, describe)]

    @hookimpl
    def dlc_codegens(self):
        return [Codegen()]

    @hookimpl
    def dlc_devices(self):
        return [Device()]


@pytest.fixture(scope="module")
def card():
    """Register the target `card`, and return its code generator."""
    with fresh_registry({"card": Plugin()}):
        yield Codegen()
