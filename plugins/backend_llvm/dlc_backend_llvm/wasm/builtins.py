"""Functions that LLVM's code for WebAssembly calls, because it has no instructions for them.

    builtins_object(triple, cpu, features) -> bytes      an object that defines all of them

Other linkers take these from compiler-rt and the C library, which a module without a system has not.
"""

from __future__ import annotations

from functools import lru_cache

from dlc_backend_llvm.engine import compile_ir

_TEXT = """
define hidden void @__multi3(ptr %out, i64 %al, i64 %ah, i64 %bl, i64 %bh) nounwind {
  %a0 = and i64 %al, 4294967295
  %a1 = lshr i64 %al, 32
  %b0 = and i64 %bl, 4294967295
  %b1 = lshr i64 %bl, 32
  %p00 = mul i64 %a0, %b0
  %p01 = mul i64 %a0, %b1
  %p10 = mul i64 %a1, %b0
  %p11 = mul i64 %a1, %b1
  %carry = lshr i64 %p00, 32
  %low01 = and i64 %p01, 4294967295
  %low10 = and i64 %p10, 4294967295
  %sum = add i64 %carry, %low01
  %middle = add i64 %sum, %low10
  %low00 = and i64 %p00, 4294967295
  %shifted = shl i64 %middle, 32
  %low = or i64 %low00, %shifted
  %high01 = lshr i64 %p01, 32
  %high10 = lshr i64 %p10, 32
  %over = lshr i64 %middle, 32
  %h1 = add i64 %p11, %high01
  %h2 = add i64 %h1, %high10
  %h3 = add i64 %h2, %over
  %cross1 = mul i64 %al, %bh
  %cross2 = mul i64 %ah, %bl
  %h4 = add i64 %h3, %cross1
  %high = add i64 %h4, %cross2
  store i64 %low, ptr %out, align 8
  %at = getelementptr i8, ptr %out, i32 8
  store i64 %high, ptr %at, align 8
  ret void
}
define hidden ptr @memcpy(ptr %to, ptr %from, i32 %n) nounwind {
  %none = icmp eq i32 %n, 0
  br i1 %none, label %end, label %loop
loop:
  %i = phi i32 [0, %0], [%j, %loop]
  %p = getelementptr i8, ptr %from, i32 %i
  %q = getelementptr i8, ptr %to, i32 %i
  %byte = load i8, ptr %p, align 1
  store i8 %byte, ptr %q, align 1
  %j = add i32 %i, 1
  %more = icmp ult i32 %j, %n
  br i1 %more, label %loop, label %end
end:
  ret ptr %to
}
define hidden ptr @memset(ptr %to, i32 %value, i32 %n) nounwind {
  %byte = trunc i32 %value to i8
  %none = icmp eq i32 %n, 0
  br i1 %none, label %end, label %loop
loop:
  %i = phi i32 [0, %0], [%j, %loop]
  %q = getelementptr i8, ptr %to, i32 %i
  store i8 %byte, ptr %q, align 1
  %j = add i32 %i, 1
  %more = icmp ult i32 %j, %n
  br i1 %more, label %loop, label %end
end:
  ret ptr %to
}
"""
"""Multiplication of 128-bit integers, whose result is in memory; copies and fills of machines without bulk
memory.
"""


@lru_cache(maxsize=8)
def builtins_object(triple: str, cpu: str, features: str) -> bytes:
    """The object of all functions. The linker drops those that are not called."""
    return compile_ir(_TEXT, triple, cpu, features)


__all__ = ["builtins_object"]
