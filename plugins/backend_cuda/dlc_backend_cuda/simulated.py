"""The device `cuda_simulated`, which runs CUDA C on the CPU by the core's simulator of threads.

It needs neither a driver nor a CUDA compiler: with macros for the words of CUDA, the text is valid C.
"""

from __future__ import annotations

from dlc_backend_cuda.codegen import CODEGEN, TEXT
from dlc_core.backend import LaunchDevice, Spelling

_WORDS = {
    "__global__": "",
    "__device__": "",
    "__grid_constant__": "",
    "__forceinline__": "inline",
    "__shared__": "DLC_SHARED",
    "__launch_bounds__(threads)": "",
    "__align__(size)": "__attribute__((aligned(size), may_alias))",
    "blockIdx": "((struct dlc_index){DLC_GROUP(0), DLC_GROUP(1), DLC_GROUP(2)})",
    "threadIdx": "((struct dlc_index){DLC_THREAD(0), DLC_THREAD(1), DLC_THREAD(2)})",
    "__syncthreads()": "DLC_BARRIER()",
    "__shfl_sync(mask, x, number, width)": "DLC_SHUFFLE(x, number, width)",
    "__shfl_down_sync(mask, x, delta, width)": "DLC_SHUFFLE_DOWN(x, delta, width)",
    "__shfl_xor_sync(mask, x, bits, width)": "DLC_SHUFFLE_XOR(x, bits, width)",
}


class SimulatedCuda(LaunchDevice):
    """The simulated CUDA device."""

    name = "cuda_simulated"
    formats = (TEXT,)
    source_formats = CODEGEN.source_formats
    spelling = Spelling(_WORDS, text="struct dlc_index { int64_t x, y, z; };", shared="__shared__")


DEVICE = SimulatedCuda()

__all__ = ["DEVICE", "SimulatedCuda"]
