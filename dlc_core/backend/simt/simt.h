/* What kernels are compiled with where a processor runs their threads one by one.

   A language's own words are defined by these: #define my_thread_x DLC_THREAD(0). */

#undef _FORTIFY_SOURCE
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* For functions around kernels, whose accesses are not checked. */
#ifdef __GNUC__
#define DLC_UNSEEN __attribute__((no_sanitize_thread))
#else
#define DLC_UNSEEN
#endif

struct dlc_simt_buffer {
    const char *name;
    void *data;
    int64_t size;
    int32_t racy; /* several threads may write it at once: any of the values will do */
};

struct dlc_simt_launch {
    const char *kernel;
    void (*body)(void *const *buffers, const int64_t *scalars);
    int64_t groups[3], threads[3];
    void *const *buffers;
    const int64_t *scalars;
    const struct dlc_simt_buffer *windows;
    int32_t count;  /* of buffers */
    int32_t meets;  /* whether threads wait for each other */
};

#define DLC_RANK 5
typedef struct dlc_simt_tensor {
    const char *data;
    int64_t rank, size, swizzled; /* size: bytes of an element */
    int64_t dims[DLC_RANK], strides[DLC_RANK], box[DLC_RANK]; /* in elements */
} dlc_tensor;

struct dlc_simt_tensor dlc_simt_tensor_of(void *const *buffers, const int64_t *numbers);
void dlc_simt_box(void *to, struct dlc_simt_tensor tensor, const int64_t *first, void *at);
int64_t dlc_simt_group(int dim);
int64_t dlc_simt_thread(int dim);
int64_t dlc_simt_groups(int dim);
int64_t dlc_simt_threads(int dim);
void dlc_simt_barrier(void);
void dlc_simt_give(const void *value, size_t size);
void dlc_simt_take(void *value, size_t size, int64_t from);
int64_t dlc_simt_lane(int64_t width);
void dlc_simt_arrivals(void *at, int64_t count);
void dlc_simt_expect(void *at, int64_t bytes);
void dlc_simt_arrive(void *at);
void dlc_simt_arrived(void *at, int parity);
void dlc_simt_later(void *to, const void *from, size_t size);
void dlc_simt_commit(void);
void dlc_simt_copies(int but);
void dlc_simt_begin(void);
void dlc_simt_product(void *acc, const void *a, int64_t a_apart, const void *b, int64_t b_apart, const char *way,
                      const int16_t *unit);
void dlc_simt_end(void);
void dlc_simt_products(int but);
void dlc_simt_fence(void);
void dlc_simt_matrix(void *acc, const uint32_t *a, const uint32_t *b, const int16_t *unit);
void dlc_simt_blocks(uint32_t *to, const void *from, int count, const int16_t *block);
void dlc_simt_shared(const char *name, void *data, int64_t size);
void dlc_simt_quiet(int on);
int32_t dlc_simt_run(const struct dlc_simt_launch *launch);
const char *dlc_simt_said(void);

#define DLC_GROUP(dim) dlc_simt_group(dim)
#define DLC_THREAD(dim) dlc_simt_thread(dim)
#define DLC_GROUPS(dim) dlc_simt_groups(dim)
#define DLC_THREADS(dim) dlc_simt_threads(dim)
#define DLC_BARRIER() dlc_simt_barrier()
#define DLC_SHARED static __thread

/* What a subgroup does with matrices that its threads hold in words: `unit` and `block` are numbers. */
#define DLC_MATRIX(acc, a, b, unit) dlc_simt_matrix(acc, a, b, unit)
#define DLC_BLOCKS(to, from, count, block) dlc_simt_blocks(to, from, count, block)

/* Copies (of zeros, where `from` is NULL) that a thread leaves to run beside it, and the wait for all of them: they
   are made then; the end of a group of them, and the wait for all but the last so many groups. */
#define DLC_COPY_LATER(to, from, size) dlc_simt_later(to, from, size)
#define DLC_COPIES_END() dlc_simt_commit()
#define DLC_COPIES() dlc_simt_copies(-1)
#define DLC_COPIES_BUT(groups) dlc_simt_copies(groups)

/* Boxes of tensors that a thread has copied for its group: words where they arrive, the bytes that are expected there,
   a box, whose first element follows inner dims first, the end of a group, and the wait for the end of a phase. */
#define DLC_ARRIVALS_BEGIN(at, count) dlc_simt_arrivals(at, count)
#define DLC_EXPECT(at, bytes) dlc_simt_expect(at, bytes)
#define DLC_COPY_BOX(to, tensor, at, ...) dlc_simt_box(to, *(tensor), (const int64_t[]){__VA_ARGS__}, at)
#define DLC_BOXES_END(at) dlc_simt_arrive(at)
#define DLC_BOXES_WAIT(at, parity) dlc_simt_arrived(at, parity)

/* Products of matrices that lie in shared memory, in rows of 128 bytes, which run beside the threads: of `a` and
   `b` the start, the bytes between parts, and in `way` a letter, t where steps are outermost.  They are made when
   the thread waits for all but the last so many groups of them.  Units see what a thread wrote behind its fence. */
#define DLC_PRODUCTS_BEGIN() dlc_simt_begin()
#define DLC_PRODUCT_LATER(acc, a, a_apart, b, b_apart, way, unit) \
    dlc_simt_product(acc, a, a_apart, b, b_apart, way, unit)
#define DLC_PRODUCTS_END() dlc_simt_end()
#define DLC_PRODUCTS(but) dlc_simt_products(but)
#define DLC_FENCE() dlc_simt_fence()

/* `number` is the subgroup's thread whose value is taken; `lane` may stand in it. */
#define DLC_EXCHANGE(x, width, number) \
    __extension__({ \
        __typeof__(x) dlc_own = (x); \
        const int64_t dlc_width = (width), lane = dlc_simt_lane(dlc_width); \
        int64_t dlc_from = (number); \
        dlc_simt_give(&dlc_own, sizeof dlc_own); \
        dlc_simt_take(&dlc_own, sizeof dlc_own, dlc_from - lane); \
        dlc_own; \
    })
#define DLC_SHUFFLE(x, number, width) DLC_EXCHANGE(x, width, (number))
#define DLC_SHUFFLE_DOWN(x, delta, width) \
    DLC_EXCHANGE(x, width, lane + (delta) < dlc_width ? lane + (delta) : lane)
#define DLC_SHUFFLE_XOR(x, mask, width) DLC_EXCHANGE(x, width, lane ^ (mask))

/* No thread runs between the two halves: only checks have to know. */
#define DLC_ATOMIC(p, next) \
    __extension__({ \
        dlc_simt_quiet(1); \
        __typeof__(*(p)) old = *(p); \
        *(p) = (next); \
        dlc_simt_quiet(0); \
        old; \
    })
#define DLC_ATOMIC_ADD(p, v) DLC_ATOMIC(p, old + (v))
#define DLC_ATOMIC_MIN(p, v) DLC_ATOMIC(p, (v) < old ? (v) : old)
#define DLC_ATOMIC_MAX(p, v) DLC_ATOMIC(p, (v) > old ? (v) : old)
