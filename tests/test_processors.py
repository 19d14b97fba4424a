"""The kernels of networks on several processors: hot loops neither spill nor compute with narrow vectors."""

from __future__ import annotations

import pytest
from onnx import parser

from benchmarks.corpus import processors
from benchmarks.corpus.__main__ import main
from dlc_core.driver import find_target

NETWORK = """
<ir_version: 10, opset_import: ["" : 20]>
g (float[1, 32, 28, 28] x, float[32, 32, 3, 3] k, float[64, 32, 1, 1] p, float[32, 1, 3, 3] d,
   float[64, 96] w) => (float[784, 96] y) {
    a = Conv <pads = [1, 1, 1, 1]> (x, k)
    b = Relu (a)
    c = Conv <pads = [1, 1, 1, 1], group = 32> (b, d)
    e = Clip (c)
    f = Conv (e, p)
    shape = Constant <value_ints = [784, 64]> ()
    g = Reshape (f, shape)
    h = MatMul (g, w)
    y = Softmax (h)
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("models")
    (made / "net.onnx").write_bytes(parser.parse_model(NETWORK).SerializeToString())
    return made


@pytest.mark.parametrize("name", processors.PROCESSORS)
def test_hot_loops(folder, name):
    kernels = processors.kernels_of(folder / "net.onnx", name)
    products = [kernel for kernel in kernels if kernel.products]
    assert len(products) >= 3
    assert all(kernel.width == 1 for kernel in products)
    # A few accumulators more than registers cost a store and a load beside a dozen of multiply-adds.
    assert all(kernel.spills <= kernel.products / 6 for kernel in products), products
    assert not any(kernel.scalar for kernel in kernels)


SPILLING = """\tvfmadd231ps\t(%rax), %zmm1, %zmm2
\tvfmadd231ps\t64(%rax), %ymm1, %ymm3
\tvfmadd231ps\t(%rsp), %zmm1, %zmm4
\tvmovaps\t%zmm4, 64(%rsp)
\tvfmadd231ps\t%zmm0, %zmm1, %zmm5
"""


def test_problems_of_a_loop_are_found():
    target = find_target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")
    text = f".LBB0_1:\n{SPILLING}\taddq\t$64, %rax\n\tjne\t.LBB0_1\n"
    found = processors.judged("m", "f", "cpu.contraction", text, target)
    assert (found.products, found.spills, found.width) == (4, 1, 0.75)
    assert found.problems[:2] == [
        "1 stores to the stack beside 4 multiply-adds",
        "25% of the multiply-adds are narrow",
    ]
    scalar = ".LBB0_1:\n" + "\tvmulss\t%xmm0, %xmm1, %xmm1\n" * 5 + "\tjne\t.LBB0_1\n"
    assert processors.judged("m", "f", "cpu.loops", scalar, target).problems == ["scalar arithmetic"]


def test_command(folder, capsys):
    assert main(["processors", str(folder), "--processors", "Haswell,Neoverse N1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("Haswell")
    assert lines[2].startswith("Neoverse N1")
    with pytest.raises(SystemExit, match="no processor 'Haswel'"):
        main(["processors", str(folder), "--processors", "Haswel"])
