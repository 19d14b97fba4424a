
define internal void @fused_add_tanh(ptr %arg0, ptr noalias %arg1, ptr %arg2, i32 %threads) nounwind {
entry:
  br label %loop1
loop1:
  %i1 = phi i64 [ 0, %entry ], [ %n2, %loop1 ]
  %v3 = mul i64 %i1, 7
  %p4 = getelementptr inbounds float, ptr %arg0, i64 %v3
  %p9 = getelementptr inbounds float, ptr %arg2, i64 %v3
  %v5 = load <4 x float>, ptr %p4, align 4
  %v6 = load <4 x float>, ptr %arg1, align 4
  %v7 = fadd contract <4 x float> %v5, %v6
  %mv8.0 = call <4 x float> @llvm.fabs.v4f32(<4 x float> %v7)
  %mv8.1 = fcmp olt <4 x float> splat (float 0x4024000000000000), %mv8.0
  %mv8.2 = select <4 x i1> %mv8.1, <4 x float> splat (float 0x4024000000000000), <4 x float> %mv8.0
  %mv8.3 = fadd <4 x float> %mv8.2, %mv8.2
  %mv8.4 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv8.3, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000FE0000000))
  %mv8.5 = fsub <4 x float> %mv8.4, splat (float 0x4168000FE0000000)
  %mv8.6 = bitcast <4 x float> %mv8.4 to <4 x i32>
  %mv8.7 = call <4 x float> @llvm.fma.v4f32(<4 x float> splat (float 0xBFE6300000000000), <4 x float> %mv8.5, <4 x float> %mv8.3)
  %mv8.8 = call <4 x float> @llvm.fma.v4f32(<4 x float> splat (float 0x3F2BD01060000000), <4 x float> %mv8.5, <4 x float> %mv8.7)
  %mv8.9 = shl <4 x i32> %mv8.6, splat (i32 23)
  %mv8.10 = bitcast <4 x i32> %mv8.9 to <4 x float>
  %mv8.11 = fmul <4 x float> %mv8.8, %mv8.8
  %mv8.12 = call <4 x float> @llvm.fma.v4f32(<4 x float> splat (float 0x3F56B8B0A0000000), <4 x float> %mv8.8, <4 x float> splat (float 0x3F81226BA0000000))
  %mv8.13 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv8.12, <4 x float> %mv8.8, <4 x float> splat (float 0x3FA5557020000000))
  %mv8.14 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv8.13, <4 x float> %mv8.8, <4 x float> splat (float 0x3FC5554B20000000))
  %mv8.15 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv8.14, <4 x float> %mv8.8, <4 x float> splat (float 0x3FDFFFFFE0000000))
  %mv8.16 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv8.11, <4 x float> %mv8.15, <4 x float> %mv8.8)
  %mv8.17 = fsub <4 x float> %mv8.10, splat (float 0x3FF0000000000000)
  %mv8.18 = call <4 x float> @llvm.fma.v4f32(<4 x float> %mv8.16, <4 x float> %mv8.10, <4 x float> %mv8.17)
  %mv8.19 = fadd <4 x float> %mv8.18, splat (float 0x4000000000000000)
  %mv8.20 = fdiv <4 x float> %mv8.18, %mv8.19
  %mv8.21 = call <4 x float> @llvm.copysign.v4f32(<4 x float> %mv8.20, <4 x float> %v7)
  store <4 x float> %mv8.21, ptr %p9, align 4
  %p10 = getelementptr inbounds float, ptr %p4, i64 4
  %v11 = load <2 x float>, ptr %p10, align 4
  %p12 = getelementptr inbounds float, ptr %arg1, i64 4
  %v13 = load <2 x float>, ptr %p12, align 4
  %v14 = fadd contract <2 x float> %v11, %v13
  %mv15.0 = call <2 x float> @llvm.fabs.v2f32(<2 x float> %v14)
  %mv15.1 = fcmp olt <2 x float> splat (float 0x4024000000000000), %mv15.0
  %mv15.2 = select <2 x i1> %mv15.1, <2 x float> splat (float 0x4024000000000000), <2 x float> %mv15.0
  %mv15.3 = fadd <2 x float> %mv15.2, %mv15.2
  %mv15.4 = call <2 x float> @llvm.fma.v2f32(<2 x float> %mv15.3, <2 x float> splat (float 0x3FF7154760000000), <2 x float> splat (float 0x4168000FE0000000))
  %mv15.5 = fsub <2 x float> %mv15.4, splat (float 0x4168000FE0000000)
  %mv15.6 = bitcast <2 x float> %mv15.4 to <2 x i32>
  %mv15.7 = call <2 x float> @llvm.fma.v2f32(<2 x float> splat (float 0xBFE6300000000000), <2 x float> %mv15.5, <2 x float> %mv15.3)
  %mv15.8 = call <2 x float> @llvm.fma.v2f32(<2 x float> splat (float 0x3F2BD01060000000), <2 x float> %mv15.5, <2 x float> %mv15.7)
  %mv15.9 = shl <2 x i32> %mv15.6, splat (i32 23)
  %mv15.10 = bitcast <2 x i32> %mv15.9 to <2 x float>
  %mv15.11 = fmul <2 x float> %mv15.8, %mv15.8
  %mv15.12 = call <2 x float> @llvm.fma.v2f32(<2 x float> splat (float 0x3F56B8B0A0000000), <2 x float> %mv15.8, <2 x float> splat (float 0x3F81226BA0000000))
  %mv15.13 = call <2 x float> @llvm.fma.v2f32(<2 x float> %mv15.12, <2 x float> %mv15.8, <2 x float> splat (float 0x3FA5557020000000))
  %mv15.14 = call <2 x float> @llvm.fma.v2f32(<2 x float> %mv15.13, <2 x float> %mv15.8, <2 x float> splat (float 0x3FC5554B20000000))
  %mv15.15 = call <2 x float> @llvm.fma.v2f32(<2 x float> %mv15.14, <2 x float> %mv15.8, <2 x float> splat (float 0x3FDFFFFFE0000000))
  %mv15.16 = call <2 x float> @llvm.fma.v2f32(<2 x float> %mv15.11, <2 x float> %mv15.15, <2 x float> %mv15.8)
  %mv15.17 = fsub <2 x float> %mv15.10, splat (float 0x3FF0000000000000)
  %mv15.18 = call <2 x float> @llvm.fma.v2f32(<2 x float> %mv15.16, <2 x float> %mv15.10, <2 x float> %mv15.17)
  %mv15.19 = fadd <2 x float> %mv15.18, splat (float 0x4000000000000000)
  %mv15.20 = fdiv <2 x float> %mv15.18, %mv15.19
  %mv15.21 = call <2 x float> @llvm.copysign.v2f32(<2 x float> %mv15.20, <2 x float> %v14)
  %p16 = getelementptr inbounds float, ptr %p9, i64 4
  store <2 x float> %mv15.21, ptr %p16, align 4
  %p17 = getelementptr inbounds float, ptr %p4, i64 6
  %v18 = load float, ptr %p17, align 4
  %p19 = getelementptr inbounds float, ptr %arg1, i64 6
  %v20 = load float, ptr %p19, align 4
  %v21 = fadd contract float %v18, %v20
  %mv22.0 = call float @llvm.fabs.f32(float %v21)
  %mv22.1 = fcmp olt float 0x4024000000000000, %mv22.0
  %mv22.2 = select i1 %mv22.1, float 0x4024000000000000, float %mv22.0
  %mv22.3 = fadd float %mv22.2, %mv22.2
  %mv22.4 = call float @llvm.fma.f32(float %mv22.3, float 0x3FF7154760000000, float 0x4168000FE0000000)
  %mv22.5 = fsub float %mv22.4, 0x4168000FE0000000
  %mv22.6 = bitcast float %mv22.4 to i32
  %mv22.7 = call float @llvm.fma.f32(float 0xBFE6300000000000, float %mv22.5, float %mv22.3)
  %mv22.8 = call float @llvm.fma.f32(float 0x3F2BD01060000000, float %mv22.5, float %mv22.7)
  %mv22.9 = shl i32 %mv22.6, 23
  %mv22.10 = bitcast i32 %mv22.9 to float
  %mv22.11 = fmul float %mv22.8, %mv22.8
  %mv22.12 = call float @llvm.fma.f32(float 0x3F56B8B0A0000000, float %mv22.8, float 0x3F81226BA0000000)
  %mv22.13 = call float @llvm.fma.f32(float %mv22.12, float %mv22.8, float 0x3FA5557020000000)
  %mv22.14 = call float @llvm.fma.f32(float %mv22.13, float %mv22.8, float 0x3FC5554B20000000)
  %mv22.15 = call float @llvm.fma.f32(float %mv22.14, float %mv22.8, float 0x3FDFFFFFE0000000)
  %mv22.16 = call float @llvm.fma.f32(float %mv22.11, float %mv22.15, float %mv22.8)
  %mv22.17 = fsub float %mv22.10, 0x3FF0000000000000
  %mv22.18 = call float @llvm.fma.f32(float %mv22.16, float %mv22.10, float %mv22.17)
  %mv22.19 = fadd float %mv22.18, 0x4000000000000000
  %mv22.20 = fdiv float %mv22.18, %mv22.19
  %mv22.21 = call float @llvm.copysign.f32(float %mv22.20, float %v21)
  %p23 = getelementptr inbounds float, ptr %p9, i64 6
  store float %mv22.21, ptr %p23, align 4
  %n2 = add nsw i64 %i1, 1
  %v24 = icmp slt i64 %n2, 30
  br i1 %v24, label %loop1, label %done2
done2:
  ret void
}


