__attribute__((reqd_work_group_size(256, 1, 1)))
kernel void fused_mul_kernel(global const float *restrict p0, const long p0_at,
        global float *restrict mul, const long mul_at,
        long n)
{
    mul += mul_at;
    p0 += p0_at;
    const long i0_0_0 = (long)get_group_id(0);
    const long i0_0_1 = (long)get_local_id(0);
    if (i0_0_0 * 1024 + i0_0_1 * 4 < n - 3 && i0_0_0 * 256 + i0_0_1 < (n + 3) / 4) {
        const float4 p0_1 = vload4(0, p0 + (i0_0_0 * 1024 + i0_0_1 * 4));
        vstore4((float4)(p0_1.s0 * p0_1.s0, p0_1.s1 * p0_1.s1, p0_1.s2 * p0_1.s2, p0_1.s3 * p0_1.s3), 0, mul
                + (i0_0_0 * 1024 + i0_0_1 * 4));
    } else {
        for (long i0_1 = 0; i0_1 < 4; ++i0_1) {
            if (i0_0_0 * 1024 + i0_0_1 * 4 + i0_1 < n && i0_0_0 * 256 + i0_0_1 < (n + 3) / 4) {
                const float p0_1 = p0[i0_0_0 * 1024 + i0_0_1 * 4 + i0_1];
                mul[i0_0_0 * 1024 + i0_0_1 * 4 + i0_1] = p0_1 * p0_1;
            }
        }
    }
}
