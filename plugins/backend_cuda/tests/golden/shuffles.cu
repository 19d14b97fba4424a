#ifdef __cplusplus
extern "C" {
#endif

__global__ void __launch_bounds__(32) kernel_kernel(const float *__restrict__ A,
        float *__restrict__ B)
{
    const int g = (int)blockIdx.x;
    const int t = (int)threadIdx.x;
    const float A_1 = A[g * 32 + t];
    B[g * 32 + t] = __shfl_down_sync(0xffffffffu, A_1, (unsigned)(3), 8)
            + __shfl_xor_sync(0xffffffffu, A_1, (int)(5), 16) + __shfl_sync(0xffffffffu, A_1, (int)(2), 32);
}

#ifdef __cplusplus
}
#endif
