static inline float dlc_f16_to_f32(ushort half_bits)
{
    const uchar2 held = as_uchar2(half_bits);
    return vload_half(0, (const half *)&held);
}

static inline ushort dlc_f32_to_f16(float value)
{
    const uint wide = as_uint(value);
    uchar2 held;
    if (value != value)
        return (ushort)((wide >> 16 & 0x8000u) | 0x7e00u | (wide >> 13 & 0x3ffu));
    vstore_half_rte(value, 0, (half *)&held);
    return as_ushort(held);
}

static inline float dlc_round_f16(float value)
{
    return dlc_f16_to_f32(dlc_f32_to_f16(value));
}

__attribute__((reqd_work_group_size(1, 1, 1)))
kernel void fused_add_kernel(global const ushort *restrict p0, const long p0_at,
        global const ushort *restrict p1, const long p1_at,
        global ushort *restrict add, const long add_at)
{
    add += add_at;
    p1 += p1_at;
    p0 += p0_at;
    const int i0_0_0 = (int)get_group_id(0);
    const int i0_0_1 = (int)get_local_id(0);
    const ushort8 p0_1 = vload8(0, p0 + i0_0_0 * 8);
    const ushort8 p1_1 = vload8(0, p1 + i0_0_0 * 8);
    vstore8((ushort8)(dlc_f32_to_f16(dlc_round_f16((dlc_f16_to_f32(p0_1.s0) + dlc_f16_to_f32(p1_1.s0)))),
            dlc_f32_to_f16(dlc_round_f16((dlc_f16_to_f32(p0_1.s1) + dlc_f16_to_f32(p1_1.s1)))),
            dlc_f32_to_f16(dlc_round_f16((dlc_f16_to_f32(p0_1.s2) + dlc_f16_to_f32(p1_1.s2)))),
            dlc_f32_to_f16(dlc_round_f16((dlc_f16_to_f32(p0_1.s3) + dlc_f16_to_f32(p1_1.s3)))),
            dlc_f32_to_f16(dlc_round_f16((dlc_f16_to_f32(p0_1.s4) + dlc_f16_to_f32(p1_1.s4)))),
            dlc_f32_to_f16(dlc_round_f16((dlc_f16_to_f32(p0_1.s5) + dlc_f16_to_f32(p1_1.s5)))),
            dlc_f32_to_f16(dlc_round_f16((dlc_f16_to_f32(p0_1.s6) + dlc_f16_to_f32(p1_1.s6)))),
            dlc_f32_to_f16(dlc_round_f16((dlc_f16_to_f32(p0_1.s7) + dlc_f16_to_f32(p1_1.s7))))), 0, add
            + i0_0_0 * 8);
}
