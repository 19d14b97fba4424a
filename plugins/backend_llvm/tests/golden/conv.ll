
define internal void @fused_transpose(ptr noalias %arg0, ptr noalias %arg1, i32 %threads) nounwind {
entry:
  br label %loop1
loop1:
  %i1 = phi i64 [ 0, %entry ], [ %n2, %loop1 ]
  %v3 = mul i64 %i1, 8
  %p4 = getelementptr inbounds float, ptr %arg0, i64 %v3
  %v20 = mul i64 %i1, 32
  %p21 = getelementptr inbounds float, ptr %arg1, i64 %v20
  %v5 = load <8 x float>, ptr %p4, align 4
  %p6 = getelementptr inbounds float, ptr %p4, i64 36
  %v7 = load <8 x float>, ptr %p6, align 4
  %p8 = getelementptr inbounds float, ptr %p4, i64 72
  %v9 = load <8 x float>, ptr %p8, align 4
  %v12 = shufflevector <8 x float> %v5, <8 x float> %v9, <8 x i32> <i32 0, i32 8, i32 1, i32 9, i32 2, i32 10, i32 3, i32 11>
  %v13 = shufflevector <8 x float> %v5, <8 x float> %v9, <8 x i32> <i32 4, i32 12, i32 5, i32 13, i32 6, i32 14, i32 7, i32 15>
  %p10 = getelementptr inbounds float, ptr %p4, i64 108
  %v11 = load <8 x float>, ptr %p10, align 4
  %v14 = shufflevector <8 x float> %v7, <8 x float> %v11, <8 x i32> <i32 0, i32 8, i32 1, i32 9, i32 2, i32 10, i32 3, i32 11>
  %v15 = shufflevector <8 x float> %v7, <8 x float> %v11, <8 x i32> <i32 4, i32 12, i32 5, i32 13, i32 6, i32 14, i32 7, i32 15>
  %v16 = shufflevector <8 x float> %v12, <8 x float> %v14, <8 x i32> <i32 0, i32 8, i32 1, i32 9, i32 2, i32 10, i32 3, i32 11>
  %v17 = shufflevector <8 x float> %v12, <8 x float> %v14, <8 x i32> <i32 4, i32 12, i32 5, i32 13, i32 6, i32 14, i32 7, i32 15>
  %v18 = shufflevector <8 x float> %v13, <8 x float> %v15, <8 x i32> <i32 0, i32 8, i32 1, i32 9, i32 2, i32 10, i32 3, i32 11>
  %v19 = shufflevector <8 x float> %v13, <8 x float> %v15, <8 x i32> <i32 4, i32 12, i32 5, i32 13, i32 6, i32 14, i32 7, i32 15>
  store <8 x float> %v16, ptr %p21, align 4
  %p22 = getelementptr inbounds float, ptr %p21, i64 8
  store <8 x float> %v17, ptr %p22, align 4
  %p23 = getelementptr inbounds float, ptr %p21, i64 16
  store <8 x float> %v18, ptr %p23, align 4
  %p24 = getelementptr inbounds float, ptr %p21, i64 24
  store <8 x float> %v19, ptr %p24, align 4
  %n2 = add nsw i64 %i1, 1
  %v25 = icmp slt i64 %n2, 4
  br i1 %v25, label %loop1, label %done2
done2:
  %p26 = getelementptr inbounds float, ptr %arg0, i64 32
  %v27 = load <4 x float>, ptr %p26, align 4
  %p28 = getelementptr inbounds float, ptr %arg0, i64 68
  %v29 = load <4 x float>, ptr %p28, align 4
  %p30 = getelementptr inbounds float, ptr %arg0, i64 104
  %v31 = load <4 x float>, ptr %p30, align 4
  %v34 = shufflevector <4 x float> %v27, <4 x float> %v31, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v35 = shufflevector <4 x float> %v27, <4 x float> %v31, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %p32 = getelementptr inbounds float, ptr %arg0, i64 140
  %v33 = load <4 x float>, ptr %p32, align 4
  %v36 = shufflevector <4 x float> %v29, <4 x float> %v33, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v37 = shufflevector <4 x float> %v29, <4 x float> %v33, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %v38 = shufflevector <4 x float> %v34, <4 x float> %v36, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v39 = shufflevector <4 x float> %v34, <4 x float> %v36, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %v40 = shufflevector <4 x float> %v35, <4 x float> %v37, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v41 = shufflevector <4 x float> %v35, <4 x float> %v37, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %p42 = getelementptr inbounds float, ptr %arg1, i64 128
  store <4 x float> %v38, ptr %p42, align 4
  %p43 = getelementptr inbounds float, ptr %arg1, i64 132
  store <4 x float> %v39, ptr %p43, align 4
  %p44 = getelementptr inbounds float, ptr %arg1, i64 136
  store <4 x float> %v40, ptr %p44, align 4
  %p45 = getelementptr inbounds float, ptr %arg1, i64 140
  store <4 x float> %v41, ptr %p45, align 4
  ret void
}

define internal void @fused_conv(ptr noalias %arg0, ptr noalias %arg1, ptr noalias %arg2, i32 %threads) nounwind {
entry:
  %buf1 = alloca [256 x float], align 64
  br label %loop1
loop1:
  %i2 = phi i64 [ 0, %entry ], [ %n3, %done4 ]
  %v6 = icmp slt i64 0, %i2
  %v7 = icmp slt i64 %i2, 7
  %v8 = and i1 %v6, %v7
  %v9 = insertelement <8 x i1> poison, i1 %v8, i32 0
  %v10 = shufflevector <8 x i1> %v9, <8 x i1> poison, <8 x i32> zeroinitializer
  %v28 = mul i64 %i2, 24
  %v35 = mul i64 %i2, 32
  br label %loop3
loop3:
  %i4 = phi i64 [ 0, %loop1 ], [ %n5, %loop3 ]
  %v11 = mul i64 %i4, 2
  %v12 = insertelement <8 x i64> poison, i64 %v11, i32 0
  %v13 = shufflevector <8 x i64> %v12, <8 x i64> poison, <8 x i32> zeroinitializer
  %v29 = mul i64 %i4, 8
  %v30 = add i64 %v28, %v29
  %p31 = getelementptr inbounds float, ptr %arg0, i64 %v30
  %v36 = add i64 %v35, %v29
  %p37 = getelementptr inbounds float, ptr %buf1, i64 %v36
  %v14 = srem <8 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>, splat (i64 4)
  %v15 = xor <8 x i64> %v14, splat (i64 4)
  %v16 = icmp slt <8 x i64> %v15, zeroinitializer
  %v17 = icmp ne <8 x i64> %v14, zeroinitializer
  %v18 = and <8 x i1> %v16, %v17
  %v19 = sdiv <8 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>, splat (i64 4)
  %v20 = sext <8 x i1> %v18 to <8 x i64>
  %v21 = add <8 x i64> %v19, %v20
  %v22 = add <8 x i64> %v13, %v21
  %v23 = icmp slt <8 x i64> splat (i64 0), %v22
  %v24 = and <8 x i1> %v10, %v23
  %v25 = icmp slt <8 x i64> %v22, splat (i64 7)
  %v26 = and <8 x i1> %v24, %v25
  %v27 = xor <8 x i1> %v26, splat (i1 true)
  %p32 = getelementptr inbounds float, ptr %p31, i64 -28
  %v33 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p32, <8 x i1> %v26, <8 x float> zeroinitializer)
  %v34 = select <8 x i1> %v26, <8 x float> %v33, <8 x float> splat (float 0x0000000000000000)
  store <8 x float> %v34, ptr %p37, align 4
  %n5 = add nsw i64 %i4, 1
  %v38 = icmp slt i64 %n5, 4
  br i1 %v38, label %loop3, label %done4
done4:
  %n3 = add nsw i64 %i2, 1
  %v39 = icmp slt i64 %n3, 8
  br i1 %v39, label %loop1, label %done2
done2:
  br label %loop5
loop5:
  %i40 = phi i64 [ 0, %done2 ], [ %n41, %done8 ]
  %v70 = mul i64 %i40, 32
  %v128 = mul i64 %i40, 48
  %p129 = getelementptr inbounds float, ptr %arg2, i64 %v128
  br label %loop7
loop7:
  %i42 = phi i64 [ 0, %loop5 ], [ %n43, %end11 ]
  %r44 = phi <8 x float> [ splat (float 0x0000000000000000), %loop5 ], [ %r121, %end11 ]
  %r45 = phi <8 x float> [ splat (float 0x0000000000000000), %loop5 ], [ %r122, %end11 ]
  %r46 = phi <8 x float> [ splat (float 0x0000000000000000), %loop5 ], [ %r123, %end11 ]
  %r47 = phi <8 x float> [ splat (float 0x0000000000000000), %loop5 ], [ %r124, %end11 ]
  %r48 = phi <8 x float> [ splat (float 0x0000000000000000), %loop5 ], [ %r125, %end11 ]
  %r49 = phi <8 x float> [ splat (float 0x0000000000000000), %loop5 ], [ %r126, %end11 ]
  %v50 = add i64 %i40, %i42
  %v51 = icmp slt i64 0, %v50
  %v52 = icmp slt i64 %v50, 7
  %v53 = and i1 %v51, %v52
  %v71 = mul i64 %i42, 32
  %v72 = add i64 %v70, %v71
  %v80 = mul i64 %i42, 96
  br i1 %v53, label %then9, label %end11
then9:
  br label %loop12
loop12:
  %i54 = phi i64 [ 0, %then9 ], [ %n55, %done15 ]
  %r56 = phi <8 x float> [ %r44, %then9 ], [ %v88, %done15 ]
  %r57 = phi <8 x float> [ %r45, %then9 ], [ %v94, %done15 ]
  %r58 = phi <8 x float> [ %r46, %then9 ], [ %v100, %done15 ]
  %r59 = phi <8 x float> [ %r47, %then9 ], [ %v106, %done15 ]
  %r60 = phi <8 x float> [ %r48, %then9 ], [ %v112, %done15 ]
  %r61 = phi <8 x float> [ %r49, %then9 ], [ %v118, %done15 ]
  %v73 = mul i64 %i54, 4
  %v74 = add i64 %v72, %v73
  %v81 = mul i64 %i54, 32
  %v82 = add i64 %v80, %v81
  br label %loop14
loop14:
  %i62 = phi i64 [ 0, %loop12 ], [ %n63, %loop14 ]
  %r64 = phi <8 x float> [ %r56, %loop12 ], [ %v88, %loop14 ]
  %r65 = phi <8 x float> [ %r57, %loop12 ], [ %v94, %loop14 ]
  %r66 = phi <8 x float> [ %r58, %loop12 ], [ %v100, %loop14 ]
  %r67 = phi <8 x float> [ %r59, %loop12 ], [ %v106, %loop14 ]
  %r68 = phi <8 x float> [ %r60, %loop12 ], [ %v112, %loop14 ]
  %r69 = phi <8 x float> [ %r61, %loop12 ], [ %v118, %loop14 ]
  %v75 = add i64 %v74, %i62
  %p76 = getelementptr inbounds float, ptr %buf1, i64 %v75
  %v83 = mul i64 %i62, 8
  %v84 = add i64 %v82, %v83
  %p85 = getelementptr inbounds float, ptr %arg1, i64 %v84
  %v77 = load float, ptr %p76, align 4
  %v78 = insertelement <8 x float> poison, float %v77, i32 0
  %v79 = shufflevector <8 x float> %v78, <8 x float> poison, <8 x i32> zeroinitializer
  %v86 = load <8 x float>, ptr %p85, align 4
  %v87 = fmul contract <8 x float> %v79, %v86
  %v88 = fadd contract <8 x float> %r64, %v87
  %p89 = getelementptr inbounds float, ptr %p76, i64 4
  %v90 = load float, ptr %p89, align 4
  %v91 = insertelement <8 x float> poison, float %v90, i32 0
  %v92 = shufflevector <8 x float> %v91, <8 x float> poison, <8 x i32> zeroinitializer
  %v93 = fmul contract <8 x float> %v92, %v86
  %v94 = fadd contract <8 x float> %r65, %v93
  %p95 = getelementptr inbounds float, ptr %p76, i64 8
  %v96 = load float, ptr %p95, align 4
  %v97 = insertelement <8 x float> poison, float %v96, i32 0
  %v98 = shufflevector <8 x float> %v97, <8 x float> poison, <8 x i32> zeroinitializer
  %v99 = fmul contract <8 x float> %v98, %v86
  %v100 = fadd contract <8 x float> %r66, %v99
  %p101 = getelementptr inbounds float, ptr %p76, i64 12
  %v102 = load float, ptr %p101, align 4
  %v103 = insertelement <8 x float> poison, float %v102, i32 0
  %v104 = shufflevector <8 x float> %v103, <8 x float> poison, <8 x i32> zeroinitializer
  %v105 = fmul contract <8 x float> %v104, %v86
  %v106 = fadd contract <8 x float> %r67, %v105
  %p107 = getelementptr inbounds float, ptr %p76, i64 16
  %v108 = load float, ptr %p107, align 4
  %v109 = insertelement <8 x float> poison, float %v108, i32 0
  %v110 = shufflevector <8 x float> %v109, <8 x float> poison, <8 x i32> zeroinitializer
  %v111 = fmul contract <8 x float> %v110, %v86
  %v112 = fadd contract <8 x float> %r68, %v111
  %p113 = getelementptr inbounds float, ptr %p76, i64 20
  %v114 = load float, ptr %p113, align 4
  %v115 = insertelement <8 x float> poison, float %v114, i32 0
  %v116 = shufflevector <8 x float> %v115, <8 x float> poison, <8 x i32> zeroinitializer
  %v117 = fmul contract <8 x float> %v116, %v86
  %v118 = fadd contract <8 x float> %r69, %v117
  %n63 = add nsw i64 %i62, 1
  %v119 = icmp slt i64 %n63, 4
  br i1 %v119, label %loop14, label %done15
done15:
  %n55 = add nsw i64 %i54, 1
  %v120 = icmp slt i64 %n55, 3
  br i1 %v120, label %loop12, label %done13
done13:
  br label %end11
end11:
  %r121 = phi <8 x float> [ %r44, %loop7 ], [ %v88, %done13 ]
  %r122 = phi <8 x float> [ %r45, %loop7 ], [ %v94, %done13 ]
  %r123 = phi <8 x float> [ %r46, %loop7 ], [ %v100, %done13 ]
  %r124 = phi <8 x float> [ %r47, %loop7 ], [ %v106, %done13 ]
  %r125 = phi <8 x float> [ %r48, %loop7 ], [ %v112, %done13 ]
  %r126 = phi <8 x float> [ %r49, %loop7 ], [ %v118, %done13 ]
  %n43 = add nsw i64 %i42, 1
  %v127 = icmp slt i64 %n43, 3
  br i1 %v127, label %loop7, label %done8
done8:
  store <8 x float> %r121, ptr %p129, align 4
  %p130 = getelementptr inbounds float, ptr %p129, i64 8
  store <8 x float> %r122, ptr %p130, align 4
  %p131 = getelementptr inbounds float, ptr %p129, i64 16
  store <8 x float> %r123, ptr %p131, align 4
  %p132 = getelementptr inbounds float, ptr %p129, i64 24
  store <8 x float> %r124, ptr %p132, align 4
  %p133 = getelementptr inbounds float, ptr %p129, i64 32
  store <8 x float> %r125, ptr %p133, align 4
  %p134 = getelementptr inbounds float, ptr %p129, i64 40
  store <8 x float> %r126, ptr %p134, align 4
  %n41 = add nsw i64 %i40, 1
  %v135 = icmp slt i64 %n41, 6
  br i1 %v135, label %loop5, label %done6
done6:
  ret void
}

define internal void @fused_transpose_2(ptr noalias %arg0, ptr noalias %arg1, i32 %threads) nounwind {
entry:
  br label %loop1
loop1:
  %i1 = phi i64 [ 0, %entry ], [ %n2, %loop1 ]
  %v3 = mul i64 %i1, 64
  %p4 = getelementptr inbounds float, ptr %arg0, i64 %v3
  %v44 = mul i64 %i1, 8
  %p45 = getelementptr inbounds float, ptr %arg1, i64 %v44
  %v5 = load <8 x float>, ptr %p4, align 4
  %p6 = getelementptr inbounds float, ptr %p4, i64 8
  %v7 = load <8 x float>, ptr %p6, align 4
  %v20 = shufflevector <8 x float> %v5, <8 x float> %v7, <8 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14>
  %v24 = shufflevector <8 x float> %v5, <8 x float> %v7, <8 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15>
  %p8 = getelementptr inbounds float, ptr %p4, i64 16
  %v9 = load <8 x float>, ptr %p8, align 4
  %p10 = getelementptr inbounds float, ptr %p4, i64 24
  %v11 = load <8 x float>, ptr %p10, align 4
  %v21 = shufflevector <8 x float> %v9, <8 x float> %v11, <8 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14>
  %v25 = shufflevector <8 x float> %v9, <8 x float> %v11, <8 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15>
  %p12 = getelementptr inbounds float, ptr %p4, i64 32
  %v13 = load <8 x float>, ptr %p12, align 4
  %p14 = getelementptr inbounds float, ptr %p4, i64 40
  %v15 = load <8 x float>, ptr %p14, align 4
  %v22 = shufflevector <8 x float> %v13, <8 x float> %v15, <8 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14>
  %v26 = shufflevector <8 x float> %v13, <8 x float> %v15, <8 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15>
  %p16 = getelementptr inbounds float, ptr %p4, i64 48
  %v17 = load <8 x float>, ptr %p16, align 4
  %p18 = getelementptr inbounds float, ptr %p4, i64 56
  %v19 = load <8 x float>, ptr %p18, align 4
  %v23 = shufflevector <8 x float> %v17, <8 x float> %v19, <8 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14>
  %v27 = shufflevector <8 x float> %v17, <8 x float> %v19, <8 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15>
  %v28 = shufflevector <8 x float> %v20, <8 x float> %v21, <8 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14>
  %v30 = shufflevector <8 x float> %v20, <8 x float> %v21, <8 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15>
  %v29 = shufflevector <8 x float> %v22, <8 x float> %v23, <8 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14>
  %v31 = shufflevector <8 x float> %v22, <8 x float> %v23, <8 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15>
  %v36 = shufflevector <8 x float> %v24, <8 x float> %v25, <8 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14>
  %v38 = shufflevector <8 x float> %v24, <8 x float> %v25, <8 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15>
  %v37 = shufflevector <8 x float> %v26, <8 x float> %v27, <8 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14>
  %v39 = shufflevector <8 x float> %v26, <8 x float> %v27, <8 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15>
  %v32 = shufflevector <8 x float> %v28, <8 x float> %v29, <8 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14>
  %v33 = shufflevector <8 x float> %v28, <8 x float> %v29, <8 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15>
  %v34 = shufflevector <8 x float> %v30, <8 x float> %v31, <8 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14>
  %v35 = shufflevector <8 x float> %v30, <8 x float> %v31, <8 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15>
  %v40 = shufflevector <8 x float> %v36, <8 x float> %v37, <8 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14>
  %v41 = shufflevector <8 x float> %v36, <8 x float> %v37, <8 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15>
  %v42 = shufflevector <8 x float> %v38, <8 x float> %v39, <8 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14>
  %v43 = shufflevector <8 x float> %v38, <8 x float> %v39, <8 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15>
  store <8 x float> %v32, ptr %p45, align 4
  %p46 = getelementptr inbounds float, ptr %p45, i64 36
  store <8 x float> %v40, ptr %p46, align 4
  %p47 = getelementptr inbounds float, ptr %p45, i64 72
  store <8 x float> %v34, ptr %p47, align 4
  %p48 = getelementptr inbounds float, ptr %p45, i64 108
  store <8 x float> %v42, ptr %p48, align 4
  %p49 = getelementptr inbounds float, ptr %p45, i64 144
  store <8 x float> %v33, ptr %p49, align 4
  %p50 = getelementptr inbounds float, ptr %p45, i64 180
  store <8 x float> %v41, ptr %p50, align 4
  %p51 = getelementptr inbounds float, ptr %p45, i64 216
  store <8 x float> %v35, ptr %p51, align 4
  %p52 = getelementptr inbounds float, ptr %p45, i64 252
  store <8 x float> %v43, ptr %p52, align 4
  %n2 = add nsw i64 %i1, 1
  %v53 = icmp slt i64 %n2, 4
  br i1 %v53, label %loop1, label %done2
done2:
  %p54 = getelementptr inbounds float, ptr %arg0, i64 256
  %v55 = load <4 x float>, ptr %p54, align 4
  %p56 = getelementptr inbounds float, ptr %arg0, i64 260
  %v57 = load <4 x float>, ptr %p56, align 4
  %v70 = shufflevector <4 x float> %v55, <4 x float> %v57, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %v74 = shufflevector <4 x float> %v55, <4 x float> %v57, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %p58 = getelementptr inbounds float, ptr %arg0, i64 264
  %v59 = load <4 x float>, ptr %p58, align 4
  %p60 = getelementptr inbounds float, ptr %arg0, i64 268
  %v61 = load <4 x float>, ptr %p60, align 4
  %v71 = shufflevector <4 x float> %v59, <4 x float> %v61, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %v75 = shufflevector <4 x float> %v59, <4 x float> %v61, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %p62 = getelementptr inbounds float, ptr %arg0, i64 272
  %v63 = load <4 x float>, ptr %p62, align 4
  %p64 = getelementptr inbounds float, ptr %arg0, i64 276
  %v65 = load <4 x float>, ptr %p64, align 4
  %v72 = shufflevector <4 x float> %v63, <4 x float> %v65, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %v76 = shufflevector <4 x float> %v63, <4 x float> %v65, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %p66 = getelementptr inbounds float, ptr %arg0, i64 280
  %v67 = load <4 x float>, ptr %p66, align 4
  %p68 = getelementptr inbounds float, ptr %arg0, i64 284
  %v69 = load <4 x float>, ptr %p68, align 4
  %v73 = shufflevector <4 x float> %v67, <4 x float> %v69, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %v77 = shufflevector <4 x float> %v67, <4 x float> %v69, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %v78 = shufflevector <4 x float> %v70, <4 x float> %v71, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %v80 = shufflevector <4 x float> %v70, <4 x float> %v71, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %v79 = shufflevector <4 x float> %v72, <4 x float> %v73, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %v81 = shufflevector <4 x float> %v72, <4 x float> %v73, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %v86 = shufflevector <4 x float> %v74, <4 x float> %v75, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %v88 = shufflevector <4 x float> %v74, <4 x float> %v75, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %v87 = shufflevector <4 x float> %v76, <4 x float> %v77, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %v89 = shufflevector <4 x float> %v76, <4 x float> %v77, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %v82 = shufflevector <4 x float> %v78, <4 x float> %v79, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %v83 = shufflevector <4 x float> %v78, <4 x float> %v79, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %v84 = shufflevector <4 x float> %v80, <4 x float> %v81, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %v85 = shufflevector <4 x float> %v80, <4 x float> %v81, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %v90 = shufflevector <4 x float> %v86, <4 x float> %v87, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %v91 = shufflevector <4 x float> %v86, <4 x float> %v87, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %v92 = shufflevector <4 x float> %v88, <4 x float> %v89, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %v93 = shufflevector <4 x float> %v88, <4 x float> %v89, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %p94 = getelementptr inbounds float, ptr %arg1, i64 32
  store <4 x float> %v82, ptr %p94, align 4
  %p95 = getelementptr inbounds float, ptr %arg1, i64 68
  store <4 x float> %v90, ptr %p95, align 4
  %p96 = getelementptr inbounds float, ptr %arg1, i64 104
  store <4 x float> %v84, ptr %p96, align 4
  %p97 = getelementptr inbounds float, ptr %arg1, i64 140
  store <4 x float> %v92, ptr %p97, align 4
  %p98 = getelementptr inbounds float, ptr %arg1, i64 176
  store <4 x float> %v83, ptr %p98, align 4
  %p99 = getelementptr inbounds float, ptr %arg1, i64 212
  store <4 x float> %v91, ptr %p99, align 4
  %p100 = getelementptr inbounds float, ptr %arg1, i64 248
  store <4 x float> %v85, ptr %p100, align 4
  %p101 = getelementptr inbounds float, ptr %arg1, i64 284
  store <4 x float> %v93, ptr %p101, align 4
  ret void
}


