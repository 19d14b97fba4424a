/* The header of kernels that one processor runs, thread by thread.

   The words of the kernel language are defined by these macros: #define my_thread_x DLC_THREAD(0). */

#undef _FORTIFY_SOURCE
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The attribute of functions outside of kernels, whose accesses are not checked. */
#ifdef __GNUC__
#define DLC_UNCHECKED __attribute__((no_sanitize_thread))
#else
#define DLC_UNCHECKED
#endif

struct dlc_simt_buffer {
    const char *name;
    void *data;
    int64_t size;
    int32_t racy; /* whether threads may write it at the same time; any of the values is a valid result */
};

struct dlc_simt_launch {
    const char *kernel;
    void (*body)(void *const *buffers, const int64_t *scalars);
    int64_t groups[3], threads[3];
    void *const *buffers;
    const int64_t *scalars;
    const struct dlc_simt_buffer *windows;
    int32_t count;  /* of buffers */
    int32_t has_barriers;  /* whether the kernel has barriers or exchanges values */
};

#define DLC_RANK 5
typedef struct dlc_simt_tensor {
    const char *data;
    int64_t rank, size, swizzled; /* size: bytes of an element */
    int64_t dims[DLC_RANK], strides[DLC_RANK], box[DLC_RANK]; /* in elements */
} dlc_tensor;

struct dlc_simt_tensor dlc_simt_tensor_of(void *const *buffers, const int64_t *numbers);
void dlc_simt_tensor_copy(void *to, struct dlc_simt_tensor tensor, const int64_t *first, void *at);
int64_t dlc_simt_group(int dim);
int64_t dlc_simt_thread(int dim);
int64_t dlc_simt_groups(int dim);
int64_t dlc_simt_threads(int dim);
void dlc_simt_barrier(void);
void dlc_simt_send(const void *value, size_t size);
void dlc_simt_receive(void *value, size_t size, int64_t from);
int64_t dlc_simt_lane(int64_t width);
void dlc_simt_tensor_barriers_init(void *at, int64_t count);
void dlc_simt_tensor_barrier_expect(void *at, int64_t bytes);
void dlc_simt_tensor_barrier_arrive(void *at);
void dlc_simt_tensor_barrier_wait(void *at, int parity);
void dlc_simt_copy_async(void *to, const void *from, size_t size);
void dlc_simt_copies_commit(void);
void dlc_simt_copies_wait(int in_flight);
void dlc_simt_products_begin(void);
void dlc_simt_product_async(void *acc, const void *a, int64_t a_stride, const void *b, int64_t b_stride,
                            const char *layouts, const int16_t *unit);
void dlc_simt_products_commit(void);
void dlc_simt_products_wait(int in_flight);
void dlc_simt_fence(void);
void dlc_simt_matrix(void *acc, const uint32_t *a, const uint32_t *b, const int16_t *unit);
void dlc_simt_blocks(uint32_t *to, const void *from, int count, const int16_t *block);
void dlc_simt_shared(const char *name, void *data, int64_t size);
void dlc_simt_unchecked(int on);
int32_t dlc_simt_run(const struct dlc_simt_launch *launch);
const char *dlc_simt_last_error(void);

#define DLC_GROUP(dim) dlc_simt_group(dim)
#define DLC_THREAD(dim) dlc_simt_thread(dim)
#define DLC_GROUPS(dim) dlc_simt_groups(dim)
#define DLC_THREADS(dim) dlc_simt_threads(dim)
#define DLC_BARRIER() dlc_simt_barrier()
#define DLC_SHARED static __thread

/* Matrix operations of a subgroup, on fragments in words of 32 bits. `unit` and `block` are arrays of numbers
   (`matrix_numbers`, `block_numbers` in Python). */
#define DLC_MATRIX(acc, a, b, unit) dlc_simt_matrix(acc, a, b, unit)
#define DLC_BLOCKS(to, from, count, block) dlc_simt_blocks(to, from, count, block)

/* Asynchronous copies; if `from` is NULL, zeros are written. DLC_COPIES_COMMIT ends a batch of copies.
   DLC_COPIES_WAIT_ALL waits for all batches, DLC_COPIES_WAIT(n) for all but the last n. A copy is made when the
   thread waits for it. */
#define DLC_COPY_ASYNC(to, from, size) dlc_simt_copy_async(to, from, size)
#define DLC_COPIES_COMMIT() dlc_simt_copies_commit()
#define DLC_COPIES_WAIT_ALL() dlc_simt_copies_wait(-1)
#define DLC_COPIES_WAIT(batches) dlc_simt_copies_wait(batches)

/* Tensor copies, which one thread issues for its group. DLC_TENSOR_BARRIERS_INIT initialises `count` barrier words at
   `at`. DLC_TENSOR_BARRIER_EXPECT adds to the bytes that the current phase of a barrier expects. DLC_TENSOR_COPY
   copies a box; the last arguments are the indices of its first element, innermost dim first.
   DLC_TENSOR_BARRIER_ARRIVE ends a batch of copies, and DLC_TENSOR_BARRIER_WAIT waits for the end of the phase whose
   number has the lowest bit `parity`. */
#define DLC_TENSOR_BARRIERS_INIT(at, count) dlc_simt_tensor_barriers_init(at, count)
#define DLC_TENSOR_BARRIER_EXPECT(at, bytes) dlc_simt_tensor_barrier_expect(at, bytes)
#define DLC_TENSOR_COPY(to, tensor, at, ...) dlc_simt_tensor_copy(to, *(tensor), (const int64_t[]){__VA_ARGS__}, at)
#define DLC_TENSOR_BARRIER_ARRIVE(at) dlc_simt_tensor_barrier_arrive(at)
#define DLC_TENSOR_BARRIER_WAIT(at, parity) dlc_simt_tensor_barrier_wait(at, parity)

/* Asynchronous products of tiles in shared memory, which consist of rows of 128 bytes. `a` and `b` point to the
   tiles, `a_stride` and `b_stride` are the bytes between parts of a tile that are one row wide. `layouts` has a
   letter for each operand: n if rows are along K, t if K is the outer dim. DLC_PRODUCTS_WAIT(n) waits for all batches
   but the last n; a product is computed when the thread waits for it. Units see only writes that the thread made
   before DLC_FENCE. */
#define DLC_PRODUCTS_BEGIN() dlc_simt_products_begin()
#define DLC_PRODUCT_ASYNC(acc, a, a_stride, b, b_stride, layouts, unit) \
    dlc_simt_product_async(acc, a, a_stride, b, b_stride, layouts, unit)
#define DLC_PRODUCTS_COMMIT() dlc_simt_products_commit()
#define DLC_PRODUCTS_WAIT(batches) dlc_simt_products_wait(batches)
#define DLC_FENCE() dlc_simt_fence()

/* The value `x` of the thread `number` of the subgroup; the expression `number` may contain `lane`. */
#define DLC_EXCHANGE(x, width, number) \
    __extension__({ \
        __typeof__(x) dlc_own = (x); \
        const int64_t dlc_width = (width), lane = dlc_simt_lane(dlc_width); \
        int64_t dlc_from = (number); \
        dlc_simt_send(&dlc_own, sizeof dlc_own); \
        dlc_simt_receive(&dlc_own, sizeof dlc_own, dlc_from - lane); \
        dlc_own; \
    })
#define DLC_SHUFFLE(x, number, width) DLC_EXCHANGE(x, width, (number))
#define DLC_SHUFFLE_DOWN(x, delta, width) \
    DLC_EXCHANGE(x, width, lane + (delta) < dlc_width ? lane + (delta) : lane)
#define DLC_SHUFFLE_XOR(x, mask, width) DLC_EXCHANGE(x, width, lane ^ (mask))

/* Threads are switched only at barriers, so no thread runs between load and store. The checks must ignore both. */
#define DLC_ATOMIC(p, next) \
    __extension__({ \
        dlc_simt_unchecked(1); \
        __typeof__(*(p)) old = *(p); \
        *(p) = (next); \
        dlc_simt_unchecked(0); \
        old; \
    })
#define DLC_ATOMIC_ADD(p, v) DLC_ATOMIC(p, old + (v))
#define DLC_ATOMIC_MIN(p, v) DLC_ATOMIC(p, (v) < old ? (v) : old)
#define DLC_ATOMIC_MAX(p, v) DLC_ATOMIC(p, (v) > old ? (v) : old)
