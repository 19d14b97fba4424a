
define internal void @fused_matmul_relu(ptr noalias %arg0, ptr noalias %arg1, ptr noalias %arg2, i32 %threads) nounwind {
entry:
  br label %loop1
loop1:
  %i1 = phi i64 [ 0, %entry ], [ %n2, %done4 ]
  %v17 = mul i64 %i1, 144
  %v75 = mul i64 %i1, 96
  %p76 = getelementptr inbounds float, ptr %arg2, i64 %v75
  br label %loop3
loop3:
  %i3 = phi i64 [ 0, %loop1 ], [ %n4, %loop3 ]
  %r5 = phi <8 x float> [ splat (float 0x0000000000000000), %loop1 ], [ %v27, %loop3 ]
  %r6 = phi <8 x float> [ splat (float 0x0000000000000000), %loop1 ], [ %v31, %loop3 ]
  %r7 = phi <8 x float> [ splat (float 0x0000000000000000), %loop1 ], [ %v37, %loop3 ]
  %r8 = phi <8 x float> [ splat (float 0x0000000000000000), %loop1 ], [ %v39, %loop3 ]
  %r9 = phi <8 x float> [ splat (float 0x0000000000000000), %loop1 ], [ %v45, %loop3 ]
  %r10 = phi <8 x float> [ splat (float 0x0000000000000000), %loop1 ], [ %v47, %loop3 ]
  %r11 = phi <8 x float> [ splat (float 0x0000000000000000), %loop1 ], [ %v53, %loop3 ]
  %r12 = phi <8 x float> [ splat (float 0x0000000000000000), %loop1 ], [ %v55, %loop3 ]
  %r13 = phi <8 x float> [ splat (float 0x0000000000000000), %loop1 ], [ %v61, %loop3 ]
  %r14 = phi <8 x float> [ splat (float 0x0000000000000000), %loop1 ], [ %v63, %loop3 ]
  %r15 = phi <8 x float> [ splat (float 0x0000000000000000), %loop1 ], [ %v69, %loop3 ]
  %r16 = phi <8 x float> [ splat (float 0x0000000000000000), %loop1 ], [ %v71, %loop3 ]
  %v18 = add i64 %v17, %i3
  %p19 = getelementptr inbounds float, ptr %arg0, i64 %v18
  %v23 = mul i64 %i3, 16
  %p24 = getelementptr inbounds float, ptr %arg1, i64 %v23
  %v20 = load float, ptr %p19, align 4
  %v21 = insertelement <8 x float> poison, float %v20, i32 0
  %v22 = shufflevector <8 x float> %v21, <8 x float> poison, <8 x i32> zeroinitializer
  %v25 = load <8 x float>, ptr %p24, align 4
  %v26 = fmul contract <8 x float> %v22, %v25
  %v27 = fadd contract <8 x float> %r5, %v26
  %p28 = getelementptr inbounds float, ptr %p24, i64 8
  %v29 = load <8 x float>, ptr %p28, align 4
  %v30 = fmul contract <8 x float> %v22, %v29
  %v31 = fadd contract <8 x float> %r6, %v30
  %p32 = getelementptr inbounds float, ptr %p19, i64 24
  %v33 = load float, ptr %p32, align 4
  %v34 = insertelement <8 x float> poison, float %v33, i32 0
  %v35 = shufflevector <8 x float> %v34, <8 x float> poison, <8 x i32> zeroinitializer
  %v36 = fmul contract <8 x float> %v35, %v25
  %v37 = fadd contract <8 x float> %r7, %v36
  %v38 = fmul contract <8 x float> %v35, %v29
  %v39 = fadd contract <8 x float> %r8, %v38
  %p40 = getelementptr inbounds float, ptr %p19, i64 48
  %v41 = load float, ptr %p40, align 4
  %v42 = insertelement <8 x float> poison, float %v41, i32 0
  %v43 = shufflevector <8 x float> %v42, <8 x float> poison, <8 x i32> zeroinitializer
  %v44 = fmul contract <8 x float> %v43, %v25
  %v45 = fadd contract <8 x float> %r9, %v44
  %v46 = fmul contract <8 x float> %v43, %v29
  %v47 = fadd contract <8 x float> %r10, %v46
  %p48 = getelementptr inbounds float, ptr %p19, i64 72
  %v49 = load float, ptr %p48, align 4
  %v50 = insertelement <8 x float> poison, float %v49, i32 0
  %v51 = shufflevector <8 x float> %v50, <8 x float> poison, <8 x i32> zeroinitializer
  %v52 = fmul contract <8 x float> %v51, %v25
  %v53 = fadd contract <8 x float> %r11, %v52
  %v54 = fmul contract <8 x float> %v51, %v29
  %v55 = fadd contract <8 x float> %r12, %v54
  %p56 = getelementptr inbounds float, ptr %p19, i64 96
  %v57 = load float, ptr %p56, align 4
  %v58 = insertelement <8 x float> poison, float %v57, i32 0
  %v59 = shufflevector <8 x float> %v58, <8 x float> poison, <8 x i32> zeroinitializer
  %v60 = fmul contract <8 x float> %v59, %v25
  %v61 = fadd contract <8 x float> %r13, %v60
  %v62 = fmul contract <8 x float> %v59, %v29
  %v63 = fadd contract <8 x float> %r14, %v62
  %p64 = getelementptr inbounds float, ptr %p19, i64 120
  %v65 = load float, ptr %p64, align 4
  %v66 = insertelement <8 x float> poison, float %v65, i32 0
  %v67 = shufflevector <8 x float> %v66, <8 x float> poison, <8 x i32> zeroinitializer
  %v68 = fmul contract <8 x float> %v67, %v25
  %v69 = fadd contract <8 x float> %r15, %v68
  %v70 = fmul contract <8 x float> %v67, %v29
  %v71 = fadd contract <8 x float> %r16, %v70
  %n4 = add nsw i64 %i3, 1
  %v72 = icmp slt i64 %n4, 24
  br i1 %v72, label %loop3, label %done4
done4:
  %v73 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v27
  %v74 = select <8 x i1> %v73, <8 x float> splat (float 0x0000000000000000), <8 x float> %v27
  store <8 x float> %v74, ptr %p76, align 4
  %v77 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v31
  %v78 = select <8 x i1> %v77, <8 x float> splat (float 0x0000000000000000), <8 x float> %v31
  %p79 = getelementptr inbounds float, ptr %p76, i64 8
  store <8 x float> %v78, ptr %p79, align 4
  %v80 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v37
  %v81 = select <8 x i1> %v80, <8 x float> splat (float 0x0000000000000000), <8 x float> %v37
  %p82 = getelementptr inbounds float, ptr %p76, i64 16
  store <8 x float> %v81, ptr %p82, align 4
  %v83 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v39
  %v84 = select <8 x i1> %v83, <8 x float> splat (float 0x0000000000000000), <8 x float> %v39
  %p85 = getelementptr inbounds float, ptr %p76, i64 24
  store <8 x float> %v84, ptr %p85, align 4
  %v86 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v45
  %v87 = select <8 x i1> %v86, <8 x float> splat (float 0x0000000000000000), <8 x float> %v45
  %p88 = getelementptr inbounds float, ptr %p76, i64 32
  store <8 x float> %v87, ptr %p88, align 4
  %v89 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v47
  %v90 = select <8 x i1> %v89, <8 x float> splat (float 0x0000000000000000), <8 x float> %v47
  %p91 = getelementptr inbounds float, ptr %p76, i64 40
  store <8 x float> %v90, ptr %p91, align 4
  %v92 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v53
  %v93 = select <8 x i1> %v92, <8 x float> splat (float 0x0000000000000000), <8 x float> %v53
  %p94 = getelementptr inbounds float, ptr %p76, i64 48
  store <8 x float> %v93, ptr %p94, align 4
  %v95 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v55
  %v96 = select <8 x i1> %v95, <8 x float> splat (float 0x0000000000000000), <8 x float> %v55
  %p97 = getelementptr inbounds float, ptr %p76, i64 56
  store <8 x float> %v96, ptr %p97, align 4
  %v98 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v61
  %v99 = select <8 x i1> %v98, <8 x float> splat (float 0x0000000000000000), <8 x float> %v61
  %p100 = getelementptr inbounds float, ptr %p76, i64 64
  store <8 x float> %v99, ptr %p100, align 4
  %v101 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v63
  %v102 = select <8 x i1> %v101, <8 x float> splat (float 0x0000000000000000), <8 x float> %v63
  %p103 = getelementptr inbounds float, ptr %p76, i64 72
  store <8 x float> %v102, ptr %p103, align 4
  %v104 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v69
  %v105 = select <8 x i1> %v104, <8 x float> splat (float 0x0000000000000000), <8 x float> %v69
  %p106 = getelementptr inbounds float, ptr %p76, i64 80
  store <8 x float> %v105, ptr %p106, align 4
  %v107 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v71
  %v108 = select <8 x i1> %v107, <8 x float> splat (float 0x0000000000000000), <8 x float> %v71
  %p109 = getelementptr inbounds float, ptr %p76, i64 88
  store <8 x float> %v108, ptr %p109, align 4
  %n2 = add nsw i64 %i1, 1
  %v110 = icmp slt i64 %n2, 2
  br i1 %v110, label %loop1, label %done2
done2:
  ret void
}


