"""How checks of running code report: the first that fails leaves its code, which the entry returns.

    @FAIL(i64 code, i64 index, i64 extent)

Threads do not stop for it.  Of calls of one loaded object that fail at the same time, one may report for
another: checks are for debugging.
"""

from __future__ import annotations

FAIL = "dlc.fail"
FAILURE = "dlc_failure"
"""The symbol of three i64: the code of the first check that failed, or 0; the numbers that it has seen."""

FAILURE_IR = f"""
@{FAILURE} = weak global [3 x i64] zeroinitializer, align 8
define internal void @{FAIL}(i64 %code, i64 %index, i64 %extent) nounwind noinline cold {{
  %result = cmpxchg ptr @{FAILURE}, i64 0, i64 %code seq_cst seq_cst
  %first = extractvalue {{ i64, i1 }} %result, 1
  br i1 %first, label %tell, label %done
tell:
  %index_at = getelementptr i64, ptr @{FAILURE}, i64 1
  store i64 %index, ptr %index_at, align 8
  %extent_at = getelementptr i64, ptr @{FAILURE}, i64 2
  store i64 %extent, ptr %extent_at, align 8
  br label %done
done:
  ret void
}}
"""

STATUS_IR = [
    f"  %failed = atomicrmw xchg ptr @{FAILURE}, i64 0 seq_cst",
    "  %status = trunc i64 %failed to i32",
    "  ret i32 %status",
]
"""The end of an entry of code with checks: its status, which is forgotten with it."""

__all__ = ["FAIL", "FAILURE", "FAILURE_IR", "STATUS_IR"]
