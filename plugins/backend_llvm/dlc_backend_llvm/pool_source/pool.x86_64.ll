; Made of pool.c by tools/make_pool_ir.py for Linux on x86_64.

%struct.Queue = type { i64, [120 x i8] }
%struct.cpu_set_t = type { [16 x i64] }
%struct.__sigset_t = type { [16 x i64] }
%struct.timespec = type { i64, i64 }

@limit = internal global i32 0, align 4
@busy = internal global i32 0, align 128
@done = internal global i32 0, align 128
@process = internal global i32 0, align 4
@workers = internal global i32 0, align 4
@sleepers = internal global i32 0, align 128
@waiting = internal global i32 0, align 4
@start_workers.faults = internal constant [5 x i32] [i32 4, i32 5, i32 7, i32 8, i32 11], align 16
@threads = internal global i32 0, align 128
@generation = internal global i32 0, align 128
@body = internal global ptr null, align 128
@closure = internal global ptr null, align 8
@items = internal global i64 0, align 8
@ranges = internal global i64 0, align 8
@queues = internal global [1024 x %struct.Queue] zeroinitializer, align 128

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
  %call = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
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

declare i32 @sched_getaffinity(i32, i64, ptr)

declare i64 @llvm.ctpop.i64(i64)

define weak i32 @dlc_parallel_for(ptr %run, ptr %argument, i64 %n, i32 %requested) nounwind {
entry:
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
  %call.i = call i32 @dlc_pool_get_num_threads()
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
  %call.i51 = call i32 @getpid()
  %2 = load atomic i32, ptr @process acquire, align 4
  %cmp.i52 = icmp eq i32 %call.i51, %2
  br i1 %cmp.i52, label %lor.lhs.false4, label %if.end.i

if.end.i:
  %cmp1.i53 = icmp eq i32 %2, -1
  br i1 %cmp1.i53, label %if.then5, label %lor.lhs.false.i

lor.lhs.false.i:
  %3 = cmpxchg ptr @process, i32 %2, i32 -1 seq_cst seq_cst, align 4
  %4 = extractvalue { i32, i1 } %3, 1
  br i1 %4, label %if.end3.i, label %if.then5

if.end3.i:
  store i32 0, ptr @workers, align 4
  store atomic i32 0, ptr @sleepers seq_cst, align 128
  store atomic i32 0, ptr @waiting seq_cst, align 4
  store atomic i32 0, ptr @busy seq_cst, align 128
  store atomic i32 %call.i51, ptr @process seq_cst, align 4
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
  br i1 %cmp.not.i, label %if.end.i55, label %if.end11

if.end.i55:
  %call.i56 = call i32 @sigfillset(ptr %blocked.i)
  br label %for.body.i

for.cond.cleanup.i:
  %call4.i = call i32 @pthread_sigmask(i32 2, ptr %blocked.i, ptr %previous.i)
  %.old.i = load i32, ptr @workers, align 4
  %cmp5.old.i = icmp slt i32 %.old.i, %sub
  br i1 %cmp5.old.i, label %while.body.i, label %start_workers.exit

for.body.i:
  %indvars.iv.i = phi i64 [ 0, %if.end.i55 ], [ %indvars.iv.next.i, %for.body.i ]
  %arrayidx.i = getelementptr i32, ptr @start_workers.faults, i64 %indvars.iv.i
  %8 = load i32, ptr %arrayidx.i, align 4
  %call3.i = call i32 @sigdelset(ptr %blocked.i, i32 %8)
  %indvars.iv.next.i = add i64 %indvars.iv.i, 1
  %exitcond.not.i = icmp eq i64 %indvars.iv.next.i, 5
  br i1 %exitcond.not.i, label %for.cond.cleanup.i, label %for.body.i

while.body.i:
  %9 = phi i32 [ %inc12.i, %cleanup.i ], [ %.old.i, %for.cond.cleanup.i ]
  %conv7.i = sext i32 %9 to i64
  %10 = inttoptr i64 %conv7.i to ptr
  %call8.i = call i32 @pthread_create(ptr %thread.i, ptr null, ptr @worker, ptr %10)
  %tobool.not.i = icmp eq i32 %call8.i, 0
  br i1 %tobool.not.i, label %cleanup.i, label %cleanup.thread.i

cleanup.thread.i:
  br label %start_workers.exit

cleanup.i:
  %11 = load i64, ptr %thread.i, align 8
  %call11.i = call i32 @pthread_detach(i64 %11)
  %12 = load i32, ptr @workers, align 4
  %inc12.i = add i32 %12, 1
  store i32 %inc12.i, ptr @workers, align 4
  %cmp5.i = icmp slt i32 %inc12.i, %sub
  br i1 %cmp5.i, label %while.body.i, label %start_workers.exit

start_workers.exit:
  %call13.i = call i32 @pthread_sigmask(i32 2, ptr %previous.i, ptr null)
  %13 = load i32, ptr @workers, align 4
  %cmp8 = icmp eq i32 %13, 0
  br i1 %cmp8, label %if.then9, label %if.end11

if.then9:
  store atomic i32 0, ptr @busy release, align 128
  call void %run(ptr %argument, i64 0, i64 %n)
  br label %return

if.end11:
  %retval.0.i5487 = phi i32 [ %13, %start_workers.exit ], [ %7, %if.end6 ]
  %add = add i32 %retval.0.i5487, 1
  %spec.select = call i32 @llvm.smin.i32(i32 %add, i32 %cond.i)
  %conv = sext i32 %spec.select to i64
  %mul = shl i64 %conv, 3
  %cond23 = call i64 @llvm.smin.i64(i64 %mul, i64 %n)
  %14 = ptrtoint ptr %run to i64
  store atomic i64 %14, ptr @body monotonic, align 128
  %15 = ptrtoint ptr %argument to i64
  store atomic i64 %15, ptr @closure monotonic, align 8
  store atomic i64 %n, ptr @items monotonic, align 8
  store atomic i64 %cond23, ptr @ranges monotonic, align 8
  store atomic i32 0, ptr @done monotonic, align 128
  store atomic i32 0, ptr @waiting monotonic, align 4
  %16 = load atomic i32, ptr @threads monotonic, align 128
  store atomic i32 %spec.select, ptr @threads release, align 128
  %17 = load atomic i32, ptr @generation monotonic, align 128
  %add.i = add i32 %17, 1
  %cmp34.i = icmp sgt i32 %spec.select, 0
  br i1 %cmp34.i, label %for.body.lr.ph.i, label %for.cond.cleanup.i58

for.body.lr.ph.i:
  %conv12.i = zext i32 %add.i to i64
  %shl.i = shl i64 %conv12.i, 32
  br label %for.body.i61

for.cond.cleanup.i58:
  store atomic i32 %add.i, ptr @generation seq_cst, align 128
  %18 = load atomic i32, ptr @sleepers seq_cst, align 128
  %cmp17.i = icmp sgt i32 %18, 0
  br i1 %cmp17.i, label %if.then.i60, label %if.end.i59

for.body.i61:
  %first.036.i = phi i64 [ 0, %for.body.lr.ph.i ], [ %div.i, %for.body.i61 ]
  %thread.035.i = phi i64 [ 0, %for.body.lr.ph.i ], [ %add9.i, %for.body.i61 ]
  %add9.i = add i64 %thread.035.i, 1
  %mul.i = mul i64 %add9.i, %cond23
  %div.i = udiv i64 %mul.i, %conv
  %arrayidx.i62 = getelementptr %struct.Queue, ptr @queues, i64 %thread.035.i
  %shl13.i = shl i64 %div.i, 16
  %or.i = or i64 %first.036.i, %shl.i
  %or14.i = or i64 %or.i, %shl13.i
  store atomic i64 %or14.i, ptr %arrayidx.i62 release, align 128
  %exitcond.not.i63 = icmp eq i64 %add9.i, %conv
  br i1 %exitcond.not.i63, label %for.cond.cleanup.i58, label %for.body.i61

if.then.i60:
  %call.i.i = call i64 (i64, ...) @syscall(i64 202, ptr @generation, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  br label %if.end.i59

if.end.i59:
  %cmp19.i = icmp sgt i32 %spec.select, %16
  br i1 %cmp19.i, label %if.then21.i, label %publish.exit

if.then21.i:
  %call.i33.i = call i64 (i64, ...) @syscall(i64 202, ptr @threads, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  br label %publish.exit

publish.exit:
  br i1 %cmp34.i, label %for.body.lr.ph.i65, label %work.exit

for.body.lr.ph.i65:
  %conv.i66 = zext i32 %add.i to i64
  br label %for.body.i67

for.body.i67:
  %count.082.i = phi i32 [ 0, %for.body.lr.ph.i65 ], [ %count.1.lcssa.i, %for.end.i ]
  %owner.081.i = phi i32 [ 0, %for.body.lr.ph.i65 ], [ %cond42.i, %for.end.i ]
  %visits.080.i = phi i32 [ 0, %for.body.lr.ph.i65 ], [ %inc43.i, %for.end.i ]
  %idxprom.i = sext i32 %owner.081.i to i64
  %arrayidx.i68 = getelementptr %struct.Queue, ptr @queues, i64 %idxprom.i
  %19 = load atomic i64, ptr %arrayidx.i68 acquire, align 128
  %and69.i = and i64 %19, 65535
  %shr70.i = lshr i64 %19, 16
  %and271.i = and i64 %shr70.i, 65535
  %shr372.i = lshr i64 %19, 32
  %cmp4.not73.i = icmp eq i64 %shr372.i, %conv.i66
  %cmp6.not74.i = icmp ult i64 %and69.i, %and271.i
  %or.cond75.i = select i1 %cmp4.not73.i, i1 %cmp6.not74.i, i1 false
  br i1 %or.cond75.i, label %if.end.lr.ph.i, label %for.end.i

if.end.lr.ph.i:
  %cmp12.i = icmp eq i32 %visits.080.i, 0
  %cond20.v.i = select i1 %cmp12.i, i64 1, i64 -65536
  br label %if.end.i70

if.end.i70:
  %and278.i = phi i64 [ %and271.i, %if.end.lr.ph.i ], [ %and2.i, %cleanup32.i ]
  %and77.i = phi i64 [ %and69.i, %if.end.lr.ph.i ], [ %and.i, %cleanup32.i ]
  %20 = phi i64 [ %19, %if.end.lr.ph.i ], [ %29, %cleanup32.i ]
  %count.176.i = phi i32 [ %count.082.i, %if.end.lr.ph.i ], [ %count.3.i, %cleanup32.i ]
  %21 = load atomic i64, ptr @body monotonic, align 128
  %22 = load atomic i64, ptr @closure monotonic, align 8
  %23 = load atomic i64, ptr @items monotonic, align 8
  %24 = load atomic i64, ptr @ranges monotonic, align 8
  %cond20.i = add i64 %20, %cond20.v.i
  %25 = cmpxchg ptr %arrayidx.i68, i64 %20, i64 %cond20.i acq_rel monotonic, align 128
  %26 = extractvalue { i64, i1 } %25, 1
  br i1 %26, label %if.end23.i, label %cleanup32.i

if.end23.i:
  %sub.i = add i64 %and278.i, -1
  %cond.i71 = select i1 %cmp12.i, i64 %and77.i, i64 %sub.i
  %27 = inttoptr i64 %22 to ptr
  %28 = inttoptr i64 %21 to ptr
  %mul.i72 = mul i64 %23, %cond.i71
  %div.i73 = udiv i64 %mul.i72, %24
  %add24.i = add i64 %cond.i71, 1
  %mul25.i = mul i64 %23, %add24.i
  %div26.i = udiv i64 %mul25.i, %24
  call void %28(ptr %27, i64 %div.i73, i64 %div26.i)
  %inc.i = add i32 %count.176.i, 1
  br label %cleanup32.i

cleanup32.i:
  %count.3.i = phi i32 [ %count.176.i, %if.end.i70 ], [ %inc.i, %if.end23.i ]
  %29 = load atomic i64, ptr %arrayidx.i68 acquire, align 128
  %and.i = and i64 %29, 65535
  %shr.i = lshr i64 %29, 16
  %and2.i = and i64 %shr.i, 65535
  %shr3.i = lshr i64 %29, 32
  %cmp4.not.i = icmp eq i64 %shr3.i, %conv.i66
  %cmp6.not.i = icmp ult i64 %and.i, %and2.i
  %or.cond.i = select i1 %cmp4.not.i, i1 %cmp6.not.i, i1 false
  br i1 %or.cond.i, label %if.end.i70, label %for.end.i

for.end.i:
  %count.1.lcssa.i = phi i32 [ %count.082.i, %for.body.i67 ], [ %count.3.i, %cleanup32.i ]
  %add35.i = add i32 %owner.081.i, 1
  %cmp36.not.i = icmp slt i32 %add35.i, %spec.select
  %cond42.i = select i1 %cmp36.not.i, i32 %add35.i, i32 0
  %inc43.i = add i32 %visits.080.i, 1
  %exitcond.not.i69 = icmp eq i32 %inc43.i, %spec.select
  br i1 %exitcond.not.i69, label %work.exit, label %for.body.i67

work.exit:
  %count.0.lcssa.i = phi i32 [ 0, %publish.exit ], [ %count.1.lcssa.i, %for.end.i ]
  %30 = atomicrmw add ptr @done, i32 %count.0.lcssa.i seq_cst, align 128
  %conv27 = trunc i64 %cond23 to i32
  %31 = load atomic i32, ptr @done acquire, align 128
  %cmp.not9.i = icmp eq i32 %31, %conv27
  br i1 %cmp.not9.i, label %await.exit, label %for.body.i74

for.body.i74:
  %tries.010.i = phi i32 [ %tries.1.i, %for.inc.i ], [ 0, %work.exit ]
  %cmp1.i75 = icmp ult i32 %tries.010.i, 4001
  br i1 %cmp1.i75, label %if.then.i80, label %if.end.i76

if.then.i80:
  call void @llvm.x86.sse2.pause()
  %32 = add i32 %tries.010.i, 1
  br label %for.inc.i

if.end.i76:
  store atomic i32 1, ptr @waiting seq_cst, align 4
  %33 = load atomic i32, ptr @done seq_cst, align 128
  %cmp3.not.i = icmp eq i32 %33, %conv27
  br i1 %cmp3.not.i, label %for.inc.i, label %if.then4.i

if.then4.i:
  %call.i.i77 = call i64 (i64, ...) @syscall(i64 202, ptr @done, i32 128, i32 %33, ptr null, ptr null, i32 0)
  br label %for.inc.i

for.inc.i:
  %tries.1.i = phi i32 [ %32, %if.then.i80 ], [ 1, %if.then4.i ], [ 1, %if.end.i76 ]
  %34 = load atomic i32, ptr @done acquire, align 128
  %cmp.not.i78 = icmp eq i32 %34, %conv27
  br i1 %cmp.not.i78, label %await.exit, label %for.body.i74

await.exit:
  store atomic i32 0, ptr @busy release, align 128
  br label %return

return:
  ret i32 0
}

declare i32 @getpid()

declare i32 @sigfillset(ptr)

declare i32 @sigdelset(ptr, i32)

declare i32 @pthread_sigmask(i32, ptr, ptr)

declare i32 @pthread_create(ptr, ptr, ptr, ptr)

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
  call void @llvm.x86.sse2.pause()
  %rem.i = and i32 %tries.032.i, 63
  %tobool.not.i = icmp eq i32 %rem.i, 0
  br i1 %tobool.not.i, label %if.end2.i, label %for.inc.i

if.end2.i:
  %call.i.i = call i32 @clock_gettime(i32 1, ptr %now.i.i)
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
  %call.i25.i = call i64 (i64, ...) @syscall(i64 202, ptr @generation, i32 128, i32 %seen.0, ptr null, ptr null, i32 0)
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
  %call.i = call i64 (i64, ...) @syscall(i64 202, ptr @threads, i32 128, i32 %8, ptr null, ptr null, i32 0)
  br label %for.cond.backedge

if.end:
  %cmp79.i = icmp sgt i32 %8, 0
  br i1 %cmp79.i, label %for.body.lr.ph.i, label %for.cond.backedge

for.cond.backedge:
  br label %for.cond

for.body.lr.ph.i:
  %conv.i = zext i32 %.lcssa.i to i64
  br label %for.body.i

for.body.i:
  %count.082.i = phi i32 [ 0, %for.body.lr.ph.i ], [ %count.1.lcssa.i, %for.end.i ]
  %owner.081.i = phi i32 [ %add, %for.body.lr.ph.i ], [ %cond42.i, %for.end.i ]
  %visits.080.i = phi i32 [ 0, %for.body.lr.ph.i ], [ %inc43.i, %for.end.i ]
  %idxprom.i = sext i32 %owner.081.i to i64
  %arrayidx.i = getelementptr %struct.Queue, ptr @queues, i64 %idxprom.i
  %9 = load atomic i64, ptr %arrayidx.i acquire, align 128
  %and69.i = and i64 %9, 65535
  %shr70.i = lshr i64 %9, 16
  %and271.i = and i64 %shr70.i, 65535
  %shr372.i = lshr i64 %9, 32
  %cmp4.not73.i = icmp eq i64 %shr372.i, %conv.i
  %cmp6.not74.i = icmp ult i64 %and69.i, %and271.i
  %or.cond75.i = select i1 %cmp4.not73.i, i1 %cmp6.not74.i, i1 false
  br i1 %or.cond75.i, label %if.end.lr.ph.i17, label %for.end.i

if.end.lr.ph.i17:
  %cmp12.i = icmp eq i32 %visits.080.i, 0
  %cond20.v.i = select i1 %cmp12.i, i64 1, i64 -65536
  br label %if.end.i18

if.end.i18:
  %and278.i = phi i64 [ %and271.i, %if.end.lr.ph.i17 ], [ %and2.i, %cleanup32.i ]
  %and77.i = phi i64 [ %and69.i, %if.end.lr.ph.i17 ], [ %and.i, %cleanup32.i ]
  %10 = phi i64 [ %9, %if.end.lr.ph.i17 ], [ %19, %cleanup32.i ]
  %count.176.i = phi i32 [ %count.082.i, %if.end.lr.ph.i17 ], [ %count.3.i, %cleanup32.i ]
  %11 = load atomic i64, ptr @body monotonic, align 128
  %12 = load atomic i64, ptr @closure monotonic, align 8
  %13 = load atomic i64, ptr @items monotonic, align 8
  %14 = load atomic i64, ptr @ranges monotonic, align 8
  %cond20.i = add i64 %10, %cond20.v.i
  %15 = cmpxchg ptr %arrayidx.i, i64 %10, i64 %cond20.i acq_rel monotonic, align 128
  %16 = extractvalue { i64, i1 } %15, 1
  br i1 %16, label %if.end23.i, label %cleanup32.i

if.end23.i:
  %sub.i19 = add i64 %and278.i, -1
  %cond.i = select i1 %cmp12.i, i64 %and77.i, i64 %sub.i19
  %17 = inttoptr i64 %12 to ptr
  %18 = inttoptr i64 %11 to ptr
  %mul.i = mul i64 %13, %cond.i
  %div.i = udiv i64 %mul.i, %14
  %add24.i = add i64 %cond.i, 1
  %mul25.i = mul i64 %13, %add24.i
  %div26.i = udiv i64 %mul25.i, %14
  call void %18(ptr %17, i64 %div.i, i64 %div26.i)
  %inc.i20 = add i32 %count.176.i, 1
  br label %cleanup32.i

cleanup32.i:
  %count.3.i = phi i32 [ %count.176.i, %if.end.i18 ], [ %inc.i20, %if.end23.i ]
  %19 = load atomic i64, ptr %arrayidx.i acquire, align 128
  %and.i = and i64 %19, 65535
  %shr.i = lshr i64 %19, 16
  %and2.i = and i64 %shr.i, 65535
  %shr3.i = lshr i64 %19, 32
  %cmp4.not.i = icmp eq i64 %shr3.i, %conv.i
  %cmp6.not.i = icmp ult i64 %and.i, %and2.i
  %or.cond.i = select i1 %cmp4.not.i, i1 %cmp6.not.i, i1 false
  br i1 %or.cond.i, label %if.end.i18, label %for.end.i

for.end.i:
  %count.1.lcssa.i = phi i32 [ %count.082.i, %for.body.i ], [ %count.3.i, %cleanup32.i ]
  %add35.i = add i32 %owner.081.i, 1
  %cmp36.not.i = icmp slt i32 %add35.i, %8
  %cond42.i = select i1 %cmp36.not.i, i32 %add35.i, i32 0
  %inc43.i = add i32 %visits.080.i, 1
  %exitcond.not.i = icmp eq i32 %inc43.i, %8
  br i1 %exitcond.not.i, label %work.exit, label %for.body.i

work.exit:
  %cmp3 = icmp eq i32 %count.1.lcssa.i, 0
  br i1 %cmp3, label %for.cond.backedge, label %if.end6

if.end6:
  %20 = atomicrmw add ptr @done, i32 %count.1.lcssa.i seq_cst, align 128
  %21 = load atomic i32, ptr @waiting seq_cst, align 4
  %tobool.not = icmp eq i32 %21, 0
  br i1 %tobool.not, label %for.cond.backedge, label %if.then9

if.then9:
  %call.i21 = call i64 (i64, ...) @syscall(i64 202, ptr @done, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  br label %for.cond.backedge
}

declare i32 @pthread_detach(i64)

declare void @llvm.x86.sse2.pause()

declare i32 @clock_gettime(i32, ptr)

declare i64 @syscall(i64, ...)

declare i32 @llvm.smax.i32(i32, i32)

declare i32 @llvm.umax.i32(i32, i32)

declare i64 @llvm.smin.i64(i64, i64)

declare i32 @llvm.smin.i32(i32, i32)
