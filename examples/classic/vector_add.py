"""Vector addition: te, a schedule by stages, the loops, and the same program on CPU and OpenCL."""

import numpy as np

import dlc_core as dlc
from dlc_core import te

n = te.var("n")
A = te.placeholder((n,), name="A")
B = te.placeholder((n,), name="B")
C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")

s = te.create_schedule(C.op)
outer, inner = s[C].split(C.op.axis[0], factor=64)
s[C].parallel(outer)
s[C].vectorize(inner)
print(dlc.lower(s, [A, B, C], name="vector_add").script())
add = dlc.build(s, [A, B, C], target="llvm")

a, b = np.arange(1024, dtype=np.float32), np.ones(1024, np.float32)
c = np.empty_like(a)
add(a, b, c)  # destination passing: the result is in c
np.testing.assert_array_equal(c, a + b)
print(add.time_evaluator(number=10, repeat=3)(a, b))

if dlc.targets()["opencl"].problem():
    print("OpenCL: left out, because", dlc.targets()["opencl"].problem())
else:
    s = te.create_schedule(C.op)
    group, thread = s[C].split(C.op.axis[0], factor=64)
    s[C].bind(group, te.thread_axis("blockIdx.x"))
    s[C].bind(thread, te.thread_axis("threadIdx.x"))
    np.testing.assert_array_equal(dlc.build(s, [A, B, C], target="opencl")(a, b), a + b)
    print("OpenCL: equal")
