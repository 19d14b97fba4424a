declare i32 @dlc_parallel_for(ptr, ptr, i64, i32)

define internal void @fused_softmax.region1(ptr %closure, i64 %begin, i64 %end) nounwind {
entry:
  %buf65 = alloca [20 x float], align 64
  %p1 = getelementptr i64, ptr %closure, i64 0
  %c2 = load ptr, ptr %p1, align 8
  %p3 = getelementptr i64, ptr %closure, i64 1
  %c4 = load ptr, ptr %p3, align 8
  %p5 = getelementptr i64, ptr %closure, i64 2
  %c6 = load i64, ptr %p5, align 8
  %v7 = sub i64 %end, %begin
  %v25 = icmp slt <8 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>, splat (i64 4)
  %v8 = add i64 %begin, %v7
  %v9 = icmp sgt i64 %v7, 0
  br i1 %v9, label %loop1, label %done2
loop1:
  %i10 = phi i64 [ %begin, %entry ], [ %n11, %done6 ]
  %v15 = mul i64 %i10, 20
  %p27 = getelementptr inbounds float, ptr %c2, i64 %v15
  %p113 = getelementptr inbounds float, ptr %c4, i64 %v15
  br label %loop3
loop3:
  %i12 = phi i64 [ 0, %loop1 ], [ %n13, %loop3 ]
  %r14 = phi <8 x float> [ splat (float 0xFFF0000000000000), %loop1 ], [ %v23, %loop3 ]
  %v16 = mul i64 %i12, 8
  %v17 = add i64 %v15, %v16
  %p18 = getelementptr inbounds float, ptr %c2, i64 %v17
  %v19 = load <8 x float>, ptr %p18, align 4
  %v20 = fcmp ogt <8 x float> %v19, %r14
  %v21 = select <8 x i1> %v20, <8 x float> %v19, <8 x float> %r14
  %v22 = fcmp uno <8 x float> %v19, %v19
  %v23 = select <8 x i1> %v22, <8 x float> %v19, <8 x float> %v21
  %n13 = add nsw i64 %i12, 1
  %v24 = icmp slt i64 %n13, 2
  br i1 %v24, label %loop3, label %done4
done4:
  %v26 = xor <8 x i1> %v25, splat (i1 true)
  %p28 = getelementptr inbounds float, ptr %p27, i64 16
  %v29 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p28, <8 x i1> %v25, <8 x float> zeroinitializer)
  %v30 = select <8 x i1> %v25, <8 x float> %v29, <8 x float> splat (float 0xFFF0000000000000)
  %v31 = fcmp ogt <8 x float> %v30, %v23
  %v32 = select <8 x i1> %v31, <8 x float> %v30, <8 x float> %v23
  %v33 = fcmp uno <8 x float> %v30, %v30
  %v34 = select <8 x i1> %v33, <8 x float> %v30, <8 x float> %v32
  %v35 = shufflevector <8 x float> %v34, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v36 = fcmp ogt <4 x float> %v35, splat (float 0xFFF0000000000000)
  %v37 = select <4 x i1> %v36, <4 x float> %v35, <4 x float> splat (float 0xFFF0000000000000)
  %v38 = fcmp uno <4 x float> %v35, %v35
  %v39 = select <4 x i1> %v38, <4 x float> %v35, <4 x float> %v37
  %v40 = shufflevector <8 x float> %v34, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v41 = fcmp ogt <4 x float> %v40, %v39
  %v42 = select <4 x i1> %v41, <4 x float> %v40, <4 x float> %v39
  %v43 = fcmp uno <4 x float> %v40, %v40
  %v44 = select <4 x i1> %v43, <4 x float> %v40, <4 x float> %v42
  %v45 = shufflevector <4 x float> %v44, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v46 = fcmp ogt <2 x float> %v45, splat (float 0xFFF0000000000000)
  %v47 = select <2 x i1> %v46, <2 x float> %v45, <2 x float> splat (float 0xFFF0000000000000)
  %v48 = fcmp uno <2 x float> %v45, %v45
  %v49 = select <2 x i1> %v48, <2 x float> %v45, <2 x float> %v47
  %v50 = shufflevector <4 x float> %v44, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v51 = fcmp ogt <2 x float> %v50, %v49
  %v52 = select <2 x i1> %v51, <2 x float> %v50, <2 x float> %v49
  %v53 = fcmp uno <2 x float> %v50, %v50
  %v54 = select <2 x i1> %v53, <2 x float> %v50, <2 x float> %v52
  %v55 = extractelement <2 x float> %v54, i32 0
  %v56 = fcmp ogt float %v55, 0xFFF0000000000000
  %v57 = select i1 %v56, float %v55, float 0xFFF0000000000000
  %v58 = fcmp uno float %v55, %v55
  %v59 = select i1 %v58, float %v55, float %v57
  %v60 = extractelement <2 x float> %v54, i32 1
  %v61 = fcmp ogt float %v60, %v59
  %v62 = select i1 %v61, float %v60, float %v59
  %v63 = fcmp uno float %v60, %v60
  %v64 = select i1 %v63, float %v60, float %v62
  %v66 = load <8 x float>, ptr %p27, align 4
  %v67 = insertelement <8 x float> poison, float %v64, i32 0
  %v68 = shufflevector <8 x float> %v67, <8 x float> poison, <8 x i32> zeroinitializer
  %v69 = fsub contract <8 x float> %v66, %v68
  %mv70.0 = fcmp ogt <8 x float> splat (float 0xC05A000000000000), %v69
  %mv70.1 = select <8 x i1> %mv70.0, <8 x float> splat (float 0xC05A000000000000), <8 x float> %v69
  %mv70.2 = fcmp olt <8 x float> splat (float 0x4056600000000000), %mv70.1
  %mv70.3 = select <8 x i1> %mv70.2, <8 x float> splat (float 0x4056600000000000), <8 x float> %mv70.1
  %mv70.4 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv70.3, <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168001FC0000000))
  %mv70.5 = fsub <8 x float> %mv70.4, splat (float 0x4168001FC0000000)
  %mv70.6 = bitcast <8 x float> %mv70.4 to <8 x i32>
  %mv70.7 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0xBFE6300000000000), <8 x float> %mv70.5, <8 x float> %mv70.3)
  %mv70.8 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F2BD01060000000), <8 x float> %mv70.5, <8 x float> %mv70.7)
  %mv70.9 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F56B8B0A0000000), <8 x float> %mv70.8, <8 x float> splat (float 0x3F81226BA0000000))
  %mv70.10 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv70.9, <8 x float> %mv70.8, <8 x float> splat (float 0x3FA5557020000000))
  %mv70.11 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv70.10, <8 x float> %mv70.8, <8 x float> splat (float 0x3FC5554B20000000))
  %mv70.12 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv70.11, <8 x float> %mv70.8, <8 x float> splat (float 0x3FDFFFFFE0000000))
  %mv70.13 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv70.12, <8 x float> %mv70.8, <8 x float> splat (float 0x3FF0000000000000))
  %mv70.14 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv70.13, <8 x float> %mv70.8, <8 x float> splat (float 0x3FF0000000000000))
  %mv70.15 = lshr <8 x i32> %mv70.6, splat (i32 1)
  %mv70.16 = sub <8 x i32> %mv70.6, %mv70.15
  %mv70.17 = shl <8 x i32> %mv70.15, splat (i32 23)
  %mv70.18 = bitcast <8 x i32> %mv70.17 to <8 x float>
  %mv70.19 = fmul <8 x float> %mv70.14, %mv70.18
  %mv70.20 = shl <8 x i32> %mv70.16, splat (i32 23)
  %mv70.21 = bitcast <8 x i32> %mv70.20 to <8 x float>
  %mv70.22 = fmul <8 x float> %mv70.19, %mv70.21
  store <8 x float> %mv70.22, ptr %buf65, align 4
  %p71 = getelementptr inbounds float, ptr %p27, i64 8
  %v72 = load <8 x float>, ptr %p71, align 4
  %v73 = fsub contract <8 x float> %v72, %v68
  %mv74.0 = fcmp ogt <8 x float> splat (float 0xC05A000000000000), %v73
  %mv74.1 = select <8 x i1> %mv74.0, <8 x float> splat (float 0xC05A000000000000), <8 x float> %v73
  %mv74.2 = fcmp olt <8 x float> splat (float 0x4056600000000000), %mv74.1
  %mv74.3 = select <8 x i1> %mv74.2, <8 x float> splat (float 0x4056600000000000), <8 x float> %mv74.1
  %mv74.4 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv74.3, <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168001FC0000000))
  %mv74.5 = fsub <8 x float> %mv74.4, splat (float 0x4168001FC0000000)
  %mv74.6 = bitcast <8 x float> %mv74.4 to <8 x i32>
  %mv74.7 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0xBFE6300000000000), <8 x float> %mv74.5, <8 x float> %mv74.3)
  %mv74.8 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F2BD01060000000), <8 x float> %mv74.5, <8 x float> %mv74.7)
  %mv74.9 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F56B8B0A0000000), <8 x float> %mv74.8, <8 x float> splat (float 0x3F81226BA0000000))
  %mv74.10 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv74.9, <8 x float> %mv74.8, <8 x float> splat (float 0x3FA5557020000000))
  %mv74.11 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv74.10, <8 x float> %mv74.8, <8 x float> splat (float 0x3FC5554B20000000))
  %mv74.12 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv74.11, <8 x float> %mv74.8, <8 x float> splat (float 0x3FDFFFFFE0000000))
  %mv74.13 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv74.12, <8 x float> %mv74.8, <8 x float> splat (float 0x3FF0000000000000))
  %mv74.14 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv74.13, <8 x float> %mv74.8, <8 x float> splat (float 0x3FF0000000000000))
  %mv74.15 = lshr <8 x i32> %mv74.6, splat (i32 1)
  %mv74.16 = sub <8 x i32> %mv74.6, %mv74.15
  %mv74.17 = shl <8 x i32> %mv74.15, splat (i32 23)
  %mv74.18 = bitcast <8 x i32> %mv74.17 to <8 x float>
  %mv74.19 = fmul <8 x float> %mv74.14, %mv74.18
  %mv74.20 = shl <8 x i32> %mv74.16, splat (i32 23)
  %mv74.21 = bitcast <8 x i32> %mv74.20 to <8 x float>
  %mv74.22 = fmul <8 x float> %mv74.19, %mv74.21
  %p75 = getelementptr inbounds float, ptr %buf65, i64 8
  store <8 x float> %mv74.22, ptr %p75, align 4
  %p76 = getelementptr inbounds float, ptr %p27, i64 16
  %v77 = load <4 x float>, ptr %p76, align 4
  %v78 = insertelement <4 x float> poison, float %v64, i32 0
  %v79 = shufflevector <4 x float> %v78, <4 x float> poison, <4 x i32> zeroinitializer
  %v80 = fsub contract <4 x float> %v77, %v79
  %mv81.0 = fcmp ogt <4 x float> splat (float 0xC05A000000000000), %v80
  %mv81.1 = select <4 x i1> %mv81.0, <4 x float> splat (float 0xC05A000000000000), <4 x float> %v80
  %mv81.2 = fcmp olt <4 x float> splat (float 0x4056600000000000), %mv81.1
  %mv81.3 = select <4 x i1> %mv81.2, <4 x float> splat (float 0x4056600000000000), <4 x float> %mv81.1
  %mv81.4 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv81.3, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168001FC0000000))
  %mv81.5 = fsub <4 x float> %mv81.4, splat (float 0x4168001FC0000000)
  %mv81.6 = bitcast <4 x float> %mv81.4 to <4 x i32>
  %mv81.7 = call <4 x float> @llvm.fma.v4f32(<4 x float> splat (float 0xBFE6300000000000), <4 x float> %mv81.5, <4 x float> %mv81.3)
  %mv81.8 = call <4 x float> @llvm.fma.v4f32(<4 x float> splat (float 0x3F2BD01060000000), <4 x float> %mv81.5, <4 x float> %mv81.7)
  %mv81.9 = call <4 x float> @llvm.fma.v4f32(<4 x float> splat (float 0x3F56B8B0A0000000), <4 x float> %mv81.8, <4 x float> splat (float 0x3F81226BA0000000))
  %mv81.10 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv81.9, <4 x float> %mv81.8, <4 x float> splat (float 0x3FA5557020000000))
  %mv81.11 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv81.10, <4 x float> %mv81.8, <4 x float> splat (float 0x3FC5554B20000000))
  %mv81.12 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv81.11, <4 x float> %mv81.8, <4 x float> splat (float 0x3FDFFFFFE0000000))
  %mv81.13 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv81.12, <4 x float> %mv81.8, <4 x float> splat (float 0x3FF0000000000000))
  %mv81.14 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv81.13, <4 x float> %mv81.8, <4 x float> splat (float 0x3FF0000000000000))
  %mv81.15 = lshr <4 x i32> %mv81.6, splat (i32 1)
  %mv81.16 = sub <4 x i32> %mv81.6, %mv81.15
  %mv81.17 = shl <4 x i32> %mv81.15, splat (i32 23)
  %mv81.18 = bitcast <4 x i32> %mv81.17 to <4 x float>
  %mv81.19 = fmul <4 x float> %mv81.14, %mv81.18
  %mv81.20 = shl <4 x i32> %mv81.16, splat (i32 23)
  %mv81.21 = bitcast <4 x i32> %mv81.20 to <4 x float>
  %mv81.22 = fmul <4 x float> %mv81.19, %mv81.21
  %p82 = getelementptr inbounds float, ptr %buf65, i64 16
  store <4 x float> %mv81.22, ptr %p82, align 4
  br label %loop5
loop5:
  %i83 = phi i64 [ 0, %done4 ], [ %n84, %loop5 ]
  %r85 = phi <8 x float> [ splat (float 0x0000000000000000), %done4 ], [ %v89, %loop5 ]
  %v86 = mul i64 %i83, 8
  %p87 = getelementptr inbounds float, ptr %buf65, i64 %v86
  %v88 = load <8 x float>, ptr %p87, align 4
  %v89 = fadd contract <8 x float> %r85, %v88
  %n84 = add nsw i64 %i83, 1
  %v90 = icmp slt i64 %n84, 2
  br i1 %v90, label %loop5, label %done6
done6:
  %v91 = xor <8 x i1> %v25, splat (i1 true)
  %p92 = getelementptr inbounds float, ptr %buf65, i64 16
  %v93 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p92, <8 x i1> %v25, <8 x float> zeroinitializer)
  %v94 = select <8 x i1> %v25, <8 x float> %v93, <8 x float> splat (float 0x0000000000000000)
  %v95 = fadd contract <8 x float> %v89, %v94
  %v96 = shufflevector <8 x float> %v95, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v97 = fadd contract <4 x float> splat (float 0x0000000000000000), %v96
  %v98 = shufflevector <8 x float> %v95, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v99 = fadd contract <4 x float> %v97, %v98
  %v100 = shufflevector <4 x float> %v99, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v101 = fadd contract <2 x float> splat (float 0x0000000000000000), %v100
  %v102 = shufflevector <4 x float> %v99, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v103 = fadd contract <2 x float> %v101, %v102
  %v104 = extractelement <2 x float> %v103, i32 0
  %v105 = fadd contract float 0x0000000000000000, %v104
  %v106 = extractelement <2 x float> %v103, i32 1
  %v107 = fadd contract float %v105, %v106
  %v108 = fdiv float 0x3FF0000000000000, %v107
  %v109 = load <8 x float>, ptr %buf65, align 4
  %v110 = insertelement <8 x float> poison, float %v108, i32 0
  %v111 = shufflevector <8 x float> %v110, <8 x float> poison, <8 x i32> zeroinitializer
  %v112 = fmul contract <8 x float> %v109, %v111
  store <8 x float> %v112, ptr %p113, align 4
  %p114 = getelementptr inbounds float, ptr %buf65, i64 8
  %v115 = load <8 x float>, ptr %p114, align 4
  %v116 = fmul contract <8 x float> %v115, %v111
  %p117 = getelementptr inbounds float, ptr %p113, i64 8
  store <8 x float> %v116, ptr %p117, align 4
  %p118 = getelementptr inbounds float, ptr %buf65, i64 16
  %v119 = load <4 x float>, ptr %p118, align 4
  %v120 = insertelement <4 x float> poison, float %v108, i32 0
  %v121 = shufflevector <4 x float> %v120, <4 x float> poison, <4 x i32> zeroinitializer
  %v122 = fmul contract <4 x float> %v119, %v121
  %p123 = getelementptr inbounds float, ptr %p113, i64 16
  store <4 x float> %v122, ptr %p123, align 4
  %n11 = add nsw i64 %i10, 1
  %v124 = icmp slt i64 %n11, %v8
  br i1 %v124, label %loop1, label %done2
done2:
  ret void
}

define internal void @fused_softmax(ptr noalias %arg0, ptr noalias %arg1, i64 %arg2, i32 %threads) nounwind {
entry:
  %closure1 = alloca [4 x i64], align 64
  %p2 = getelementptr i64, ptr %closure1, i64 0
  store ptr %arg0, ptr %p2, align 8
  %p3 = getelementptr i64, ptr %closure1, i64 1
  store ptr %arg1, ptr %p3, align 8
  %p4 = getelementptr i64, ptr %closure1, i64 2
  store i64 %arg2, ptr %p4, align 8
  %v5 = call i32 @dlc_parallel_for(ptr @fused_softmax.region1, ptr %closure1, i64 %arg2, i32 %threads)
  ret void
}


