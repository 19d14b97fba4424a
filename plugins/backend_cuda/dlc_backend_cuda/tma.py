"""Tensor copies (TMA) to shared memory, issued by one thread. Barriers in shared memory count the bytes that
arrive.

[1] PTX ISA, "cp.async.bulk.tensor", "mbarrier"; CUDA Driver API, "Tensor Map Object Management".
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

from dlc_backend_cuda.graphs import library
from dlc_backend_cuda.polyfills import INLINE, STAGES, either
from dlc_core.backend.launches import MOST_DIMS, Tensor
from dlc_core.diag import RuntimeFailure
from dlc_core.target.source import TensorCopies

COPIES = TensorCopies(STAGES, "__shared__ __align__(8) uint64_t {barriers}[{count}]")
MAP_BYTES = 128
_KINDS = {1: 0, 2: 1, 4: 2, 8: 4}
"""The driver's codes of unsigned integer types, by bytes. They copy bits unchanged [1]."""
_SWIZZLE_128, _PROMOTE_256 = 3, 3
_GIVEN = ", int bytes, void *to, const dlc_tensor *tensor"


def _word(name: str, given: str, own: str, here: str, first: str = "") -> dict[str, str]:
    head = f"{INLINE} void {name}(uint64_t *barrier{given})"
    at = "const unsigned at = (unsigned)__cvta_generic_to_shared(barrier);\n"
    return {name: either(head, f"{at}{first}{own}", f"{first}{here}")}


def _copy(rank: int) -> dict[str, str]:
    coordinates, numbers = (", ".join(f"{sign}{i}" for i in range(3, rank + 3)) for sign in ("%", "c"))
    how = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
    ints, given = (", ".join(form.format(i) for i in range(3, rank + 3)) for form in ("int c{}", '"r"(c{})'))
    own = f"""asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" :: "r"(at), "r"(bytes));
asm volatile("{how} [%0], [%1, {{{coordinates}}}], [%2];"
    :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(tensor), "r"(at), {given} : "memory");"""
    here = f"DLC_TENSOR_BARRIER_EXPECT(barrier, bytes);\n    DLC_TENSOR_COPY(to, tensor, barrier, {numbers});"
    return _word(f"dlc_tensor_copy_{rank}", f"{_GIVEN}, {ints}", own, here)


_FIRST = "if (threadIdx.x + threadIdx.y + threadIdx.z == 0)\n    "
_BEGIN = """for (int i = 0; i < count; ++i)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at + 8 * i) : "memory");
asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
__syncthreads();"""
_BEGIN_HERE = "DLC_TENSOR_BARRIERS_INIT(barrier, count);\n    __syncthreads();"
_ARRIVE = 'asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at) : "memory");'
_TRY = "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
_WAIT = f"""unsigned done;
do asm volatile("{_TRY}" : "=r"(done) : "r"(at), "r"(parity) : "memory"); while (!done);"""
WORDS = {
    "dlc_tensor": "#ifdef __CUDACC__\nstruct __align__(64) dlc_tensor { uint64_t words[16]; };\n#endif\n",
    **_word("dlc_init_tensor_barriers", ", int count", _BEGIN, _BEGIN_HERE, _FIRST),
    **{name: text for rank in range(1, MOST_DIMS + 1) for name, text in _copy(rank).items()},
    **_word("dlc_commit_tensor_copies", "", _ARRIVE, "DLC_TENSOR_BARRIER_ARRIVE(barrier);", _FIRST),
    **_word("dlc_wait_for_tensor_copies", ", int parity", _WAIT, "DLC_TENSOR_BARRIER_WAIT(barrier, parity);"),
}  # fmt: skip
"""The definitions of the functions that `TensorCopies` uses, by name."""


@lru_cache(maxsize=1024)
def tensor_map(address: int, tensor: Tensor) -> bytes:
    """The tensor map of a tensor at an address: an argument of kernels. Raises RuntimeFailure if the driver
    refuses it [1].
    """
    rank, size = len(tensor.box), tensor.itemsize
    storage = (ctypes.c_uint8 * (2 * MAP_BYTES))()
    made = (ctypes.c_uint8 * MAP_BYTES).from_buffer(storage, -ctypes.addressof(storage) % MAP_BYTES)
    dims, strides = (ctypes.c_uint64 * rank)(*tensor.dims[::-1]), [n * size for n in tensor.strides[-2::-1]]
    box, ones = ((ctypes.c_uint32 * rank)(*each) for each in (tensor.box[::-1], [1] * rank))
    where = ctypes.c_void_p(address), dims, (ctypes.c_uint64 * rank)(*strides), box, ones
    swizzle = _SWIZZLE_128 if tensor.swizzled else 0
    status = library().cuTensorMapEncodeTiled(made, _KINDS[size], rank, *where, 0, swizzle, _PROMOTE_256, 0)
    if status:
        raise RuntimeFailure("the CUDA driver has no tensor copies", why=f"{tensor}: {status}")
    return bytes(made)


__all__ = ["COPIES", "MAP_BYTES", "WORDS", "tensor_map"]
