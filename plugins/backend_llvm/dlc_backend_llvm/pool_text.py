"""The thread pool as LLVM IR text; `pool.py` has its interface.

How it works.  A job's ranges are shared out before it is published: thread p of t has those from p/t to
(p + 1)/t, so that in kernel after kernel a thread meets its own part of the data.  A share is one 64-bit word
(generation | end | next range) in a cache line of its own; its thread takes ranges from the front, threads
that have finished theirs take from the end.  All claims are a compare-and-swap on that word, so that one can
only succeed while the job it was read for has a range left, hence is the current one, and what was read of
the job before is its own.  The job is published by storing its generation.  Each thread adds what it did to
`done` once; the caller waits for it.  Workers are made when first needed.  An idle worker spins for about
100 us and then sleeps in a futex on the generation; a worker beyond the current job's thread count sleeps on
that count.  A forked child finds another process id, forgets the workers it does not have, and makes new
ones.

Linkage.  State is internal, functions are weak: objects that each hold this text link into one library, and
then use one pool; a library that holds it must never be unmapped (`link_shared` marks it `nodelete`) since
its workers sleep in it. On systems other than Linux, and where an address has 32 bits, the text is a serial
`dlc_parallel_for` with the same interface.
"""

from __future__ import annotations

from dlc_backend_llvm.triples import normal_arch
from dlc_core.diag import UnsupportedError

SYMBOLS = ("dlc_parallel_for", "dlc_pool_set_num_threads", "dlc_pool_get_num_threads")

_FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_MOST_THREADS = 1024
_FAULTS = (4, 5, 7, 8, 11)
"""SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV: workers block all signals but these, which a thread gets for what
it does itself, so that handlers of the process see them."""
_PAUSE = {
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.hint(i32 1)",
    "riscv64": 'fence syncscope("singlethread") acq_rel',
}

_SERIAL = """
define weak i32 @dlc_parallel_for(ptr %body, ptr %closure, i64 %n, i32 %threads) nounwind {
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %run, label %end
run:
  call void %body(ptr %closure, i64 0, i64 %n)
  br label %end
end:
  ret i32 0
}
define weak void @dlc_pool_set_num_threads(i32 %n) nounwind { ret void }
define weak i32 @dlc_pool_get_num_threads() nounwind { ret i32 1 }
"""

_LINUX = """
@word = internal global i64 0, align 128
@body = internal global ptr null, align 128
@closure = internal global ptr null, align 8
@items = internal global i64 0, align 8
@ranges = internal global i64 0, align 8
@shares = internal global [THREADS x [16 x i64]] zeroinitializer, align 128
@threads = internal global i32 0, align 128
@done = internal global i32 0, align 128
@waiting = internal global i32 0, align 4
@sleepers = internal global i32 0, align 128
@busy = internal global i32 0, align 128
@process = internal global i32 0, align 4
@workers = internal global i32 0, align 4
@limit = internal global i32 0, align 4

declare i64 @syscall(i64, ...)
declare i32 @getpid()
declare i32 @clock_gettime(i32, ptr)
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)

define internal i64 @nanoseconds() nounwind {
  %time = alloca [2 x i64], align 8
  %ok = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %rest_at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest_at, align 8
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %rest
  ret i64 %sum
}

define internal void @sleep_while(ptr %at, i32 %value) nounwind {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %at, i32 128, i32 %value, ptr null, ptr null, i32 0)
  ret void
}

define internal void @wake_all(ptr %at) nounwind {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %at, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  ret void
}

; Claims and runs ranges of generation %mine, first those of thread %place, then others'; returns how many.
define internal i32 @work(i64 %mine, i32 %place, i32 %team) nounwind {
entry:
  br label %share
share:
  %whose = phi i32 [%place, %entry], [%other, %next_share]
  %visits = phi i32 [0, %entry], [%visited, %next_share]
  %so_far = phi i32 [0, %entry], [%count, %next_share]
  %own = icmp eq i32 %visits, 0
  %whose_wide = zext i32 %whose to i64
  %at = getelementptr [16 x i64], ptr @shares, i64 %whose_wide
  br label %look
look:
  %count = phi i32 [%so_far, %share], [%count, %claim], [%more, %run]
  %now = load atomic i64, ptr %at acquire, align 8
  %generation = lshr i64 %now, 32
  %same = icmp eq i64 %generation, %mine
  %front = and i64 %now, 65535
  %shifted = lshr i64 %now, 16
  %end = and i64 %shifted, 65535
  %left = icmp ult i64 %front, %end
  %go = and i1 %same, %left
  br i1 %go, label %claim, label %next_share
claim:
  %b = load atomic ptr, ptr @body monotonic, align 8
  %c = load atomic ptr, ptr @closure monotonic, align 8
  %n = load atomic i64, ptr @items monotonic, align 8
  %ranges = load atomic i64, ptr @ranges monotonic, align 8
  %last = sub i64 %end, 1
  %range = select i1 %own, i64 %front, i64 %last
  %step = select i1 %own, i64 1, i64 -65536
  %claimed = add i64 %now, %step
  %pair = cmpxchg ptr %at, i64 %now, i64 %claimed acq_rel monotonic
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %run, label %look
run:
  %begin_scaled = mul i64 %n, %range
  %begin = udiv i64 %begin_scaled, %ranges
  %following = add i64 %range, 1
  %end_scaled = mul i64 %n, %following
  %end_at = udiv i64 %end_scaled, %ranges
  call void %b(ptr %c, i64 %begin, i64 %end_at)
  %more = add i32 %count, 1
  br label %look
next_share:
  %visited = add i32 %visits, 1
  %beside = add i32 %whose, 1
  %round = icmp sge i32 %beside, %team
  %other = select i1 %round, i32 0, i32 %beside
  %again = icmp slt i32 %visited, %team
  br i1 %again, label %share, label %finished
finished:
  ret i32 %count
}

define internal ptr @worker(ptr %argument) nounwind {
entry:
  %wide = ptrtoint ptr %argument to i64
  %id = trunc i64 %wide to i32
  br label %idle
idle:
  %seen = phi i64 [0, %entry], [%generation, %join], [%generation, %finish], [%generation, %call],
    [%seen, %woken], [%generation, %park]
  br label %spin
spin:
  %tries = phi i32 [0, %idle], [%tries1, %again]
  %since = phi i64 [0, %idle], [%since1, %again]
  %now = load atomic i64, ptr @word acquire, align 8
  %generation = lshr i64 %now, 32
  %fresh = icmp ne i64 %generation, %seen
  br i1 %fresh, label %job, label %wait
wait:
  PAUSE
  %tries1 = add i32 %tries, 1
  %low = and i32 %tries1, 63
  %check = icmp eq i32 %low, 0
  br i1 %check, label %clock, label %again
clock:
  %time = call i64 @nanoseconds()
  %first = icmp eq i64 %since, 0
  %start = select i1 %first, i64 %time, i64 %since
  %spent = sub i64 %time, %start
  %enough = icmp ugt i64 %spent, 100000
  br i1 %enough, label %sleep, label %again
again:
  %since1 = phi i64 [%since, %wait], [%start, %clock]
  br label %spin
sleep:
  %before = atomicrmw add ptr @sleepers, i32 1 seq_cst
  %last = load atomic i64, ptr @word seq_cst, align 8
  %last_generation = lshr i64 %last, 32
  %still = icmp eq i64 %last_generation, %seen
  br i1 %still, label %deep, label %woken
deep:
  %seen32 = trunc i64 %seen to i32
  %at = getelementptr i8, ptr @word, i64 4
  call void @sleep_while(ptr %at, i32 %seen32)
  br label %woken
woken:
  %after = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  br label %idle
job:
  %team = load atomic i32, ptr @threads acquire, align 4
  %place = add i32 %id, 1
  %in = icmp slt i32 %place, %team
  br i1 %in, label %join, label %park
park:
  call void @sleep_while(ptr @threads, i32 %team)
  br label %idle
join:
  %did = call i32 @work(i64 %generation, i32 %place, i32 %team)
  %any = icmp sgt i32 %did, 0
  br i1 %any, label %finish, label %idle
finish:
  %earlier = atomicrmw add ptr @done, i32 %did seq_cst
  %asked = load atomic i32, ptr @waiting seq_cst, align 4
  %wake = icmp ne i32 %asked, 0
  br i1 %wake, label %call, label %idle
call:
  call void @wake_all(ptr @done)
  br label %idle
}

; Makes workers until there are %wanted; returns how many there are.  Runs under @busy.
define internal i32 @hire(i32 %wanted) nounwind {
entry:
  %have = load i32, ptr @workers, align 4
  %enough = icmp sge i32 %have, %wanted
  br i1 %enough, label %plenty, label %prepare
plenty:
  ret i32 %have
prepare:
  %thread = alloca i64, align 8
  %all = alloca [128 x i8], align 8
  %old = alloca [128 x i8], align 8
  call void @llvm.memset.p0.i64(ptr %all, i8 -1, i64 128, i1 false)
  store i64 NO_FAULTS, ptr %all, align 8
  %blocked = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %old)
  br label %make
make:
  %id = phi i32 [%have, %prepare], [%next, %made]
  %wide = zext i32 %id to i64
  %argument = inttoptr i64 %wide to ptr
  %failed = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %argument)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %made, label %end
made:
  %name = load i64, ptr %thread, align 8
  %detached = call i32 @pthread_detach(i64 %name)
  %next = add i32 %id, 1
  store i32 %next, ptr @workers, align 4
  %more = icmp slt i32 %next, %wanted
  br i1 %more, label %make, label %end
end:
  %restored = call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  %total = load i32, ptr @workers, align 4
  ret i32 %total
}

; True where this process is the one whose workers these are; after a fork one caller makes it so.
define internal i1 @at_home() nounwind {
entry:
  %me = call i32 @getpid()
  %owner = load atomic i32, ptr @process acquire, align 4
  %mine = icmp eq i32 %me, %owner
  br i1 %mine, label %yes, label %foreign
foreign:
  %moving = icmp eq i32 %owner, -1
  br i1 %moving, label %no, label %take
take:
  %pair = cmpxchg ptr @process, i32 %owner, i32 -1 seq_cst seq_cst
  %won = extractvalue { i32, i1 } %pair, 1
  br i1 %won, label %reset, label %no
reset:
  store i32 0, ptr @workers, align 4
  store atomic i32 0, ptr @sleepers seq_cst, align 4
  store atomic i32 0, ptr @waiting seq_cst, align 4
  store atomic i32 0, ptr @busy seq_cst, align 4
  store atomic i32 %me, ptr @process seq_cst, align 4
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

define weak void @dlc_pool_set_num_threads(i32 %n) nounwind {
  %positive = icmp sgt i32 %n, 0
  %kept = select i1 %positive, i32 %n, i32 0
  store atomic i32 %kept, ptr @limit seq_cst, align 4
  ret void
}

define weak i32 @dlc_pool_get_num_threads() nounwind {
entry:
  %set = load atomic i32, ptr @limit monotonic, align 4
  %known = icmp sgt i32 %set, 0
  br i1 %known, label %given, label %ask
given:
  ret i32 %set
ask:
  %mask = alloca [128 x i8], align 8
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  %ignored = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  br label %loop
loop:
  %i = phi i64 [0, %ask], [%j, %loop]
  %sum = phi i64 [0, %ask], [%total, %loop]
  %at = getelementptr i64, ptr %mask, i64 %i
  %bits = load i64, ptr %at, align 8
  %ones = call i64 @llvm.ctpop.i64(i64 %bits)
  %total = add i64 %sum, %ones
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, 16
  br i1 %more, label %loop, label %end
end:
  %least = call i64 @llvm.umax.i64(i64 %total, i64 1)
  %count = trunc i64 %least to i32
  ret i32 %count
}

define weak i32 @dlc_parallel_for(ptr %body, ptr %closure, i64 %n, i32 %threads) nounwind {
entry:
  %two = icmp sgt i64 %n, 1
  br i1 %two, label %plan, label %few
few:
  %one = icmp eq i64 %n, 1
  br i1 %one, label %serial, label %return
serial:
  call void %body(ptr %closure, i64 0, i64 %n)
  br label %return
return:
  ret i32 0
plan:
  %cap = load atomic i32, ptr @limit monotonic, align 4
  %auto = icmp slt i32 %threads, 1
  br i1 %auto, label %default, label %bound
default:
  %own = call i32 @dlc_pool_get_num_threads()
  br label %bound
bound:
  %asked = phi i32 [%threads, %plan], [%own, %default]
  %capped = icmp sgt i32 %cap, 0
  %lower = call i32 @llvm.smin.i32(i32 %asked, i32 %cap)
  %allowed = select i1 %capped, i32 %lower, i32 %asked
  %room = call i32 @llvm.smin.i32(i32 %allowed, i32 THREADS)
  %wide = sext i32 %room to i64
  %useful = call i64 @llvm.smin.i64(i64 %wide, i64 %n)
  %wanted = trunc i64 %useful to i32
  %alone = icmp slt i32 %wanted, 2
  br i1 %alone, label %serial, label %home
home:
  %fine = call i1 @at_home()
  br i1 %fine, label %lock, label %serial
lock:
  %pair = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %won = extractvalue { i32, i1 } %pair, 1
  br i1 %won, label %staff, label %serial
staff:
  %needed = sub i32 %wanted, 1
  %have = call i32 @hire(i32 %needed)
  %none = icmp eq i32 %have, 0
  br i1 %none, label %giveup, label %publish
giveup:
  store atomic i32 0, ptr @busy release, align 4
  br label %serial
publish:
  %able = add i32 %have, 1
  %team = call i32 @llvm.smin.i32(i32 %able, i32 %wanted)
  %team_wide = zext i32 %team to i64
  %most = shl i64 %team_wide, 3
  %ranges = call i64 @llvm.smin.i64(i64 %most, i64 %n)
  %ranges32 = trunc i64 %ranges to i32
  store atomic ptr %body, ptr @body monotonic, align 8
  store atomic ptr %closure, ptr @closure monotonic, align 8
  store atomic i64 %n, ptr @items monotonic, align 8
  store atomic i64 %ranges, ptr @ranges monotonic, align 8
  store atomic i32 0, ptr @done monotonic, align 4
  store atomic i32 0, ptr @waiting monotonic, align 4
  %old_team = load atomic i32, ptr @threads monotonic, align 4
  store atomic i32 %team, ptr @threads release, align 4
  %old = load atomic i64, ptr @word monotonic, align 8
  %old_generation = lshr i64 %old, 32
  %raised = add i64 %old_generation, 1
  %generation = and i64 %raised, 4294967295
  %new = shl i64 %generation, 32
  br label %compile_kernels
compile_kernels:
  %thread = phi i64 [0, %publish], [%after, %compile_kernels]
  %first = phi i64 [0, %publish], [%limit, %compile_kernels]
  %after = add i64 %thread, 1
  %limit_scaled = mul i64 %ranges, %after
  %limit = udiv i64 %limit_scaled, %team_wide
  %limit_high = shl i64 %limit, 16
  %part = or i64 %limit_high, %first
  %share = or i64 %new, %part
  %share_at = getelementptr [16 x i64], ptr @shares, i64 %thread
  store atomic i64 %share, ptr %share_at release, align 8
  %others = icmp slt i64 %after, %team_wide
  br i1 %others, label %compile_kernels, label %announce
announce:
  store atomic i64 %new, ptr @word seq_cst, align 8
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %some = icmp sgt i32 %asleep, 0
  br i1 %some, label %wake, label %grown
wake:
  %at = getelementptr i8, ptr @word, i64 4
  call void @wake_all(ptr %at)
  br label %grown
grown:
  %bigger = icmp sgt i32 %team, %old_team
  br i1 %bigger, label %unpark, label %take_part
unpark:
  call void @wake_all(ptr @threads)
  br label %take_part
take_part:
  %did = call i32 @work(i64 %generation, i32 0, i32 %team)
  %earlier = atomicrmw add ptr @done, i32 %did seq_cst
  br label %watch
watch:
  %tries = phi i32 [0, %take_part], [%tries1, %pause], [0, %slept]
  %count = load atomic i32, ptr @done acquire, align 4
  %all = icmp eq i32 %count, %ranges32
  br i1 %all, label %over, label %patience
patience:
  %long = icmp ugt i32 %tries, 4000
  br i1 %long, label %doze, label %pause
pause:
  PAUSE
  %tries1 = add i32 %tries, 1
  br label %watch
doze:
  store atomic i32 1, ptr @waiting seq_cst, align 4
  %recount = load atomic i32, ptr @done seq_cst, align 4
  %missing = icmp ne i32 %recount, %ranges32
  br i1 %missing, label %deep, label %slept
deep:
  call void @sleep_while(ptr @done, i32 %recount)
  br label %slept
slept:
  br label %watch
over:
  store atomic i32 0, ptr @busy release, align 4
  ret i32 0
}
"""


def pool_ir(triple: str) -> str:
    """The pool as a module's text for `triple`; UnsupportedError for Linux on an architecture it does not
    know.
    """
    arch = normal_arch(triple)
    if "linux" not in triple or arch.startswith("arm"):
        return _SERIAL
    if arch not in _FUTEX_NUMBER:
        raise UnsupportedError(
            f"the thread pool does not know Linux on {arch}",
            hint=f"it knows {', '.join(sorted(_FUTEX_NUMBER))}; compile with num_threads=1 without it",
        )
    others = ~sum(1 << (number - 1) for number in _FAULTS)
    own = {"FUTEX": str(_FUTEX_NUMBER[arch]), "PAUSE": _PAUSE[arch], "THREADS": str(_MOST_THREADS)}
    own["NO_FAULTS"] = str(others)
    text = _LINUX
    for name, value in own.items():
        text = text.replace(name, value)
    return text


__all__ = ["SYMBOLS", "pool_ir"]
