"""Joined object files: calls between objects, local names, and objects that cannot be joined."""

from __future__ import annotations

import ctypes
import random

import pytest
from dlc_backend_llvm.elf import read_elf
from dlc_backend_llvm.engine import compile_ir, engine
from dlc_backend_llvm.joining import Part, join_objects
from dlc_backend_llvm.mapping import map_object
from dlc_backend_llvm.objects import read_object

from dlc_core.diag import ArtifactError, CodegenError

KERNEL = """
@table = internal constant [4 x i64] [i64 NUMBER, i64 20, i64 30, i64 40], align 32
define internal i64 @kernel.part(i64 %i) nounwind noinline {
  %p = getelementptr [4 x i64], ptr @table, i64 0, i64 %i
  %v = load i64, ptr %p
  ret i64 %v
}
define hidden i64 @kernel(i64 %i) nounwind {
  %v = call i64 @kernel.part(i64 %i)
  ret i64 %v
}
"""
MAIN = """
declare hidden i64 @first(i64)
declare hidden i64 @second(i64)
declare i64 @labs(i64)
define i64 @main__entry(i64 %i) nounwind {
  %a = call i64 @first(i64 %i)
  %b = call i64 @second(i64 %i)
  %c = mul i64 %a, 1000
  %d = sub i64 %b, %c
  %e = call i64 @labs(i64 %d)
  ret i64 %e
}
"""


def parts(triple: str = "") -> list[Part]:
    kernels = [compile_ir(KERNEL.replace("NUMBER", number), triple) for number in ("1", "2")]
    main = Part(compile_ir(MAIN, triple))
    return [main, Part(kernels[0], "kernel", "first"), Part(kernels[1], "kernel", "second")]


def joined(triple: str = "") -> bytes:
    data = join_objects(parts(triple))
    assert data is not None
    return data


@pytest.mark.parametrize("triple", ["x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu"])
def test_kernels_become_local_and_keep_their_names(triple: str) -> None:
    data = joined(triple)
    info = read_object(data)
    assert (info.defined, info.undefined) == (("main__entry",), ("labs",))
    elf = read_elf(data)
    assert elf is not None
    names = [symbol.name for symbol in elf.symbols if symbol.name]
    for name in ("first", "second", "first.part", "second.part"):
        assert names.count(name) == 1
    assert not any(name.startswith("kernel") for name in names)
    assert read_object(parts(triple)[0].data).machine == info.machine


@pytest.mark.parametrize("load", ["mapped", "by LLVM"])
def test_calls_between_objects(load: str) -> None:
    loaded = map_object(joined()) if load == "mapped" else engine().load(joined())
    if loaded is None:
        pytest.skip("objects of this machine are loaded by LLVM")
    entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address("main__entry"))
    assert [entry(i) for i in range(4)] == [998, 19980, 29970, 39960]


def test_the_number_of_sections_does_not_depend_on_the_number_of_kernels() -> None:
    main, *kernels = parts()
    few, many = ([Part(kernels[i % 2].data, "kernel", f"k{i}") for i in range(n)] for n in (2, 400))
    few_sections, many_sections = (
        read_elf(join_objects([main, *kernels, *more]) or b"") for more in (few, many)
    )
    assert few_sections is not None
    assert many_sections is not None
    assert len(few_sections.sections) == len(many_sections.sections) < 16


def test_each_object_keeps_its_constants_and_variables() -> None:
    """Data of several alignments, zeros and tables of addresses, linked by the system's linker."""
    text = """
    @zeros = internal global [NUMBER x i64] zeroinitializer, align 64
    @odd = internal constant [3 x i8] c"\\01\\02\\0NUMBER"
    @far = internal constant [1 x ptr] [ptr @odd], align 8
    define hidden i64 @kernel(i64 %i) nounwind {
      %p = getelementptr [NUMBER x i64], ptr @zeros, i64 0, i64 1
      %z = load i64, ptr %p
      %n = add i64 %z, %i
      store i64 %n, ptr %p
      %t = load ptr, ptr @far
      %q = getelementptr i8, ptr %t, i64 2
      %b = load i8, ptr %q
      %w = zext i8 %b to i64
      %r = add i64 %n, %w
      ret i64 %r
    }"""
    made = [compile_ir(text.replace("NUMBER", number)) for number in ("3", "5")]
    main = Part(compile_ir(MAIN.replace("mul i64 %a, 1000", "mul i64 %a, 10")))
    data = join_objects([main, Part(made[0], "kernel", "first"), Part(made[1], "kernel", "second")])
    assert data is not None
    for loaded in (map_object(data), engine().load(data)):
        if loaded is None:
            continue  # objects of this machine are loaded by LLVM
        entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address("main__entry"))
        # The sums of the arguments so far are 2 and 7: |(s + 5) - 10 (s + 3)|.
        assert [entry(2), entry(5)] == [43, 88]


def test_one_object_is_unchanged() -> None:
    one = Part(compile_ir(KERNEL.replace("NUMBER", "1").replace("hidden", "")))
    data = join_objects([one])
    assert data is not None
    assert read_object(data) == read_object(one.data)
    assert join_objects([Part(data)]) == data


def test_the_same_objects_give_the_same_bytes() -> None:
    assert joined() == joined()


def test_objects_that_cannot_be_joined() -> None:
    text = KERNEL.replace("NUMBER", "1")
    for triple in ("arm64-apple-darwin", "x86_64-pc-windows-msvc", "arm-linux-gnueabihf"):
        assert join_objects([Part(compile_ir(text, triple))]) is None
    mixed = [Part(compile_ir(text, f"{arch}-linux-gnu")) for arch in ("x86_64", "aarch64")]
    assert join_objects(mixed) is None
    assert join_objects([Part(compile_ir("define i64 @f() { ret i64 1 }", "x86_64-linux-gnu"))]) is None
    comdat = "$f = comdat any\ndefine linkonce_odr i64 @f() nounwind comdat { ret i64 1 }\n"
    kept = "@llvm.used = appending global [1 x ptr] [ptr @f]"
    assert join_objects([Part(compile_ir(comdat + kept, "x86_64-linux-gnu"))]) is None
    assert join_objects([]) is None


def test_two_definitions_of_a_name() -> None:
    one = Part(compile_ir("define i64 @f() nounwind { ret i64 1 }"))
    with pytest.raises(CodegenError, match="two object files define 'f'"):
        join_objects([one, one])


def test_damaged_objects_are_errors() -> None:
    rng = random.Random(0)
    whole = parts("x86_64-linux-gnu")
    for _ in range(300):
        data = bytearray(whole[1].data[: rng.randrange(1, len(whole[1].data) + 1)])
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            join_objects([whole[0], Part(bytes(data), "kernel", "first"), whole[2]])
        except (ArtifactError, CodegenError):
            continue
