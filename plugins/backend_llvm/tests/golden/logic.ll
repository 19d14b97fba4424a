
define internal void @fused_less_logical_and(ptr noalias %arg0, ptr %arg1, ptr %arg2, i32 %threads) nounwind {
entry:
  br label %loop1
loop1:
  %i1 = phi i64 [ 0, %entry ], [ %n2, %loop1 ]
  %v3 = mul i64 %i1, 8
  %p4 = getelementptr inbounds i8, ptr %arg0, i64 %v3
  %p7 = getelementptr inbounds i8, ptr %arg1, i64 %v3
  %p11 = getelementptr inbounds i8, ptr %arg2, i64 %v3
  %v5 = load <8 x i8>, ptr %p4, align 1
  %v6 = icmp slt <8 x i8> %v5, splat (i8 3)
  %v8 = load <8 x i8>, ptr %p7, align 1
  %v9 = icmp ne <8 x i8> %v8, zeroinitializer
  %v10 = and <8 x i1> %v6, %v9
  %v12 = zext <8 x i1> %v10 to <8 x i8>
  store <8 x i8> %v12, ptr %p11, align 1
  %n2 = add nsw i64 %i1, 1
  %v13 = icmp slt i64 %n2, 2
  br i1 %v13, label %loop1, label %done2
done2:
  %p14 = getelementptr inbounds i8, ptr %arg0, i64 16
  %v15 = load <2 x i8>, ptr %p14, align 1
  %v16 = icmp slt <2 x i8> %v15, splat (i8 3)
  %p17 = getelementptr inbounds i8, ptr %arg1, i64 16
  %v18 = load <2 x i8>, ptr %p17, align 1
  %v19 = icmp ne <2 x i8> %v18, zeroinitializer
  %v20 = and <2 x i1> %v16, %v19
  %p21 = getelementptr inbounds i8, ptr %arg2, i64 16
  %v22 = zext <2 x i1> %v20 to <2 x i8>
  store <2 x i8> %v22, ptr %p21, align 1
  %p23 = getelementptr inbounds i8, ptr %arg0, i64 18
  %v24 = load i8, ptr %p23, align 1
  %v25 = icmp slt i8 %v24, 3
  %p26 = getelementptr inbounds i8, ptr %arg1, i64 18
  %v27 = load i8, ptr %p26, align 1
  %v28 = icmp ne i8 %v27, 0
  %v29 = and i1 %v25, %v28
  %p30 = getelementptr inbounds i8, ptr %arg2, i64 18
  %v31 = zext i1 %v29 to i8
  store i8 %v31, ptr %p30, align 1
  ret void
}


