#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable

__attribute__((reqd_work_group_size(32, 1, 1)))
kernel void kernel_kernel(global const float *restrict A, const long A_at,
        global float *restrict B, const long B_at)
{
    B += B_at;
    A += A_at;
    const int g = (int)get_group_id(0);
    const int t = (int)get_local_id(0);
    const float A_1 = A[g * 32 + t];
    B[g * 32 + t] =
            sub_group_shuffle(A_1, get_sub_group_local_id()
            + ((get_sub_group_local_id() & (uint)(8 - 1)) + (uint)(3) < (uint)(8) ? (uint)(3) : 0u))
            + sub_group_shuffle_xor(A_1, (uint)(5))
            + sub_group_shuffle(A_1, (get_sub_group_local_id() & ~(uint)(32 - 1)) + (uint)(2));
}
