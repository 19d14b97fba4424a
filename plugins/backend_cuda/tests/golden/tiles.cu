#ifdef __cplusplus
extern "C" {
#endif

typedef struct __align__(16) { float s0, s1, s2, s3; } floatx4;

static __device__ __forceinline__ floatx4 make_floatx4(float s0, float s1, float s2, float s3)
{
    const floatx4 vector = {s0, s1, s2, s3};
    return vector;
}

__global__ void __launch_bounds__(64) kernel_kernel(const float *__restrict__ a,
        float *__restrict__ b)
{
    __shared__ __align__(16) float shared_tile[256];
    const int g = (int)blockIdx.x;
    const int y = (int)threadIdx.y;
    const int x = (int)threadIdx.x;
    const floatx4 a_1 = *(const floatx4 *)(a + (g / 4 * 1024 + y * 64 + g % 4 * 16 + x * 4));
    *(floatx4 *)(shared_tile + (y * 16 + x * 4)) = a_1;
    __syncthreads();
    *(floatx4 *)(b + (g % 4 * 1024 + y * 64 + g / 4 * 16 + x * 4)) =
            make_floatx4(shared_tile[x * 64 + y], shared_tile[x * 64 + y + 16], shared_tile[x * 64 + y + 32],
            shared_tile[x * 64 + y + 48]);
}

#ifdef __cplusplus
}
#endif
