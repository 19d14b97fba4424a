#ifdef __cplusplus
extern "C" {
#endif

typedef struct __align__(16) { double s0, s1; } doublex2;

static __device__ __forceinline__ doublex2 make_doublex2(double s0, double s1)
{
    const doublex2 vector = {s0, s1};
    return vector;
}

__global__ void __launch_bounds__(32) fused_exp_kernel(const double *__restrict__ p0,
        double *__restrict__ exp_)
{
    const int i0_0_0 = (int)blockIdx.x;
    const int i0_0_1 = (int)threadIdx.x;
    const doublex2 p0_1 = *(const doublex2 *)(p0 + i0_0_1 * 2);
    *(doublex2 *)(exp_ + i0_0_1 * 2) = make_doublex2(exp(p0_1.s0), exp(p0_1.s1));
}

#ifdef __cplusplus
}
#endif
