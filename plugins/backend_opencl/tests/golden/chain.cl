static inline float dlc_tanh_f32(float x)
{
    /* some libraries do not reach one, which 1 - tanh(x) wants */
    return fabs(x) > 10.0f ? copysign(1.0f, x) : tanh(x);
}


__attribute__((reqd_work_group_size(4, 1, 1)))
kernel void fused_add_tanh_kernel(global const float *restrict p0, const long p0_at,
        global const float *restrict p1, const long p1_at,
        global float *restrict tanh_, const long tanh__at)
{
    tanh_ += tanh__at;
    p1 += p1_at;
    p0 += p0_at;
    const int i0_i1_0_fused_0 = (int)get_group_id(0);
    const int i0_i1_0_fused_1 = (int)get_local_id(0);
    const float4 p0_1 = vload4(0, p0 + (i0_i1_0_fused_0 * 16 + i0_i1_0_fused_1 * 4));
    const float4 p1_1 = vload4(0, p1 + i0_i1_0_fused_1 % 2 * 4);
    vstore4((float4)(dlc_tanh_f32(p0_1.s0 + p1_1.s0), dlc_tanh_f32(p0_1.s1 + p1_1.s1),
            dlc_tanh_f32(p0_1.s2 + p1_1.s2), dlc_tanh_f32(p0_1.s3 + p1_1.s3)), 0, tanh_
            + (i0_i1_0_fused_0 * 16 + i0_i1_0_fused_1 * 4));
}
