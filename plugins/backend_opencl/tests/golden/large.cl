__attribute__((reqd_work_group_size(256, 1, 1)))
kernel void fused_bitwise_not_kernel(global const uchar *restrict p0, const long p0_at,
        global uchar *restrict bitwise_not, const long bitwise_not_at)
{
    bitwise_not += bitwise_not_at;
    p0 += p0_at;
    const long i0_i1_fused_0_1 = (long)get_group_id(0);
    const long i0_i1_fused_0_2 = (long)get_local_id(0);
    for (long i0_i1_fused_0_0 = 0; i0_i1_fused_0_0 < 8; ++i0_i1_fused_0_0) {
        const uchar16 p0_1 =
                vload16(0, p0
                + (i0_i1_fused_0_0 * 268435456 + i0_i1_fused_0_1 * 4096 + i0_i1_fused_0_2 * 16));
        vstore16((uchar16)((uchar)~p0_1.s0, (uchar)~p0_1.s1, (uchar)~p0_1.s2, (uchar)~p0_1.s3,
                (uchar)~p0_1.s4, (uchar)~p0_1.s5, (uchar)~p0_1.s6, (uchar)~p0_1.s7, (uchar)~p0_1.s8,
                (uchar)~p0_1.s9, (uchar)~p0_1.sa, (uchar)~p0_1.sb, (uchar)~p0_1.sc, (uchar)~p0_1.sd,
                (uchar)~p0_1.se, (uchar)~p0_1.sf), 0, bitwise_not
                + (i0_i1_fused_0_0 * 268435456 + i0_i1_fused_0_1 * 4096 + i0_i1_fused_0_2 * 16));
    }
}
