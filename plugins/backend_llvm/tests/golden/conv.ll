
define internal void @fused_transpose(ptr noalias %arg0, ptr noalias %arg1, i32 %threads) nounwind {
entry:
  br label %loop1
loop1:
  %i1 = phi i64 [ 0, %entry ], [ %n2, %done4 ]
  %v5 = mul i64 %i1, 6
  %v19 = mul i64 %i1, 24
  br label %loop3
loop3:
  %i3 = phi i64 [ 0, %loop1 ], [ %n4, %loop3 ]
  %v6 = add i64 %v5, %i3
  %p7 = getelementptr inbounds float, ptr %arg0, i64 %v6
  %v20 = mul i64 %i3, 4
  %v21 = add i64 %v19, %v20
  %p22 = getelementptr inbounds float, ptr %arg1, i64 %v21
  %v8 = load float, ptr %p7, align 4
  %v9 = insertelement <4 x float> poison, float %v8, i32 0
  %p10 = getelementptr inbounds float, ptr %p7, i64 36
  %v11 = load float, ptr %p10, align 4
  %v12 = insertelement <4 x float> %v9, float %v11, i32 1
  %p13 = getelementptr inbounds float, ptr %p7, i64 72
  %v14 = load float, ptr %p13, align 4
  %v15 = insertelement <4 x float> %v12, float %v14, i32 2
  %p16 = getelementptr inbounds float, ptr %p7, i64 108
  %v17 = load float, ptr %p16, align 4
  %v18 = insertelement <4 x float> %v15, float %v17, i32 3
  store <4 x float> %v18, ptr %p22, align 4
  %n4 = add nsw i64 %i3, 1
  %v23 = icmp slt i64 %n4, 6
  br i1 %v23, label %loop3, label %done4
done4:
  %n2 = add nsw i64 %i1, 1
  %v24 = icmp slt i64 %n2, 6
  br i1 %v24, label %loop1, label %done2
done2:
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
  %v66 = mul i64 %i40, 32
  %v118 = mul i64 %i40, 48
  %p119 = getelementptr inbounds float, ptr %arg2, i64 %v118
  br label %loop7
loop7:
  %i42 = phi i64 [ 0, %loop5 ], [ %n43, %done10 ]
  %r44 = phi <8 x float> [ splat (float 0x0000000000000000), %loop5 ], [ %v84, %done10 ]
  %r45 = phi <8 x float> [ splat (float 0x0000000000000000), %loop5 ], [ %v90, %done10 ]
  %r46 = phi <8 x float> [ splat (float 0x0000000000000000), %loop5 ], [ %v96, %done10 ]
  %r47 = phi <8 x float> [ splat (float 0x0000000000000000), %loop5 ], [ %v102, %done10 ]
  %r48 = phi <8 x float> [ splat (float 0x0000000000000000), %loop5 ], [ %v108, %done10 ]
  %r49 = phi <8 x float> [ splat (float 0x0000000000000000), %loop5 ], [ %v114, %done10 ]
  %v67 = mul i64 %i42, 32
  %v68 = add i64 %v66, %v67
  %v76 = mul i64 %i42, 96
  br label %loop9
loop9:
  %i50 = phi i64 [ 0, %loop7 ], [ %n51, %done12 ]
  %r52 = phi <8 x float> [ %r44, %loop7 ], [ %v84, %done12 ]
  %r53 = phi <8 x float> [ %r45, %loop7 ], [ %v90, %done12 ]
  %r54 = phi <8 x float> [ %r46, %loop7 ], [ %v96, %done12 ]
  %r55 = phi <8 x float> [ %r47, %loop7 ], [ %v102, %done12 ]
  %r56 = phi <8 x float> [ %r48, %loop7 ], [ %v108, %done12 ]
  %r57 = phi <8 x float> [ %r49, %loop7 ], [ %v114, %done12 ]
  %v69 = mul i64 %i50, 4
  %v70 = add i64 %v68, %v69
  %v77 = mul i64 %i50, 32
  %v78 = add i64 %v76, %v77
  br label %loop11
loop11:
  %i58 = phi i64 [ 0, %loop9 ], [ %n59, %loop11 ]
  %r60 = phi <8 x float> [ %r52, %loop9 ], [ %v84, %loop11 ]
  %r61 = phi <8 x float> [ %r53, %loop9 ], [ %v90, %loop11 ]
  %r62 = phi <8 x float> [ %r54, %loop9 ], [ %v96, %loop11 ]
  %r63 = phi <8 x float> [ %r55, %loop9 ], [ %v102, %loop11 ]
  %r64 = phi <8 x float> [ %r56, %loop9 ], [ %v108, %loop11 ]
  %r65 = phi <8 x float> [ %r57, %loop9 ], [ %v114, %loop11 ]
  %v71 = add i64 %v70, %i58
  %p72 = getelementptr inbounds float, ptr %buf1, i64 %v71
  %v79 = mul i64 %i58, 8
  %v80 = add i64 %v78, %v79
  %p81 = getelementptr inbounds float, ptr %arg1, i64 %v80
  %v73 = load float, ptr %p72, align 4
  %v74 = insertelement <8 x float> poison, float %v73, i32 0
  %v75 = shufflevector <8 x float> %v74, <8 x float> poison, <8 x i32> zeroinitializer
  %v82 = load <8 x float>, ptr %p81, align 4
  %v83 = fmul contract <8 x float> %v75, %v82
  %v84 = fadd contract <8 x float> %r60, %v83
  %p85 = getelementptr inbounds float, ptr %p72, i64 4
  %v86 = load float, ptr %p85, align 4
  %v87 = insertelement <8 x float> poison, float %v86, i32 0
  %v88 = shufflevector <8 x float> %v87, <8 x float> poison, <8 x i32> zeroinitializer
  %v89 = fmul contract <8 x float> %v88, %v82
  %v90 = fadd contract <8 x float> %r61, %v89
  %p91 = getelementptr inbounds float, ptr %p72, i64 8
  %v92 = load float, ptr %p91, align 4
  %v93 = insertelement <8 x float> poison, float %v92, i32 0
  %v94 = shufflevector <8 x float> %v93, <8 x float> poison, <8 x i32> zeroinitializer
  %v95 = fmul contract <8 x float> %v94, %v82
  %v96 = fadd contract <8 x float> %r62, %v95
  %p97 = getelementptr inbounds float, ptr %p72, i64 12
  %v98 = load float, ptr %p97, align 4
  %v99 = insertelement <8 x float> poison, float %v98, i32 0
  %v100 = shufflevector <8 x float> %v99, <8 x float> poison, <8 x i32> zeroinitializer
  %v101 = fmul contract <8 x float> %v100, %v82
  %v102 = fadd contract <8 x float> %r63, %v101
  %p103 = getelementptr inbounds float, ptr %p72, i64 16
  %v104 = load float, ptr %p103, align 4
  %v105 = insertelement <8 x float> poison, float %v104, i32 0
  %v106 = shufflevector <8 x float> %v105, <8 x float> poison, <8 x i32> zeroinitializer
  %v107 = fmul contract <8 x float> %v106, %v82
  %v108 = fadd contract <8 x float> %r64, %v107
  %p109 = getelementptr inbounds float, ptr %p72, i64 20
  %v110 = load float, ptr %p109, align 4
  %v111 = insertelement <8 x float> poison, float %v110, i32 0
  %v112 = shufflevector <8 x float> %v111, <8 x float> poison, <8 x i32> zeroinitializer
  %v113 = fmul contract <8 x float> %v112, %v82
  %v114 = fadd contract <8 x float> %r65, %v113
  %n59 = add nsw i64 %i58, 1
  %v115 = icmp slt i64 %n59, 4
  br i1 %v115, label %loop11, label %done12
done12:
  %n51 = add nsw i64 %i50, 1
  %v116 = icmp slt i64 %n51, 3
  br i1 %v116, label %loop9, label %done10
done10:
  %n43 = add nsw i64 %i42, 1
  %v117 = icmp slt i64 %n43, 3
  br i1 %v117, label %loop7, label %done8
done8:
  store <8 x float> %v84, ptr %p119, align 4
  %p120 = getelementptr inbounds float, ptr %p119, i64 8
  store <8 x float> %v90, ptr %p120, align 4
  %p121 = getelementptr inbounds float, ptr %p119, i64 16
  store <8 x float> %v96, ptr %p121, align 4
  %p122 = getelementptr inbounds float, ptr %p119, i64 24
  store <8 x float> %v102, ptr %p122, align 4
  %p123 = getelementptr inbounds float, ptr %p119, i64 32
  store <8 x float> %v108, ptr %p123, align 4
  %p124 = getelementptr inbounds float, ptr %p119, i64 40
  store <8 x float> %v114, ptr %p124, align 4
  %n41 = add nsw i64 %i40, 1
  %v125 = icmp slt i64 %n41, 6
  br i1 %v125, label %loop5, label %done6
done6:
  ret void
}

define internal void @fused_transpose_2(ptr noalias %arg0, ptr noalias %arg1, i32 %threads) nounwind {
entry:
  br label %loop1
loop1:
  %i1 = phi i64 [ 0, %entry ], [ %n2, %done4 ]
  %v31 = mul i64 %i1, 36
  %p36 = getelementptr inbounds float, ptr %arg0, i64 %i1
  %p49 = getelementptr inbounds float, ptr %arg1, i64 %v31
  br label %loop3
loop3:
  %i3 = phi i64 [ 0, %loop1 ], [ %n4, %loop3 ]
  %v5 = mul i64 %i3, 64
  %v6 = add i64 %i1, %v5
  %p7 = getelementptr inbounds float, ptr %arg0, i64 %v6
  %v32 = mul i64 %i3, 8
  %v33 = add i64 %v31, %v32
  %p34 = getelementptr inbounds float, ptr %arg1, i64 %v33
  %v8 = load float, ptr %p7, align 4
  %v9 = insertelement <8 x float> poison, float %v8, i32 0
  %p10 = getelementptr inbounds float, ptr %p7, i64 8
  %v11 = load float, ptr %p10, align 4
  %v12 = insertelement <8 x float> %v9, float %v11, i32 1
  %p13 = getelementptr inbounds float, ptr %p7, i64 16
  %v14 = load float, ptr %p13, align 4
  %v15 = insertelement <8 x float> %v12, float %v14, i32 2
  %p16 = getelementptr inbounds float, ptr %p7, i64 24
  %v17 = load float, ptr %p16, align 4
  %v18 = insertelement <8 x float> %v15, float %v17, i32 3
  %p19 = getelementptr inbounds float, ptr %p7, i64 32
  %v20 = load float, ptr %p19, align 4
  %v21 = insertelement <8 x float> %v18, float %v20, i32 4
  %p22 = getelementptr inbounds float, ptr %p7, i64 40
  %v23 = load float, ptr %p22, align 4
  %v24 = insertelement <8 x float> %v21, float %v23, i32 5
  %p25 = getelementptr inbounds float, ptr %p7, i64 48
  %v26 = load float, ptr %p25, align 4
  %v27 = insertelement <8 x float> %v24, float %v26, i32 6
  %p28 = getelementptr inbounds float, ptr %p7, i64 56
  %v29 = load float, ptr %p28, align 4
  %v30 = insertelement <8 x float> %v27, float %v29, i32 7
  store <8 x float> %v30, ptr %p34, align 4
  %n4 = add nsw i64 %i3, 1
  %v35 = icmp slt i64 %n4, 4
  br i1 %v35, label %loop3, label %done4
done4:
  %p37 = getelementptr inbounds float, ptr %p36, i64 256
  %v38 = load float, ptr %p37, align 4
  %v39 = insertelement <4 x float> poison, float %v38, i32 0
  %p40 = getelementptr inbounds float, ptr %p36, i64 264
  %v41 = load float, ptr %p40, align 4
  %v42 = insertelement <4 x float> %v39, float %v41, i32 1
  %p43 = getelementptr inbounds float, ptr %p36, i64 272
  %v44 = load float, ptr %p43, align 4
  %v45 = insertelement <4 x float> %v42, float %v44, i32 2
  %p46 = getelementptr inbounds float, ptr %p36, i64 280
  %v47 = load float, ptr %p46, align 4
  %v48 = insertelement <4 x float> %v45, float %v47, i32 3
  %p50 = getelementptr inbounds float, ptr %p49, i64 32
  store <4 x float> %v48, ptr %p50, align 4
  %n2 = add nsw i64 %i1, 1
  %v51 = icmp slt i64 %n2, 8
  br i1 %v51, label %loop1, label %done2
done2:
  ret void
}


