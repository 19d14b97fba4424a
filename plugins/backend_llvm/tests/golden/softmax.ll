declare i32 @dlc_parallel_for(ptr, ptr, i64, i32)

define internal void @fused_softmax.region1(ptr %closure, i64 %begin, i64 %end) nounwind {
entry:
  %buf75 = alloca [20 x float], align 64
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
  %p126 = getelementptr inbounds float, ptr %c4, i64 %v15
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
  %v35 = extractelement <8 x float> %v34, i32 0
  %v36 = fcmp ogt float %v35, 0xFFF0000000000000
  %v37 = select i1 %v36, float %v35, float 0xFFF0000000000000
  %v38 = fcmp uno float %v35, %v35
  %v39 = select i1 %v38, float %v35, float %v37
  %v40 = extractelement <8 x float> %v34, i32 1
  %v41 = fcmp ogt float %v40, %v39
  %v42 = select i1 %v41, float %v40, float %v39
  %v43 = fcmp uno float %v40, %v40
  %v44 = select i1 %v43, float %v40, float %v42
  %v45 = extractelement <8 x float> %v34, i32 2
  %v46 = fcmp ogt float %v45, %v44
  %v47 = select i1 %v46, float %v45, float %v44
  %v48 = fcmp uno float %v45, %v45
  %v49 = select i1 %v48, float %v45, float %v47
  %v50 = extractelement <8 x float> %v34, i32 3
  %v51 = fcmp ogt float %v50, %v49
  %v52 = select i1 %v51, float %v50, float %v49
  %v53 = fcmp uno float %v50, %v50
  %v54 = select i1 %v53, float %v50, float %v52
  %v55 = extractelement <8 x float> %v34, i32 4
  %v56 = fcmp ogt float %v55, %v54
  %v57 = select i1 %v56, float %v55, float %v54
  %v58 = fcmp uno float %v55, %v55
  %v59 = select i1 %v58, float %v55, float %v57
  %v60 = extractelement <8 x float> %v34, i32 5
  %v61 = fcmp ogt float %v60, %v59
  %v62 = select i1 %v61, float %v60, float %v59
  %v63 = fcmp uno float %v60, %v60
  %v64 = select i1 %v63, float %v60, float %v62
  %v65 = extractelement <8 x float> %v34, i32 6
  %v66 = fcmp ogt float %v65, %v64
  %v67 = select i1 %v66, float %v65, float %v64
  %v68 = fcmp uno float %v65, %v65
  %v69 = select i1 %v68, float %v65, float %v67
  %v70 = extractelement <8 x float> %v34, i32 7
  %v71 = fcmp ogt float %v70, %v69
  %v72 = select i1 %v71, float %v70, float %v69
  %v73 = fcmp uno float %v70, %v70
  %v74 = select i1 %v73, float %v70, float %v72
  %v76 = load <8 x float>, ptr %p27, align 4
  %v77 = insertelement <8 x float> poison, float %v74, i32 0
  %v78 = shufflevector <8 x float> %v77, <8 x float> poison, <8 x i32> zeroinitializer
  %v79 = fsub contract <8 x float> %v76, %v78
  %mv80.0 = fcmp ogt <8 x float> splat (float 0xC05A000000000000), %v79
  %mv80.1 = select <8 x i1> %mv80.0, <8 x float> splat (float 0xC05A000000000000), <8 x float> %v79
  %mv80.2 = fcmp olt <8 x float> splat (float 0x4056600000000000), %mv80.1
  %mv80.3 = select <8 x i1> %mv80.2, <8 x float> splat (float 0x4056600000000000), <8 x float> %mv80.1
  %mv80.4 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv80.3, <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168001FC0000000))
  %mv80.5 = fsub <8 x float> %mv80.4, splat (float 0x4168001FC0000000)
  %mv80.6 = bitcast <8 x float> %mv80.4 to <8 x i32>
  %mv80.7 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0xBFE6300000000000), <8 x float> %mv80.5, <8 x float> %mv80.3)
  %mv80.8 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F2BD01060000000), <8 x float> %mv80.5, <8 x float> %mv80.7)
  %mv80.9 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F56B8B0A0000000), <8 x float> %mv80.8, <8 x float> splat (float 0x3F81226BA0000000))
  %mv80.10 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv80.9, <8 x float> %mv80.8, <8 x float> splat (float 0x3FA5557020000000))
  %mv80.11 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv80.10, <8 x float> %mv80.8, <8 x float> splat (float 0x3FC5554B20000000))
  %mv80.12 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv80.11, <8 x float> %mv80.8, <8 x float> splat (float 0x3FDFFFFFE0000000))
  %mv80.13 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv80.12, <8 x float> %mv80.8, <8 x float> splat (float 0x3FF0000000000000))
  %mv80.14 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv80.13, <8 x float> %mv80.8, <8 x float> splat (float 0x3FF0000000000000))
  %mv80.15 = lshr <8 x i32> %mv80.6, splat (i32 1)
  %mv80.16 = sub <8 x i32> %mv80.6, %mv80.15
  %mv80.17 = shl <8 x i32> %mv80.15, splat (i32 23)
  %mv80.18 = bitcast <8 x i32> %mv80.17 to <8 x float>
  %mv80.19 = fmul <8 x float> %mv80.14, %mv80.18
  %mv80.20 = shl <8 x i32> %mv80.16, splat (i32 23)
  %mv80.21 = bitcast <8 x i32> %mv80.20 to <8 x float>
  %mv80.22 = fmul <8 x float> %mv80.19, %mv80.21
  store <8 x float> %mv80.22, ptr %buf75, align 4
  %p81 = getelementptr inbounds float, ptr %p27, i64 8
  %v82 = load <8 x float>, ptr %p81, align 4
  %v83 = fsub contract <8 x float> %v82, %v78
  %mv84.0 = fcmp ogt <8 x float> splat (float 0xC05A000000000000), %v83
  %mv84.1 = select <8 x i1> %mv84.0, <8 x float> splat (float 0xC05A000000000000), <8 x float> %v83
  %mv84.2 = fcmp olt <8 x float> splat (float 0x4056600000000000), %mv84.1
  %mv84.3 = select <8 x i1> %mv84.2, <8 x float> splat (float 0x4056600000000000), <8 x float> %mv84.1
  %mv84.4 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv84.3, <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168001FC0000000))
  %mv84.5 = fsub <8 x float> %mv84.4, splat (float 0x4168001FC0000000)
  %mv84.6 = bitcast <8 x float> %mv84.4 to <8 x i32>
  %mv84.7 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0xBFE6300000000000), <8 x float> %mv84.5, <8 x float> %mv84.3)
  %mv84.8 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F2BD01060000000), <8 x float> %mv84.5, <8 x float> %mv84.7)
  %mv84.9 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F56B8B0A0000000), <8 x float> %mv84.8, <8 x float> splat (float 0x3F81226BA0000000))
  %mv84.10 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv84.9, <8 x float> %mv84.8, <8 x float> splat (float 0x3FA5557020000000))
  %mv84.11 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv84.10, <8 x float> %mv84.8, <8 x float> splat (float 0x3FC5554B20000000))
  %mv84.12 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv84.11, <8 x float> %mv84.8, <8 x float> splat (float 0x3FDFFFFFE0000000))
  %mv84.13 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv84.12, <8 x float> %mv84.8, <8 x float> splat (float 0x3FF0000000000000))
  %mv84.14 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv84.13, <8 x float> %mv84.8, <8 x float> splat (float 0x3FF0000000000000))
  %mv84.15 = lshr <8 x i32> %mv84.6, splat (i32 1)
  %mv84.16 = sub <8 x i32> %mv84.6, %mv84.15
  %mv84.17 = shl <8 x i32> %mv84.15, splat (i32 23)
  %mv84.18 = bitcast <8 x i32> %mv84.17 to <8 x float>
  %mv84.19 = fmul <8 x float> %mv84.14, %mv84.18
  %mv84.20 = shl <8 x i32> %mv84.16, splat (i32 23)
  %mv84.21 = bitcast <8 x i32> %mv84.20 to <8 x float>
  %mv84.22 = fmul <8 x float> %mv84.19, %mv84.21
  %p85 = getelementptr inbounds float, ptr %buf75, i64 8
  store <8 x float> %mv84.22, ptr %p85, align 4
  %p86 = getelementptr inbounds float, ptr %p27, i64 16
  %v87 = load <4 x float>, ptr %p86, align 4
  %v88 = insertelement <4 x float> poison, float %v74, i32 0
  %v89 = shufflevector <4 x float> %v88, <4 x float> poison, <4 x i32> zeroinitializer
  %v90 = fsub contract <4 x float> %v87, %v89
  %mv91.0 = fcmp ogt <4 x float> splat (float 0xC05A000000000000), %v90
  %mv91.1 = select <4 x i1> %mv91.0, <4 x float> splat (float 0xC05A000000000000), <4 x float> %v90
  %mv91.2 = fcmp olt <4 x float> splat (float 0x4056600000000000), %mv91.1
  %mv91.3 = select <4 x i1> %mv91.2, <4 x float> splat (float 0x4056600000000000), <4 x float> %mv91.1
  %mv91.4 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv91.3, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168001FC0000000))
  %mv91.5 = fsub <4 x float> %mv91.4, splat (float 0x4168001FC0000000)
  %mv91.6 = bitcast <4 x float> %mv91.4 to <4 x i32>
  %mv91.7 = call <4 x float> @llvm.fma.v4f32(<4 x float> splat (float 0xBFE6300000000000), <4 x float> %mv91.5, <4 x float> %mv91.3)
  %mv91.8 = call <4 x float> @llvm.fma.v4f32(<4 x float> splat (float 0x3F2BD01060000000), <4 x float> %mv91.5, <4 x float> %mv91.7)
  %mv91.9 = call <4 x float> @llvm.fma.v4f32(<4 x float> splat (float 0x3F56B8B0A0000000), <4 x float> %mv91.8, <4 x float> splat (float 0x3F81226BA0000000))
  %mv91.10 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv91.9, <4 x float> %mv91.8, <4 x float> splat (float 0x3FA5557020000000))
  %mv91.11 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv91.10, <4 x float> %mv91.8, <4 x float> splat (float 0x3FC5554B20000000))
  %mv91.12 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv91.11, <4 x float> %mv91.8, <4 x float> splat (float 0x3FDFFFFFE0000000))
  %mv91.13 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv91.12, <4 x float> %mv91.8, <4 x float> splat (float 0x3FF0000000000000))
  %mv91.14 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv91.13, <4 x float> %mv91.8, <4 x float> splat (float 0x3FF0000000000000))
  %mv91.15 = lshr <4 x i32> %mv91.6, splat (i32 1)
  %mv91.16 = sub <4 x i32> %mv91.6, %mv91.15
  %mv91.17 = shl <4 x i32> %mv91.15, splat (i32 23)
  %mv91.18 = bitcast <4 x i32> %mv91.17 to <4 x float>
  %mv91.19 = fmul <4 x float> %mv91.14, %mv91.18
  %mv91.20 = shl <4 x i32> %mv91.16, splat (i32 23)
  %mv91.21 = bitcast <4 x i32> %mv91.20 to <4 x float>
  %mv91.22 = fmul <4 x float> %mv91.19, %mv91.21
  %p92 = getelementptr inbounds float, ptr %buf75, i64 16
  store <4 x float> %mv91.22, ptr %p92, align 4
  br label %loop5
loop5:
  %i93 = phi i64 [ 0, %done4 ], [ %n94, %loop5 ]
  %r95 = phi <8 x float> [ splat (float 0x0000000000000000), %done4 ], [ %v99, %loop5 ]
  %v96 = mul i64 %i93, 8
  %p97 = getelementptr inbounds float, ptr %buf75, i64 %v96
  %v98 = load <8 x float>, ptr %p97, align 4
  %v99 = fadd contract <8 x float> %r95, %v98
  %n94 = add nsw i64 %i93, 1
  %v100 = icmp slt i64 %n94, 2
  br i1 %v100, label %loop5, label %done6
done6:
  %v101 = xor <8 x i1> %v25, splat (i1 true)
  %p102 = getelementptr inbounds float, ptr %buf75, i64 16
  %v103 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p102, <8 x i1> %v25, <8 x float> zeroinitializer)
  %v104 = select <8 x i1> %v25, <8 x float> %v103, <8 x float> splat (float 0x0000000000000000)
  %v105 = fadd contract <8 x float> %v99, %v104
  %v106 = extractelement <8 x float> %v105, i32 0
  %v107 = fadd contract float 0x0000000000000000, %v106
  %v108 = extractelement <8 x float> %v105, i32 1
  %v109 = fadd contract float %v107, %v108
  %v110 = extractelement <8 x float> %v105, i32 2
  %v111 = fadd contract float %v109, %v110
  %v112 = extractelement <8 x float> %v105, i32 3
  %v113 = fadd contract float %v111, %v112
  %v114 = extractelement <8 x float> %v105, i32 4
  %v115 = fadd contract float %v113, %v114
  %v116 = extractelement <8 x float> %v105, i32 5
  %v117 = fadd contract float %v115, %v116
  %v118 = extractelement <8 x float> %v105, i32 6
  %v119 = fadd contract float %v117, %v118
  %v120 = extractelement <8 x float> %v105, i32 7
  %v121 = fadd contract float %v119, %v120
  %v122 = load <8 x float>, ptr %buf75, align 4
  %v123 = insertelement <8 x float> poison, float %v121, i32 0
  %v124 = shufflevector <8 x float> %v123, <8 x float> poison, <8 x i32> zeroinitializer
  %v125 = fdiv <8 x float> %v122, %v124
  store <8 x float> %v125, ptr %p126, align 4
  %p127 = getelementptr inbounds float, ptr %buf75, i64 8
  %v128 = load <8 x float>, ptr %p127, align 4
  %v129 = fdiv <8 x float> %v128, %v124
  %p130 = getelementptr inbounds float, ptr %p126, i64 8
  store <8 x float> %v129, ptr %p130, align 4
  %p131 = getelementptr inbounds float, ptr %buf75, i64 16
  %v132 = load <4 x float>, ptr %p131, align 4
  %v133 = insertelement <4 x float> poison, float %v121, i32 0
  %v134 = shufflevector <4 x float> %v133, <4 x float> poison, <4 x i32> zeroinitializer
  %v135 = fdiv <4 x float> %v132, %v134
  %p136 = getelementptr inbounds float, ptr %p126, i64 16
  store <4 x float> %v135, ptr %p136, align 4
  %n11 = add nsw i64 %i10, 1
  %v137 = icmp slt i64 %n11, %v8
  br i1 %v137, label %loop1, label %done2
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


