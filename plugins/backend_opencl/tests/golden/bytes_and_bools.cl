__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void fused_less_logical_and_kernel(global const char *restrict p0, const long p0_at,
        global const uchar *restrict p1, const long p1_at,
        global uchar *restrict logical_and, const long logical_and_at)
{
    logical_and += logical_and_at;
    p1 += p1_at;
    p0 += p0_at;
    const int i0_0_0 = (int)get_group_id(0);
    const int i0_0_1 = (int)get_local_id(0);
    if (i0_0_0 < 1) {
        const char16 p0_1 = vload16(0, p0 + i0_0_0 * 16);
        const uchar16 p1_1 = vload16(0, p1 + i0_0_0 * 16);
        vstore16((uchar16)(p0_1.s0 < 3 && (p1_1.s0 != 0), p0_1.s1 < 3 && (p1_1.s1 != 0), p0_1.s2 < 3
                && (p1_1.s2 != 0), p0_1.s3 < 3 && (p1_1.s3 != 0), p0_1.s4 < 3 && (p1_1.s4 != 0), p0_1.s5 < 3
                && (p1_1.s5 != 0), p0_1.s6 < 3 && (p1_1.s6 != 0), p0_1.s7 < 3 && (p1_1.s7 != 0), p0_1.s8 < 3
                && (p1_1.s8 != 0), p0_1.s9 < 3 && (p1_1.s9 != 0), p0_1.sa < 3 && (p1_1.sa != 0), p0_1.sb < 3
                && (p1_1.sb != 0), p0_1.sc < 3 && (p1_1.sc != 0), p0_1.sd < 3 && (p1_1.sd != 0), p0_1.se < 3
                && (p1_1.se != 0), p0_1.sf < 3 && (p1_1.sf != 0)), 0, logical_and + i0_0_0 * 16);
    } else {
        for (int i0_1 = 0; i0_1 < 16; ++i0_1) {
            if (i0_0_0 * 16 + i0_1 < 19) {
                logical_and[i0_0_0 * 16 + i0_1] = p0[i0_0_0 * 16 + i0_1] < 3 && (p1[i0_0_0 * 16 + i0_1] != 0);
            }
        }
    }
}
