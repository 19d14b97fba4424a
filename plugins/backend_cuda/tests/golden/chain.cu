#ifdef __cplusplus
extern "C" {
#endif

typedef struct __align__(16) { float s0, s1, s2, s3; } floatx4;

static __device__ __forceinline__ floatx4 make_floatx4(float s0, float s1, float s2, float s3)
{
    const floatx4 vector = {s0, s1, s2, s3};
    return vector;
}

__global__ void __launch_bounds__(32) fused_add_tanh_kernel(const float *__restrict__ p0,
        const float *__restrict__ p1,
        float *__restrict__ tanh_)
{
    const int i0_i1_0_fused_0 = (int)blockIdx.x;
    const int i0_i1_0_fused_1 = (int)threadIdx.x;
    const floatx4 p0_1 = *(const floatx4 *)(p0 + (i0_i1_0_fused_0 * 128 + i0_i1_0_fused_1 * 4));
    const floatx4 p1_1 = *(const floatx4 *)(p1 + i0_i1_0_fused_1 % 2 * 4);
    *(floatx4 *)(tanh_ + (i0_i1_0_fused_0 * 128 + i0_i1_0_fused_1 * 4)) =
            make_floatx4(tanhf(p0_1.s0 + p1_1.s0), tanhf(p0_1.s1 + p1_1.s1), tanhf(p0_1.s2 + p1_1.s2),
            tanhf(p0_1.s3 + p1_1.s3));
}

#ifdef __cplusplus
}
#endif
