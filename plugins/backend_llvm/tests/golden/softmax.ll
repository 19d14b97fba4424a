declare ptr @dlc_stop_word()
declare i32 @dlc_stop_look(ptr) cold
declare i32 @dlc_parallel_for(ptr, ptr, i64, i32)

define internal void @fused_softmax.region1(ptr %closure, i64 %begin, i64 %end) nounwind {
entry:
  %buf86 = alloca [20 x float], align 64
  %stop = call ptr @dlc_stop_word()
  %p1 = getelementptr i64, ptr %closure, i64 0
  %c2 = load ptr, ptr %p1, align 8
  %p3 = getelementptr i64, ptr %closure, i64 1
  %c4 = load ptr, ptr %p3, align 8
  %p5 = getelementptr i64, ptr %closure, i64 2
  %c6 = load i64, ptr %p5, align 8
  %v7 = sub i64 %end, %begin
  %v8 = add i64 %v7, 127
  %v9 = srem i64 %v8, 128
  %v10 = xor i64 %v9, 128
  %v11 = icmp slt i64 %v10, 0
  %v12 = icmp ne i64 %v9, 0
  %v13 = and i1 %v11, %v12
  %v14 = sdiv i64 %v8, 128
  %v15 = sext i1 %v13 to i64
  %v16 = add i64 %v14, %v15
  %v46 = icmp slt <8 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>, splat (i64 4)
  %v17 = icmp sgt i64 %v16, 0
  br i1 %v17, label %loop1, label %done2
loop1:
  %i18 = phi i64 [ 0, %entry ], [ %n19, %done6 ]
  %v24 = mul i64 %i18, 128
  %v25 = add i64 %begin, %v24
  %v26 = sub i64 %v7, %v24
  %v27 = icmp slt i64 128, %v26
  %v28 = select i1 %v27, i64 128, i64 %v26
  %v20 = load atomic i32, ptr %stop monotonic, align 4
  %v21 = icmp eq i32 %v20, 0
  br i1 %v21, label %go3, label %look4
look4:
  %v22 = call i32 @dlc_stop_look(ptr %stop)
  %v23 = icmp eq i32 %v22, 0
  br i1 %v23, label %go3, label %stopped
go3:
  %v29 = add i64 %v25, %v28
  %v30 = icmp sgt i64 %v28, 0
  br i1 %v30, label %loop5, label %done6
loop5:
  %i31 = phi i64 [ %v25, %go3 ], [ %n32, %done10 ]
  %v36 = mul i64 %i31, 20
  %p48 = getelementptr inbounds float, ptr %c2, i64 %v36
  %p134 = getelementptr inbounds float, ptr %c4, i64 %v36
  br label %loop7
loop7:
  %i33 = phi i64 [ 0, %loop5 ], [ %n34, %loop7 ]
  %r35 = phi <8 x float> [ splat (float 0xFFF0000000000000), %loop5 ], [ %v44, %loop7 ]
  %v37 = mul i64 %i33, 8
  %v38 = add i64 %v36, %v37
  %p39 = getelementptr inbounds float, ptr %c2, i64 %v38
  %v40 = load <8 x float>, ptr %p39, align 4
  %v41 = fcmp ogt <8 x float> %v40, %r35
  %v42 = select <8 x i1> %v41, <8 x float> %v40, <8 x float> %r35
  %v43 = fcmp uno <8 x float> %v40, %v40
  %v44 = select <8 x i1> %v43, <8 x float> %v40, <8 x float> %v42
  %n34 = add nsw i64 %i33, 1
  %v45 = icmp slt i64 %n34, 2
  br i1 %v45, label %loop7, label %done8
done8:
  %v47 = xor <8 x i1> %v46, splat (i1 true)
  %p49 = getelementptr inbounds float, ptr %p48, i64 16
  %v50 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p49, <8 x i1> %v46, <8 x float> zeroinitializer)
  %v51 = select <8 x i1> %v46, <8 x float> %v50, <8 x float> splat (float 0xFFF0000000000000)
  %v52 = fcmp ogt <8 x float> %v51, %v44
  %v53 = select <8 x i1> %v52, <8 x float> %v51, <8 x float> %v44
  %v54 = fcmp uno <8 x float> %v51, %v51
  %v55 = select <8 x i1> %v54, <8 x float> %v51, <8 x float> %v53
  %v56 = shufflevector <8 x float> %v55, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v57 = fcmp ogt <4 x float> %v56, splat (float 0xFFF0000000000000)
  %v58 = select <4 x i1> %v57, <4 x float> %v56, <4 x float> splat (float 0xFFF0000000000000)
  %v59 = fcmp uno <4 x float> %v56, %v56
  %v60 = select <4 x i1> %v59, <4 x float> %v56, <4 x float> %v58
  %v61 = shufflevector <8 x float> %v55, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v62 = fcmp ogt <4 x float> %v61, %v60
  %v63 = select <4 x i1> %v62, <4 x float> %v61, <4 x float> %v60
  %v64 = fcmp uno <4 x float> %v61, %v61
  %v65 = select <4 x i1> %v64, <4 x float> %v61, <4 x float> %v63
  %v66 = shufflevector <4 x float> %v65, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v67 = fcmp ogt <2 x float> %v66, splat (float 0xFFF0000000000000)
  %v68 = select <2 x i1> %v67, <2 x float> %v66, <2 x float> splat (float 0xFFF0000000000000)
  %v69 = fcmp uno <2 x float> %v66, %v66
  %v70 = select <2 x i1> %v69, <2 x float> %v66, <2 x float> %v68
  %v71 = shufflevector <4 x float> %v65, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v72 = fcmp ogt <2 x float> %v71, %v70
  %v73 = select <2 x i1> %v72, <2 x float> %v71, <2 x float> %v70
  %v74 = fcmp uno <2 x float> %v71, %v71
  %v75 = select <2 x i1> %v74, <2 x float> %v71, <2 x float> %v73
  %v76 = extractelement <2 x float> %v75, i32 0
  %v77 = fcmp ogt float %v76, 0xFFF0000000000000
  %v78 = select i1 %v77, float %v76, float 0xFFF0000000000000
  %v79 = fcmp uno float %v76, %v76
  %v80 = select i1 %v79, float %v76, float %v78
  %v81 = extractelement <2 x float> %v75, i32 1
  %v82 = fcmp ogt float %v81, %v80
  %v83 = select i1 %v82, float %v81, float %v80
  %v84 = fcmp uno float %v81, %v81
  %v85 = select i1 %v84, float %v81, float %v83
  %v87 = load <8 x float>, ptr %p48, align 4
  %v88 = insertelement <8 x float> poison, float %v85, i32 0
  %v89 = shufflevector <8 x float> %v88, <8 x float> poison, <8 x i32> zeroinitializer
  %v90 = fsub contract <8 x float> %v87, %v89
  %mv91.0 = fcmp ogt <8 x float> splat (float 0xC05A000000000000), %v90
  %mv91.1 = select <8 x i1> %mv91.0, <8 x float> splat (float 0xC05A000000000000), <8 x float> %v90
  %mv91.2 = fcmp olt <8 x float> splat (float 0x4056600000000000), %mv91.1
  %mv91.3 = select <8 x i1> %mv91.2, <8 x float> splat (float 0x4056600000000000), <8 x float> %mv91.1
  %mv91.4 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv91.3, <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168001FC0000000))
  %mv91.5 = fsub <8 x float> %mv91.4, splat (float 0x4168001FC0000000)
  %mv91.6 = bitcast <8 x float> %mv91.4 to <8 x i32>
  %mv91.7 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0xBFE6300000000000), <8 x float> %mv91.5, <8 x float> %mv91.3)
  %mv91.8 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F2BD01060000000), <8 x float> %mv91.5, <8 x float> %mv91.7)
  %mv91.9 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F56B8B0A0000000), <8 x float> %mv91.8, <8 x float> splat (float 0x3F81226BA0000000))
  %mv91.10 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv91.9, <8 x float> %mv91.8, <8 x float> splat (float 0x3FA5557020000000))
  %mv91.11 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv91.10, <8 x float> %mv91.8, <8 x float> splat (float 0x3FC5554B20000000))
  %mv91.12 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv91.11, <8 x float> %mv91.8, <8 x float> splat (float 0x3FDFFFFFE0000000))
  %mv91.13 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv91.12, <8 x float> %mv91.8, <8 x float> splat (float 0x3FF0000000000000))
  %mv91.14 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv91.13, <8 x float> %mv91.8, <8 x float> splat (float 0x3FF0000000000000))
  %mv91.15 = lshr <8 x i32> %mv91.6, splat (i32 1)
  %mv91.16 = sub <8 x i32> %mv91.6, %mv91.15
  %mv91.17 = shl <8 x i32> %mv91.15, splat (i32 23)
  %mv91.18 = bitcast <8 x i32> %mv91.17 to <8 x float>
  %mv91.19 = fmul <8 x float> %mv91.14, %mv91.18
  %mv91.20 = shl <8 x i32> %mv91.16, splat (i32 23)
  %mv91.21 = bitcast <8 x i32> %mv91.20 to <8 x float>
  %mv91.22 = fmul <8 x float> %mv91.19, %mv91.21
  store <8 x float> %mv91.22, ptr %buf86, align 4
  %p92 = getelementptr inbounds float, ptr %p48, i64 8
  %v93 = load <8 x float>, ptr %p92, align 4
  %v94 = fsub contract <8 x float> %v93, %v89
  %mv95.0 = fcmp ogt <8 x float> splat (float 0xC05A000000000000), %v94
  %mv95.1 = select <8 x i1> %mv95.0, <8 x float> splat (float 0xC05A000000000000), <8 x float> %v94
  %mv95.2 = fcmp olt <8 x float> splat (float 0x4056600000000000), %mv95.1
  %mv95.3 = select <8 x i1> %mv95.2, <8 x float> splat (float 0x4056600000000000), <8 x float> %mv95.1
  %mv95.4 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv95.3, <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168001FC0000000))
  %mv95.5 = fsub <8 x float> %mv95.4, splat (float 0x4168001FC0000000)
  %mv95.6 = bitcast <8 x float> %mv95.4 to <8 x i32>
  %mv95.7 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0xBFE6300000000000), <8 x float> %mv95.5, <8 x float> %mv95.3)
  %mv95.8 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F2BD01060000000), <8 x float> %mv95.5, <8 x float> %mv95.7)
  %mv95.9 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F56B8B0A0000000), <8 x float> %mv95.8, <8 x float> splat (float 0x3F81226BA0000000))
  %mv95.10 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv95.9, <8 x float> %mv95.8, <8 x float> splat (float 0x3FA5557020000000))
  %mv95.11 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv95.10, <8 x float> %mv95.8, <8 x float> splat (float 0x3FC5554B20000000))
  %mv95.12 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv95.11, <8 x float> %mv95.8, <8 x float> splat (float 0x3FDFFFFFE0000000))
  %mv95.13 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv95.12, <8 x float> %mv95.8, <8 x float> splat (float 0x3FF0000000000000))
  %mv95.14 = call <8 x float> @llvm.fma.v8f32(<8 x float> %mv95.13, <8 x float> %mv95.8, <8 x float> splat (float 0x3FF0000000000000))
  %mv95.15 = lshr <8 x i32> %mv95.6, splat (i32 1)
  %mv95.16 = sub <8 x i32> %mv95.6, %mv95.15
  %mv95.17 = shl <8 x i32> %mv95.15, splat (i32 23)
  %mv95.18 = bitcast <8 x i32> %mv95.17 to <8 x float>
  %mv95.19 = fmul <8 x float> %mv95.14, %mv95.18
  %mv95.20 = shl <8 x i32> %mv95.16, splat (i32 23)
  %mv95.21 = bitcast <8 x i32> %mv95.20 to <8 x float>
  %mv95.22 = fmul <8 x float> %mv95.19, %mv95.21
  %p96 = getelementptr inbounds float, ptr %buf86, i64 8
  store <8 x float> %mv95.22, ptr %p96, align 4
  %p97 = getelementptr inbounds float, ptr %p48, i64 16
  %v98 = load <4 x float>, ptr %p97, align 4
  %v99 = insertelement <4 x float> poison, float %v85, i32 0
  %v100 = shufflevector <4 x float> %v99, <4 x float> poison, <4 x i32> zeroinitializer
  %v101 = fsub contract <4 x float> %v98, %v100
  %mv102.0 = fcmp ogt <4 x float> splat (float 0xC05A000000000000), %v101
  %mv102.1 = select <4 x i1> %mv102.0, <4 x float> splat (float 0xC05A000000000000), <4 x float> %v101
  %mv102.2 = fcmp olt <4 x float> splat (float 0x4056600000000000), %mv102.1
  %mv102.3 = select <4 x i1> %mv102.2, <4 x float> splat (float 0x4056600000000000), <4 x float> %mv102.1
  %mv102.4 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv102.3, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168001FC0000000))
  %mv102.5 = fsub <4 x float> %mv102.4, splat (float 0x4168001FC0000000)
  %mv102.6 = bitcast <4 x float> %mv102.4 to <4 x i32>
  %mv102.7 = call <4 x float> @llvm.fma.v4f32(<4 x float> splat (float 0xBFE6300000000000), <4 x float> %mv102.5, <4 x float> %mv102.3)
  %mv102.8 = call <4 x float> @llvm.fma.v4f32(<4 x float> splat (float 0x3F2BD01060000000), <4 x float> %mv102.5, <4 x float> %mv102.7)
  %mv102.9 = call <4 x float> @llvm.fma.v4f32(<4 x float> splat (float 0x3F56B8B0A0000000), <4 x float> %mv102.8, <4 x float> splat (float 0x3F81226BA0000000))
  %mv102.10 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv102.9, <4 x float> %mv102.8, <4 x float> splat (float 0x3FA5557020000000))
  %mv102.11 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv102.10, <4 x float> %mv102.8, <4 x float> splat (float 0x3FC5554B20000000))
  %mv102.12 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv102.11, <4 x float> %mv102.8, <4 x float> splat (float 0x3FDFFFFFE0000000))
  %mv102.13 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv102.12, <4 x float> %mv102.8, <4 x float> splat (float 0x3FF0000000000000))
  %mv102.14 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv102.13, <4 x float> %mv102.8, <4 x float> splat (float 0x3FF0000000000000))
  %mv102.15 = lshr <4 x i32> %mv102.6, splat (i32 1)
  %mv102.16 = sub <4 x i32> %mv102.6, %mv102.15
  %mv102.17 = shl <4 x i32> %mv102.15, splat (i32 23)
  %mv102.18 = bitcast <4 x i32> %mv102.17 to <4 x float>
  %mv102.19 = fmul <4 x float> %mv102.14, %mv102.18
  %mv102.20 = shl <4 x i32> %mv102.16, splat (i32 23)
  %mv102.21 = bitcast <4 x i32> %mv102.20 to <4 x float>
  %mv102.22 = fmul <4 x float> %mv102.19, %mv102.21
  %p103 = getelementptr inbounds float, ptr %buf86, i64 16
  store <4 x float> %mv102.22, ptr %p103, align 4
  br label %loop9
loop9:
  %i104 = phi i64 [ 0, %done8 ], [ %n105, %loop9 ]
  %r106 = phi <8 x float> [ splat (float 0x0000000000000000), %done8 ], [ %v110, %loop9 ]
  %v107 = mul i64 %i104, 8
  %p108 = getelementptr inbounds float, ptr %buf86, i64 %v107
  %v109 = load <8 x float>, ptr %p108, align 4
  %v110 = fadd contract <8 x float> %r106, %v109
  %n105 = add nsw i64 %i104, 1
  %v111 = icmp slt i64 %n105, 2
  br i1 %v111, label %loop9, label %done10
done10:
  %v112 = xor <8 x i1> %v46, splat (i1 true)
  %p113 = getelementptr inbounds float, ptr %buf86, i64 16
  %v114 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p113, <8 x i1> %v46, <8 x float> zeroinitializer)
  %v115 = select <8 x i1> %v46, <8 x float> %v114, <8 x float> splat (float 0x0000000000000000)
  %v116 = fadd contract <8 x float> %v110, %v115
  %v117 = shufflevector <8 x float> %v116, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v118 = fadd contract <4 x float> splat (float 0x0000000000000000), %v117
  %v119 = shufflevector <8 x float> %v116, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v120 = fadd contract <4 x float> %v118, %v119
  %v121 = shufflevector <4 x float> %v120, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v122 = fadd contract <2 x float> splat (float 0x0000000000000000), %v121
  %v123 = shufflevector <4 x float> %v120, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v124 = fadd contract <2 x float> %v122, %v123
  %v125 = extractelement <2 x float> %v124, i32 0
  %v126 = fadd contract float 0x0000000000000000, %v125
  %v127 = extractelement <2 x float> %v124, i32 1
  %v128 = fadd contract float %v126, %v127
  %v129 = fdiv float 0x3FF0000000000000, %v128
  %v130 = load <8 x float>, ptr %buf86, align 4
  %v131 = insertelement <8 x float> poison, float %v129, i32 0
  %v132 = shufflevector <8 x float> %v131, <8 x float> poison, <8 x i32> zeroinitializer
  %v133 = fmul contract <8 x float> %v130, %v132
  store <8 x float> %v133, ptr %p134, align 4
  %p135 = getelementptr inbounds float, ptr %buf86, i64 8
  %v136 = load <8 x float>, ptr %p135, align 4
  %v137 = fmul contract <8 x float> %v136, %v132
  %p138 = getelementptr inbounds float, ptr %p134, i64 8
  store <8 x float> %v137, ptr %p138, align 4
  %p139 = getelementptr inbounds float, ptr %buf86, i64 16
  %v140 = load <4 x float>, ptr %p139, align 4
  %v141 = insertelement <4 x float> poison, float %v129, i32 0
  %v142 = shufflevector <4 x float> %v141, <4 x float> poison, <4 x i32> zeroinitializer
  %v143 = fmul contract <4 x float> %v140, %v142
  %p144 = getelementptr inbounds float, ptr %p134, i64 16
  store <4 x float> %v143, ptr %p144, align 4
  %n32 = add nsw i64 %i31, 1
  %v145 = icmp slt i64 %n32, %v29
  br i1 %v145, label %loop5, label %done6
done6:
  %n19 = add nsw i64 %i18, 1
  %v146 = icmp slt i64 %n19, %v16
  br i1 %v146, label %loop1, label %done2
done2:
  ret void
stopped:
  ret void
}

define internal void @fused_softmax(ptr noalias %arg0, ptr noalias %arg1, i64 %arg2, i32 %threads) nounwind {
entry:
  %closure1 = alloca [4 x i64], align 64
  %stop = call ptr @dlc_stop_word()
  %p2 = getelementptr i64, ptr %closure1, i64 0
  store ptr %arg0, ptr %p2, align 8
  %p3 = getelementptr i64, ptr %closure1, i64 1
  store ptr %arg1, ptr %p3, align 8
  %p4 = getelementptr i64, ptr %closure1, i64 2
  store i64 %arg2, ptr %p4, align 8
  %v5 = call i32 @dlc_parallel_for(ptr @fused_softmax.region1, ptr %closure1, i64 %arg2, i32 %threads)
  %v6 = load atomic i32, ptr %stop monotonic, align 4
  %v7 = icmp eq i32 %v6, 0
  br i1 %v7, label %go1, label %look2
look2:
  %v8 = call i32 @dlc_stop_look(ptr %stop)
  %v9 = icmp eq i32 %v8, 0
  br i1 %v9, label %go1, label %stopped
go1:
  ret void
stopped:
  ret void
}


