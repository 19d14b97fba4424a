#pragma OPENCL EXTENSION cl_khr_fp64 : enable

__attribute__((reqd_work_group_size(2, 1, 1)))
kernel void fused_exp_kernel(global const double *restrict p0, const long p0_at,
        global double *restrict exp_, const long exp__at)
{
    exp_ += exp__at;
    p0 += p0_at;
    const int i0_0_0 = (int)get_group_id(0);
    const int i0_0_1 = (int)get_local_id(0);
    const double2 p0_1 = vload2(0, p0 + (i0_0_0 * 4 + i0_0_1 * 2));
    vstore2((double2)(exp(p0_1.s0), exp(p0_1.s1)), 0, exp_ + (i0_0_0 * 4 + i0_0_1 * 2));
}
