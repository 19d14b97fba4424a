
define internal void @fused_reduce_sum(ptr noalias %arg0, ptr noalias %arg1, i32 %threads) nounwind {
entry:
  %v14 = icmp slt <8 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>, splat (i64 1)
  br label %loop1
loop1:
  %i1 = phi i64 [ 0, %entry ], [ %n2, %done4 ]
  %v6 = mul i64 %i1, 33
  %p16 = getelementptr inbounds half, ptr %arg0, i64 %v6
  %p36 = getelementptr inbounds half, ptr %arg1, i64 %i1
  br label %loop3
loop3:
  %i3 = phi i64 [ 0, %loop1 ], [ %n4, %loop3 ]
  %r5 = phi <8 x float> [ splat (float 0x0000000000000000), %loop1 ], [ %v12, %loop3 ]
  %v7 = mul i64 %i3, 8
  %v8 = add i64 %v6, %v7
  %p9 = getelementptr inbounds half, ptr %arg0, i64 %v8
  %v10 = load <8 x half>, ptr %p9, align 2
  %mv11.0 = fpext <8 x half> %v10 to <8 x float>
  %v12 = fadd contract <8 x float> %r5, %mv11.0
  %n4 = add nsw i64 %i3, 1
  %v13 = icmp slt i64 %n4, 4
  br i1 %v13, label %loop3, label %done4
done4:
  %v15 = xor <8 x i1> %v14, splat (i1 true)
  %p17 = getelementptr inbounds half, ptr %p16, i64 32
  %v18 = call <8 x half> @llvm.masked.load.v8f16.p0(ptr align 2 %p17, <8 x i1> %v14, <8 x half> zeroinitializer)
  %mv19.0 = fpext <8 x half> %v18 to <8 x float>
  %v20 = select <8 x i1> %v14, <8 x float> %mv19.0, <8 x float> splat (float 0x0000000000000000)
  %v21 = fadd contract <8 x float> %v12, %v20
  %v22 = shufflevector <8 x float> %v21, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v23 = fadd contract <4 x float> splat (float 0x0000000000000000), %v22
  %v24 = shufflevector <8 x float> %v21, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v25 = fadd contract <4 x float> %v23, %v24
  %v26 = shufflevector <4 x float> %v25, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v27 = fadd contract <2 x float> splat (float 0x0000000000000000), %v26
  %v28 = shufflevector <4 x float> %v25, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v29 = fadd contract <2 x float> %v27, %v28
  %v30 = extractelement <2 x float> %v29, i32 0
  %v31 = fadd contract float 0x0000000000000000, %v30
  %v32 = extractelement <2 x float> %v29, i32 1
  %v33 = fadd contract float %v31, %v32
  %mv34.0 = fptrunc float %v33 to half
  %mv35.0 = fpext half %mv34.0 to float
  %mv37.0 = fptrunc float %mv35.0 to half
  store half %mv37.0, ptr %p36, align 2
  %n2 = add nsw i64 %i1, 1
  %v38 = icmp slt i64 %n2, 5
  br i1 %v38, label %loop1, label %done2
done2:
  ret void
}


