; Made of pool.c by tools/make_pool_ir.py for Linux on riscv64.

%struct.sigaction = type { %union.anon, %struct.__sigset_t, i32, ptr }
%union.anon = type { ptr }
%struct.__sigset_t = type { [16 x i64] }
%struct.Queue = type { i64, [120 x i8] }
%struct.timespec = type { i64, i64 }
%struct.cpu_set_t = type { [16 x i64] }

@has_words = internal global i32 0, align 4
@words = internal global i32 0, align 4
@first_word = internal global i32 0, align 128
@never = internal global i32 0, align 4
@look = internal global ptr null, align 8
@call_word = internal global ptr null, align 8
@limit = internal global i32 0, align 4
@busy = internal global i32 0, align 128
@done = internal global i32 0, align 128
@first_handler = internal global %struct.sigaction zeroinitializer, align 8
@next_handler = internal global %struct.sigaction zeroinitializer, align 8
@handling = internal global i32 0, align 4
@process = internal global i32 0, align 4
@workers = internal global i32 0, align 4
@sleepers = internal global i32 0, align 128
@waiting = internal global i32 0, align 4
@start_workers.faults = internal constant [5 x i32] [i32 4, i32 5, i32 7, i32 8, i32 11], align 4
@threads = internal global i32 0, align 128
@generation = internal global i32 0, align 128
@body = internal global ptr null, align 128
@closure = internal global ptr null, align 8
@items = internal global i64 0, align 8
@ranges = internal global i64 0, align 8
@job_word = internal global ptr null, align 8
@queues = internal global [1024 x %struct.Queue] zeroinitializer, align 128
@__const.nap_while.most = private constant %struct.timespec { i64 0, i64 20000000 }, align 8

define weak ptr @dlc_stop_word() nounwind {
entry:
  %0 = load atomic i32, ptr @has_words acquire, align 4
  %cmp = icmp eq i32 %0, 2
  br i1 %cmp, label %cond.end, label %if.then

cond.end:
  %1 = load i32, ptr @words, align 4
  %call = call ptr @pthread_getspecific(i32 signext %1)
  %cmp1 = icmp eq ptr %call, null
  br i1 %cmp1, label %if.then, label %if.end

if.then:
  %call.i = call i64 (i64, ...) @syscall(i64 178)
  %call1.i = call signext i32 @getpid()
  %conv.i = sext i32 %call1.i to i64
  %cmp.i.not = icmp eq i64 %call.i, %conv.i
  %cond3 = select i1 %cmp.i.not, ptr @first_word, ptr @never
  %2 = cmpxchg ptr @has_words, i32 0, i32 1 seq_cst seq_cst, align 4
  %3 = extractvalue { i32, i1 } %2, 1
  br i1 %3, label %if.then.i, label %if.end.i

if.then.i:
  %call.i6 = call signext i32 @pthread_key_create(ptr @words, ptr null)
  store atomic i32 2, ptr @has_words seq_cst, align 4
  br label %if.end.i

if.end.i:
  %4 = load atomic i32, ptr @has_words acquire, align 4
  %cmp.not3.i = icmp eq i32 %4, 2
  br i1 %cmp.not3.i, label %set_word.exit, label %while.body.i

while.body.i:
  fence syncscope("singlethread") acq_rel
  %5 = load atomic i32, ptr @has_words acquire, align 4
  %cmp.not.i = icmp eq i32 %5, 2
  br i1 %cmp.not.i, label %set_word.exit, label %while.body.i

set_word.exit:
  %6 = load i32, ptr @words, align 4
  %call2.i = call signext i32 @pthread_setspecific(i32 signext %6, ptr %cond3)
  br label %if.end

if.end:
  %word.0 = phi ptr [ %cond3, %set_word.exit ], [ %call, %cond.end ]
  ret ptr %word.0
}

declare ptr @pthread_getspecific(i32 signext)

define weak ptr @dlc_stop_enter() nounwind {
entry:
  %now.i = alloca %struct.sigaction, align 8
  %call = call ptr @dlc_stop_word()
  %0 = load atomic i64, ptr @look acquire, align 8
  %cmp.not = icmp eq i64 %0, 0
  br i1 %cmp.not, label %if.end, label %land.lhs.true

land.lhs.true:
  %cmp1 = icmp eq ptr %call, @first_word
  br i1 %cmp1, label %if.then, label %lor.lhs.false

lor.lhs.false:
  %1 = load atomic i64, ptr @call_word monotonic, align 8
  %2 = inttoptr i64 %1 to ptr
  %cmp3 = icmp eq ptr %call, %2
  br i1 %cmp3, label %if.then, label %if.end

if.then:
  %call.i = call signext i32 @sigaction(i32 signext 2, ptr null, ptr %now.i)
  %tobool.not.i = icmp eq i32 %call.i, 0
  br i1 %tobool.not.i, label %lor.lhs.false.i, label %watch_signals.exit

lor.lhs.false.i:
  %sa_flags.i = getelementptr i8, ptr %now.i, i64 136
  %3 = load i32, ptr %sa_flags.i, align 8
  %and.i = and i32 %3, 4
  %tobool1.not.i = icmp eq i32 %and.i, 0
  %4 = load ptr, ptr %now.i, align 8
  %cmp.i = icmp ne ptr %4, @on_signal
  %5 = icmp uge ptr %4, inttoptr (i64 2 to ptr)
  %or.cond21.i = select i1 %tobool1.not.i, i1 %5, i1 %cmp.i
  br i1 %or.cond21.i, label %if.end12.i, label %watch_signals.exit

if.end12.i:
  %6 = load ptr, ptr @first_handler, align 8
  %cmp13.i = icmp eq ptr %6, null
  br i1 %cmp13.i, label %if.then14.i, label %if.end15.i

if.then14.i:
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 @first_handler, ptr align 8 %now.i, i64 152, i1 false)
  br label %if.end15.i

if.end15.i:
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 @next_handler, ptr align 8 %now.i, i64 152, i1 false)
  store ptr @on_signal, ptr %now.i, align 8
  %or.i = or i32 %3, 4
  store i32 %or.i, ptr %sa_flags.i, align 8
  %call18.i = call signext i32 @sigaction(i32 signext 2, ptr %now.i, ptr null)
  br label %watch_signals.exit

watch_signals.exit:
  br label %if.end

if.end:
  ret ptr %call
}

define weak i32 @dlc_stop_look(ptr %word) nounwind {
entry:
  %0 = load atomic i64, ptr @look acquire, align 8
  %1 = inttoptr i64 %0 to ptr
  %2 = load atomic i32, ptr %word acquire, align 4
  %and = and i32 %2, 2
  %tobool = icmp ne i32 %and, 0
  %cmp = icmp ne i64 %0, 0
  %or.cond = select i1 %tobool, i1 %cmp, i1 false
  br i1 %or.cond, label %land.lhs.true2, label %if.end12

land.lhs.true2:
  %call.i = call i64 (i64, ...) @syscall(i64 178)
  %call1.i = call signext i32 @getpid()
  %conv.i = sext i32 %call1.i to i64
  %cmp.i.not = icmp eq i64 %call.i, %conv.i
  br i1 %cmp.i.not, label %if.then, label %if.end12

if.then:
  %3 = atomicrmw and ptr %word, i32 -3 seq_cst, align 4
  %4 = atomicrmw and ptr @first_word, i32 -3 seq_cst, align 128
  %call7 = call signext i32 %1()
  %tobool8.not = icmp eq i32 %call7, 0
  br i1 %tobool8.not, label %if.end12, label %if.then9

if.then9:
  %5 = atomicrmw or ptr %word, i32 1 seq_cst, align 4
  br label %if.end12

if.end12:
  %6 = load atomic i32, ptr %word acquire, align 4
  %and14 = and i32 %6, 1
  ret i32 %and14
}

define weak void @dlc_stop_register(ptr %function) nounwind {
entry:
  %0 = ptrtoint ptr %function to i64
  store atomic i64 %0, ptr @look release, align 8
  ret void
}

define weak void @dlc_stop_clear() nounwind {
entry:
  store atomic i32 0, ptr @first_word seq_cst, align 128
  ret void
}

define weak i32 @dlc_call_stoppable(ptr %entry1, ptr %buffers, ptr %scalars, i32 %num_threads, ptr %word) nounwind {
entry:
  %call = call ptr @dlc_stop_word()
  %0 = load atomic i64, ptr @call_word monotonic, align 8
  %call.i = call i64 (i64, ...) @syscall(i64 178)
  %call1.i = call signext i32 @getpid()
  %conv.i = sext i32 %call1.i to i64
  %cmp.i.not = icmp eq i64 %call.i, %conv.i
  %1 = cmpxchg ptr @has_words, i32 0, i32 1 seq_cst seq_cst, align 4
  %2 = extractvalue { i32, i1 } %1, 1
  br i1 %2, label %if.then.i, label %if.end.i

if.then.i:
  %call.i17 = call signext i32 @pthread_key_create(ptr @words, ptr null)
  store atomic i32 2, ptr @has_words seq_cst, align 4
  br label %if.end.i

if.end.i:
  %3 = load atomic i32, ptr @has_words acquire, align 4
  %cmp.not3.i = icmp eq i32 %3, 2
  br i1 %cmp.not3.i, label %set_word.exit, label %while.body.i

while.body.i:
  fence syncscope("singlethread") acq_rel
  %4 = load atomic i32, ptr @has_words acquire, align 4
  %cmp.not.i = icmp eq i32 %4, 2
  br i1 %cmp.not.i, label %set_word.exit, label %while.body.i

set_word.exit:
  %5 = load i32, ptr @words, align 4
  %call2.i = call signext i32 @pthread_setspecific(i32 signext %5, ptr %word)
  br i1 %cmp.i.not, label %if.then, label %if.end8

if.then:
  %6 = ptrtoint ptr %word to i64
  store atomic i64 %6, ptr @call_word seq_cst, align 8
  %7 = load atomic i32, ptr @first_word seq_cst, align 128
  %and = and i32 %7, 2
  %tobool4.not = icmp eq i32 %and, 0
  br i1 %tobool4.not, label %if.then11, label %if.then5

if.then5:
  %8 = atomicrmw or ptr %word, i32 2 seq_cst, align 4
  br label %if.then11

if.end8:
  %call9 = call signext i32 %entry1(ptr %buffers, ptr %scalars, i32 signext %num_threads)
  br label %if.end13

if.then11:
  %call926 = call signext i32 %entry1(ptr %buffers, ptr %scalars, i32 signext %num_threads)
  store atomic i64 %0, ptr @call_word seq_cst, align 8
  br label %if.end13

if.end13:
  %call928 = phi i32 [ %call926, %if.then11 ], [ %call9, %if.end8 ]
  %9 = cmpxchg ptr @has_words, i32 0, i32 1 seq_cst seq_cst, align 4
  %10 = extractvalue { i32, i1 } %9, 1
  br i1 %10, label %if.then.i23, label %if.end.i18

if.then.i23:
  %call.i24 = call signext i32 @pthread_key_create(ptr @words, ptr null)
  store atomic i32 2, ptr @has_words seq_cst, align 4
  br label %if.end.i18

if.end.i18:
  %11 = load atomic i32, ptr @has_words acquire, align 4
  %cmp.not3.i19 = icmp eq i32 %11, 2
  br i1 %cmp.not3.i19, label %set_word.exit25, label %while.body.i20

while.body.i20:
  fence syncscope("singlethread") acq_rel
  %12 = load atomic i32, ptr @has_words acquire, align 4
  %cmp.not.i21 = icmp eq i32 %12, 2
  br i1 %cmp.not.i21, label %set_word.exit25, label %while.body.i20

set_word.exit25:
  %13 = load i32, ptr @words, align 4
  %call2.i22 = call signext i32 @pthread_setspecific(i32 signext %13, ptr %call)
  ret i32 %call928
}

define weak void @dlc_pool_set_num_threads(i32 %n) nounwind {
entry:
  %cond = call i32 @llvm.smax.i32(i32 %n, i32 0)
  store atomic i32 %cond, ptr @limit seq_cst, align 4
  ret void
}

define weak i32 @dlc_pool_get_num_threads() nounwind {
entry:
  %mask = alloca %struct.cpu_set_t, align 8
  %0 = load atomic i32, ptr @limit monotonic, align 4
  %cmp = icmp sgt i32 %0, 0
  br i1 %cmp, label %cleanup, label %if.end

if.end:
  call void @llvm.memset.p0.i64(ptr align 8 %mask, i8 0, i64 128, i1 false)
  %call = call signext i32 @sched_getaffinity(i32 signext 0, i64 128, ptr %mask)
  br label %for.body

for.cond.cleanup:
  %cond = call i32 @llvm.umax.i32(i32 %add, i32 1)
  br label %cleanup

for.body:
  %indvars.iv = phi i64 [ 0, %if.end ], [ %indvars.iv.next, %for.body ]
  %count.010 = phi i32 [ 0, %if.end ], [ %add, %for.body ]
  %arrayidx = getelementptr i64, ptr %mask, i64 %indvars.iv
  %1 = load i64, ptr %arrayidx, align 8
  %2 = call i64 @llvm.ctpop.i64(i64 %1)
  %cast = trunc i64 %2 to i32
  %add = add i32 %count.010, %cast
  %indvars.iv.next = add i64 %indvars.iv, 1
  %exitcond.not = icmp eq i64 %indvars.iv.next, 16
  br i1 %exitcond.not, label %for.cond.cleanup, label %for.body

cleanup:
  %retval.0 = phi i32 [ %cond, %for.cond.cleanup ], [ %0, %entry ]
  ret i32 %retval.0
}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

declare signext i32 @sched_getaffinity(i32 signext, i64, ptr)

declare i64 @llvm.ctpop.i64(i64)

define weak i32 @dlc_parallel_for(ptr %run, ptr %argument, i64 %n, i32 %requested) nounwind {
entry:
  %most.i.i = alloca %struct.timespec, align 8
  %blocked.i = alloca %struct.__sigset_t, align 8
  %previous.i = alloca %struct.__sigset_t, align 8
  %thread.i = alloca i64, align 8
  %cmp = icmp slt i64 %n, 1
  br i1 %cmp, label %return, label %if.end

if.end:
  %cmp1.not = icmp eq i64 %n, 1
  br i1 %cmp1.not, label %if.then5, label %cond.true

cond.true:
  %0 = load atomic i32, ptr @limit monotonic, align 4
  %cmp.i = icmp slt i32 %requested, 1
  br i1 %cmp.i, label %if.then.i, label %cond.end

if.then.i:
  %call.i = call signext i32 @dlc_pool_get_num_threads()
  br label %cond.end

cond.end:
  %requested.addr.0.i = phi i32 [ %call.i, %if.then.i ], [ %requested, %cond.true ]
  %cmp1.i = icmp sgt i32 %0, 0
  %1 = call i32 @llvm.smin.i32(i32 %0, i32 %requested.addr.0.i)
  %requested.addr.1.i = select i1 %cmp1.i, i32 %1, i32 %requested.addr.0.i
  %spec.store.select.i = call i32 @llvm.smin.i32(i32 %requested.addr.1.i, i32 1024)
  %conv.i = sext i32 %spec.store.select.i to i64
  %cond18.i = call i64 @llvm.smin.i64(i64 %n, i64 %conv.i)
  %cond.i = trunc i64 %cond18.i to i32
  %cmp2 = icmp slt i64 %cond18.i, 2
  br i1 %cmp2, label %if.then5, label %lor.lhs.false

lor.lhs.false:
  %call.i53 = call signext i32 @getpid()
  %2 = load atomic i32, ptr @process acquire, align 4
  %cmp.i54 = icmp eq i32 %call.i53, %2
  br i1 %cmp.i54, label %lor.lhs.false4, label %if.end.i

if.end.i:
  %cmp1.i55 = icmp eq i32 %2, -1
  br i1 %cmp1.i55, label %if.then5, label %lor.lhs.false.i

lor.lhs.false.i:
  %3 = cmpxchg ptr @process, i32 %2, i32 -1 seq_cst seq_cst, align 4
  %4 = extractvalue { i32, i1 } %3, 1
  br i1 %4, label %if.end3.i, label %if.then5

if.end3.i:
  store i32 0, ptr @workers, align 4
  store atomic i32 0, ptr @sleepers seq_cst, align 128
  store atomic i32 0, ptr @waiting seq_cst, align 4
  store atomic i32 0, ptr @busy seq_cst, align 128
  store atomic i32 %call.i53, ptr @process seq_cst, align 4
  br label %lor.lhs.false4

lor.lhs.false4:
  %5 = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic, align 128
  %6 = extractvalue { i32, i1 } %5, 1
  br i1 %6, label %if.end6, label %if.then5

if.then5:
  call void %run(ptr %argument, i64 0, i64 %n)
  br label %return

if.end6:
  %sub = add i32 %cond.i, -1
  %7 = load i32, ptr @workers, align 4
  %cmp.not.i = icmp slt i32 %7, %sub
  br i1 %cmp.not.i, label %if.end.i57, label %if.end11

if.end.i57:
  %call.i58 = call signext i32 @sigfillset(ptr %blocked.i)
  br label %for.body.i

for.cond.cleanup.i:
  %call4.i = call signext i32 @pthread_sigmask(i32 signext 2, ptr %blocked.i, ptr %previous.i)
  %.old.i = load i32, ptr @workers, align 4
  %cmp5.old.i = icmp slt i32 %.old.i, %sub
  br i1 %cmp5.old.i, label %while.body.i, label %start_workers.exit

for.body.i:
  %indvars.iv.i = phi i64 [ 0, %if.end.i57 ], [ %indvars.iv.next.i, %for.body.i ]
  %arrayidx.i = getelementptr i32, ptr @start_workers.faults, i64 %indvars.iv.i
  %8 = load i32, ptr %arrayidx.i, align 4
  %call3.i = call signext i32 @sigdelset(ptr %blocked.i, i32 signext %8)
  %indvars.iv.next.i = add i64 %indvars.iv.i, 1
  %exitcond.not.i = icmp eq i64 %indvars.iv.next.i, 5
  br i1 %exitcond.not.i, label %for.cond.cleanup.i, label %for.body.i

while.body.i:
  %9 = phi i32 [ %inc12.i, %cleanup.i ], [ %.old.i, %for.cond.cleanup.i ]
  %conv7.i = sext i32 %9 to i64
  %10 = inttoptr i64 %conv7.i to ptr
  %call8.i = call signext i32 @pthread_create(ptr %thread.i, ptr null, ptr @worker, ptr %10)
  %tobool.not.i = icmp eq i32 %call8.i, 0
  br i1 %tobool.not.i, label %cleanup.i, label %cleanup.thread.i

cleanup.thread.i:
  br label %start_workers.exit

cleanup.i:
  %11 = load i64, ptr %thread.i, align 8
  %call11.i = call signext i32 @pthread_detach(i64 %11)
  %12 = load i32, ptr @workers, align 4
  %inc12.i = add i32 %12, 1
  store i32 %inc12.i, ptr @workers, align 4
  %cmp5.i = icmp slt i32 %inc12.i, %sub
  br i1 %cmp5.i, label %while.body.i, label %start_workers.exit

start_workers.exit:
  %call13.i = call signext i32 @pthread_sigmask(i32 signext 2, ptr %previous.i, ptr null)
  %13 = load i32, ptr @workers, align 4
  %cmp8 = icmp eq i32 %13, 0
  br i1 %cmp8, label %if.then9, label %if.end11

if.then9:
  store atomic i32 0, ptr @busy release, align 128
  call void %run(ptr %argument, i64 0, i64 %n)
  br label %return

if.end11:
  %retval.0.i5680 = phi i32 [ %13, %start_workers.exit ], [ %7, %if.end6 ]
  %add = add i32 %retval.0.i5680, 1
  %spec.select = call i32 @llvm.smin.i32(i32 %add, i32 %cond.i)
  %conv = sext i32 %spec.select to i64
  %mul = shl i64 %conv, 3
  %cond23 = call i64 @llvm.smin.i64(i64 %mul, i64 %n)
  %call24 = call ptr @dlc_stop_word()
  %14 = ptrtoint ptr %run to i64
  store atomic i64 %14, ptr @body monotonic, align 128
  %15 = ptrtoint ptr %argument to i64
  store atomic i64 %15, ptr @closure monotonic, align 8
  store atomic i64 %n, ptr @items monotonic, align 8
  store atomic i64 %cond23, ptr @ranges monotonic, align 8
  %16 = ptrtoint ptr %call24 to i64
  store atomic i64 %16, ptr @job_word monotonic, align 8
  store atomic i32 0, ptr @done monotonic, align 128
  store atomic i32 0, ptr @waiting monotonic, align 4
  %17 = load atomic i32, ptr @threads monotonic, align 128
  store atomic i32 %spec.select, ptr @threads release, align 128
  %18 = load atomic i32, ptr @generation monotonic, align 128
  %add.i = add i32 %18, 1
  %cmp36.i = icmp sgt i32 %spec.select, 0
  br i1 %cmp36.i, label %for.body.lr.ph.i, label %for.cond.cleanup.i60

for.body.lr.ph.i:
  %conv14.i = zext i32 %add.i to i64
  %shl.i = shl i64 %conv14.i, 32
  br label %for.body.i63

for.cond.cleanup.i60:
  store atomic i32 %add.i, ptr @generation seq_cst, align 128
  %19 = load atomic i32, ptr @sleepers seq_cst, align 128
  %cmp19.i = icmp sgt i32 %19, 0
  br i1 %cmp19.i, label %if.then.i62, label %if.end.i61

for.body.i63:
  %first.038.i = phi i64 [ 0, %for.body.lr.ph.i ], [ %div.i, %for.body.i63 ]
  %thread.037.i = phi i64 [ 0, %for.body.lr.ph.i ], [ %add10.i, %for.body.i63 ]
  %add10.i = add i64 %thread.037.i, 1
  %mul.i = mul i64 %add10.i, %cond23
  %div.i = udiv i64 %mul.i, %conv
  %arrayidx.i64 = getelementptr %struct.Queue, ptr @queues, i64 %thread.037.i
  %shl15.i = shl i64 %div.i, 16
  %or.i = or i64 %first.038.i, %shl.i
  %or16.i = or i64 %or.i, %shl15.i
  store atomic i64 %or16.i, ptr %arrayidx.i64 release, align 128
  %exitcond.not.i65 = icmp eq i64 %add10.i, %conv
  br i1 %exitcond.not.i65, label %for.cond.cleanup.i60, label %for.body.i63

if.then.i62:
  %call.i.i = call i64 (i64, ...) @syscall(i64 98, ptr @generation, i32 signext 129, i32 signext 2147483647, ptr null, ptr null, i32 signext 0)
  br label %if.end.i61

if.end.i61:
  %cmp21.i = icmp sgt i32 %spec.select, %17
  br i1 %cmp21.i, label %if.then23.i, label %publish.exit

if.then23.i:
  %call.i35.i = call i64 (i64, ...) @syscall(i64 98, ptr @threads, i32 signext 129, i32 signext 2147483647, ptr null, ptr null, i32 signext 0)
  br label %publish.exit

publish.exit:
  %call27 = call fastcc signext i32 @work(i32 signext %add.i, i32 signext 0, i32 signext %spec.select)
  %20 = atomicrmw add ptr @done, i32 %call27 seq_cst, align 128
  %conv28 = trunc i64 %cond23 to i32
  %21 = load atomic i32, ptr @done acquire, align 128
  %cmp.not13.i = icmp eq i32 %21, %conv28
  br i1 %cmp.not13.i, label %await.exit, label %for.body.i66

for.body.i66:
  %tries.014.i = phi i32 [ %tries.1.i, %for.inc.i ], [ 0, %publish.exit ]
  %22 = load atomic i32, ptr %call24 monotonic, align 4
  %and.i = and i32 %22, 2
  %tobool.not.i67 = icmp eq i32 %and.i, 0
  br i1 %tobool.not.i67, label %if.end.i70, label %if.then.i68

if.then.i68:
  %call.i69 = call signext i32 @dlc_stop_look(ptr %call24)
  br label %if.end.i70

if.end.i70:
  %cmp2.i = icmp ult i32 %tries.014.i, 4001
  br i1 %cmp2.i, label %if.then3.i, label %if.end4.i

if.then3.i:
  fence syncscope("singlethread") acq_rel
  %23 = add i32 %tries.014.i, 1
  br label %for.inc.i

if.end4.i:
  store atomic i32 1, ptr @waiting seq_cst, align 4
  %24 = load atomic i32, ptr @done seq_cst, align 128
  %cmp6.not.i = icmp eq i32 %24, %conv28
  br i1 %cmp6.not.i, label %for.inc.i, label %if.then7.i

if.then7.i:
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %most.i.i, ptr align 8 @__const.nap_while.most, i64 16, i1 false)
  %call.i.i71 = call i64 (i64, ...) @syscall(i64 98, ptr @done, i32 signext 128, i32 signext %24, ptr %most.i.i, ptr null, i32 signext 0)
  br label %for.inc.i

for.inc.i:
  %tries.1.i = phi i32 [ %23, %if.then3.i ], [ 1, %if.then7.i ], [ 1, %if.end4.i ]
  %25 = load atomic i32, ptr @done acquire, align 128
  %cmp.not.i72 = icmp eq i32 %25, %conv28
  br i1 %cmp.not.i72, label %await.exit, label %for.body.i66

await.exit:
  store atomic i32 0, ptr @busy release, align 128
  br label %return

return:
  ret i32 0
}

define internal fastcc i32 @work(i32 %job, i32 %index, i32 %num_threads) nounwind {
entry:
  %cmp101 = icmp sgt i32 %num_threads, 0
  br i1 %cmp101, label %for.body.lr.ph, label %for.cond.cleanup

for.body.lr.ph:
  %conv = zext i32 %job to i64
  %cmp30 = icmp slt i32 %index, 1
  br label %for.body

for.cond.cleanup:
  %count.0.lcssa = phi i32 [ 0, %entry ], [ %count.1.lcssa, %for.end ]
  ret i32 %count.0.lcssa

for.body:
  %count.0105 = phi i32 [ 0, %for.body.lr.ph ], [ %count.1.lcssa, %for.end ]
  %owner.0104 = phi i32 [ %index, %for.body.lr.ph ], [ %cond55, %for.end ]
  %own.0103 = phi ptr [ null, %for.body.lr.ph ], [ %own.1.lcssa, %for.end ]
  %visits.0102 = phi i32 [ 0, %for.body.lr.ph ], [ %inc56, %for.end ]
  %idxprom = sext i32 %owner.0104 to i64
  %arrayidx = getelementptr %struct.Queue, ptr @queues, i64 %idxprom
  %0 = load atomic i64, ptr %arrayidx acquire, align 128
  %and89 = and i64 %0, 65535
  %shr90 = lshr i64 %0, 16
  %and291 = and i64 %shr90, 65535
  %shr392 = lshr i64 %0, 32
  %cmp4.not93 = icmp eq i64 %shr392, %conv
  %cmp6.not94 = icmp ult i64 %and89, %and291
  %or.cond95 = select i1 %cmp4.not93, i1 %cmp6.not94, i1 false
  br i1 %or.cond95, label %if.end.lr.ph, label %for.end

if.end.lr.ph:
  %cmp14 = icmp eq i32 %visits.0102, 0
  %cond22.v = select i1 %cmp14, i64 1, i64 -65536
  br label %if.end

if.end:
  %and299 = phi i64 [ %and291, %if.end.lr.ph ], [ %and2, %cleanup45 ]
  %and98 = phi i64 [ %and89, %if.end.lr.ph ], [ %and, %cleanup45 ]
  %1 = phi i64 [ %0, %if.end.lr.ph ], [ %18, %cleanup45 ]
  %count.197 = phi i32 [ %count.0105, %if.end.lr.ph ], [ %count.3, %cleanup45 ]
  %own.196 = phi ptr [ %own.0103, %if.end.lr.ph ], [ %own.4, %cleanup45 ]
  %2 = load atomic i64, ptr @body monotonic, align 128
  %3 = inttoptr i64 %2 to ptr
  %4 = load atomic i64, ptr @closure monotonic, align 8
  %5 = inttoptr i64 %4 to ptr
  %6 = load atomic i64, ptr @items monotonic, align 8
  %7 = load atomic i64, ptr @ranges monotonic, align 8
  %8 = load atomic i64, ptr @job_word monotonic, align 8
  %9 = inttoptr i64 %8 to ptr
  %sub = add i64 %and299, -1
  %cond = select i1 %cmp14, i64 %and98, i64 %sub
  %cond22 = add i64 %1, %cond22.v
  %10 = cmpxchg ptr %arrayidx, i64 %1, i64 %cond22 acq_rel monotonic, align 128
  %11 = extractvalue { i64, i1 } %10, 1
  br i1 %11, label %if.end25, label %cleanup45

if.end25:
  %inc = add i32 %count.197, 1
  %12 = load atomic i32, ptr %9 monotonic, align 4
  %and27 = and i32 %12, 1
  %tobool.not = icmp eq i32 %and27, 0
  br i1 %tobool.not, label %if.end29, label %cleanup45

if.end29:
  %cmp32.not = icmp eq ptr %own.196, %9
  %or.cond83 = select i1 %cmp30, i1 true, i1 %cmp32.not
  br i1 %or.cond83, label %if.end35, label %if.then34

if.then34:
  %13 = cmpxchg ptr @has_words, i32 0, i32 1 seq_cst seq_cst, align 4
  %14 = extractvalue { i32, i1 } %13, 1
  br i1 %14, label %if.then.i, label %if.end.i

if.then.i:
  %call.i = call signext i32 @pthread_key_create(ptr @words, ptr null)
  store atomic i32 2, ptr @has_words seq_cst, align 4
  br label %if.end.i

if.end.i:
  %15 = load atomic i32, ptr @has_words acquire, align 4
  %cmp.not3.i = icmp eq i32 %15, 2
  br i1 %cmp.not3.i, label %set_word.exit, label %while.body.i

while.body.i:
  fence syncscope("singlethread") acq_rel
  %16 = load atomic i32, ptr @has_words acquire, align 4
  %cmp.not.i = icmp eq i32 %16, 2
  br i1 %cmp.not.i, label %set_word.exit, label %while.body.i

set_word.exit:
  %17 = load i32, ptr @words, align 4
  %call2.i = call signext i32 @pthread_setspecific(i32 signext %17, ptr %9)
  br label %if.end35

if.end35:
  %own.2 = phi ptr [ %9, %set_word.exit ], [ %own.196, %if.end29 ]
  %mul = mul i64 %6, %cond
  %div = udiv i64 %mul, %7
  %add36 = add i64 %cond, 1
  %mul37 = mul i64 %6, %add36
  %div38 = udiv i64 %mul37, %7
  call void %3(ptr %5, i64 %div, i64 %div38)
  br label %cleanup45

cleanup45:
  %own.4 = phi ptr [ %own.196, %if.end25 ], [ %own.196, %if.end ], [ %own.2, %if.end35 ]
  %count.3 = phi i32 [ %inc, %if.end25 ], [ %count.197, %if.end ], [ %inc, %if.end35 ]
  %18 = load atomic i64, ptr %arrayidx acquire, align 128
  %and = and i64 %18, 65535
  %shr = lshr i64 %18, 16
  %and2 = and i64 %shr, 65535
  %shr3 = lshr i64 %18, 32
  %cmp4.not = icmp eq i64 %shr3, %conv
  %cmp6.not = icmp ult i64 %and, %and2
  %or.cond = select i1 %cmp4.not, i1 %cmp6.not, i1 false
  br i1 %or.cond, label %if.end, label %for.end

for.end:
  %own.1.lcssa = phi ptr [ %own.0103, %for.body ], [ %own.4, %cleanup45 ]
  %count.1.lcssa = phi i32 [ %count.0105, %for.body ], [ %count.3, %cleanup45 ]
  %add48 = add i32 %owner.0104, 1
  %cmp49.not = icmp slt i32 %add48, %num_threads
  %cond55 = select i1 %cmp49.not, i32 %add48, i32 0
  %inc56 = add i32 %visits.0102, 1
  %exitcond.not = icmp eq i32 %inc56, %num_threads
  br i1 %exitcond.not, label %for.cond.cleanup, label %for.body
}

declare i64 @syscall(i64, ...)

declare signext i32 @getpid()

declare signext i32 @pthread_key_create(ptr, ptr)

declare signext i32 @pthread_setspecific(i32 signext, ptr)

declare signext i32 @sigaction(i32 signext, ptr, ptr)

define internal void @on_signal(i32 %number, ptr %info, ptr %context) nounwind {
entry:
  %0 = atomicrmw or ptr @first_word, i32 2 seq_cst, align 128
  %1 = load atomic i64, ptr @call_word seq_cst, align 8
  %cmp.not = icmp eq i64 %1, 0
  br i1 %cmp.not, label %if.end, label %if.then

if.then:
  %2 = inttoptr i64 %1 to ptr
  %3 = atomicrmw or ptr %2, i32 2 seq_cst, align 4
  br label %if.end

if.end:
  %4 = load i32, ptr @handling, align 4
  %tobool.not = icmp eq i32 %4, 0
  %inc = add i32 %4, 1
  store i32 %inc, ptr @handling, align 4
  %.val = load i32, ptr getelementptr (i8, ptr @next_handler, i64 136), align 8
  %.val12 = load i32, ptr getelementptr (i8, ptr @first_handler, i64 136), align 8
  %5 = select i1 %tobool.not, i32 %.val, i32 %.val12
  %and = and i32 %5, 4
  %tobool4.not = icmp eq i32 %and, 0
  %next_handler.val = load ptr, ptr @next_handler, align 8
  %first_handler.val = load ptr, ptr @first_handler, align 8
  %6 = select i1 %tobool.not, ptr %next_handler.val, ptr %first_handler.val
  br i1 %tobool4.not, label %if.else, label %if.then5

if.then5:
  call void %6(i32 signext %number, ptr %info, ptr %context)
  br label %if.end7

if.else:
  call void %6(i32 signext %number)
  br label %if.end7

if.end7:
  %7 = load i32, ptr @handling, align 4
  %dec = add i32 %7, -1
  store i32 %dec, ptr @handling, align 4
  ret void
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr readonly, i64, i1)

declare signext i32 @sigfillset(ptr)

declare signext i32 @sigdelset(ptr, i32 signext)

declare signext i32 @pthread_sigmask(i32 signext, ptr, ptr)

declare signext i32 @pthread_create(ptr, ptr, ptr, ptr)

define internal ptr @worker(ptr %argument) nounwind {
entry:
  %now.i.i = alloca %struct.timespec, align 8
  %0 = ptrtoint ptr %argument to i64
  %conv = trunc i64 %0 to i32
  %add = add i32 %conv, 1
  %tv_nsec.i.i = getelementptr i8, ptr %now.i.i, i64 8
  br label %for.cond

for.cond:
  %seen.0 = phi i32 [ 0, %entry ], [ %.lcssa.i, %for.cond.backedge ]
  %1 = load atomic i32, ptr @generation acquire, align 128
  %cmp.not31.i = icmp eq i32 %1, %seen.0
  br i1 %cmp.not31.i, label %if.end.i, label %next_job.exit

if.end.i:
  %since.033.i = phi i64 [ %since.3.ph.i, %for.inc.i ], [ 0, %for.cond ]
  %tries.032.i = phi i32 [ %inc.i, %for.inc.i ], [ 1, %for.cond ]
  fence syncscope("singlethread") acq_rel
  %rem.i = and i32 %tries.032.i, 63
  %tobool.not.i = icmp eq i32 %rem.i, 0
  br i1 %tobool.not.i, label %if.end2.i, label %for.inc.i

if.end2.i:
  %call.i.i = call signext i32 @clock_gettime(i32 signext 1, ptr %now.i.i)
  %2 = load i64, ptr %now.i.i, align 8
  %mul.i.i = mul i64 %2, 1000000000
  %3 = load i64, ptr %tv_nsec.i.i, align 8
  %add.i.i = add i64 %mul.i.i, %3
  %cmp3.i = icmp eq i64 %since.033.i, 0
  %spec.select.i = select i1 %cmp3.i, i64 %add.i.i, i64 %since.033.i
  %sub.i = sub i64 %add.i.i, %spec.select.i
  %cmp6.i = icmp slt i64 %sub.i, 100001
  br i1 %cmp6.i, label %for.inc.i, label %if.end8.i

if.end8.i:
  %4 = atomicrmw add ptr @sleepers, i32 1 seq_cst, align 128
  %5 = load atomic i32, ptr @generation seq_cst, align 128
  %cmp11.i = icmp eq i32 %5, %seen.0
  br i1 %cmp11.i, label %if.then12.i, label %if.end13.i

if.then12.i:
  %call.i25.i = call i64 (i64, ...) @syscall(i64 98, ptr @generation, i32 signext 128, i32 signext %seen.0, ptr null, ptr null, i32 signext 0)
  br label %if.end13.i

if.end13.i:
  %6 = atomicrmw add ptr @sleepers, i32 -1 seq_cst, align 128
  br label %for.inc.i

for.inc.i:
  %since.3.ph.i = phi i64 [ %spec.select.i, %if.end2.i ], [ 0, %if.end13.i ], [ %since.033.i, %if.end.i ]
  %inc.i = add i32 %tries.032.i, 1
  %7 = load atomic i32, ptr @generation acquire, align 128
  %cmp.not.i = icmp eq i32 %7, %seen.0
  br i1 %cmp.not.i, label %if.end.i, label %next_job.exit

next_job.exit:
  %.lcssa.i = phi i32 [ %1, %for.cond ], [ %7, %for.inc.i ]
  %8 = load atomic i32, ptr @threads acquire, align 128
  %cmp.not = icmp slt i32 %add, %8
  br i1 %cmp.not, label %if.end, label %if.then

if.then:
  %call.i = call i64 (i64, ...) @syscall(i64 98, ptr @threads, i32 signext 128, i32 signext %8, ptr null, ptr null, i32 signext 0)
  br label %for.cond.backedge

if.end:
  %call2 = call fastcc signext i32 @work(i32 signext %.lcssa.i, i32 signext %add, i32 signext %8)
  %cmp3 = icmp eq i32 %call2, 0
  br i1 %cmp3, label %for.cond.backedge, label %if.end6

for.cond.backedge:
  br label %for.cond

if.end6:
  %9 = atomicrmw add ptr @done, i32 %call2 seq_cst, align 128
  %10 = load atomic i32, ptr @waiting seq_cst, align 4
  %tobool.not = icmp eq i32 %10, 0
  br i1 %tobool.not, label %for.cond.backedge, label %if.then9

if.then9:
  %call.i17 = call i64 (i64, ...) @syscall(i64 98, ptr @done, i32 signext 129, i32 signext 2147483647, ptr null, ptr null, i32 signext 0)
  br label %for.cond.backedge
}

declare signext i32 @pthread_detach(i64)

declare signext i32 @clock_gettime(i32 signext, ptr)

declare i32 @llvm.smax.i32(i32, i32)

declare i32 @llvm.umax.i32(i32, i32)

declare i64 @llvm.smin.i64(i64, i64)

declare i32 @llvm.smin.i32(i32, i32)
