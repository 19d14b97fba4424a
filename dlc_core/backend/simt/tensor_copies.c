/* Tensor copies to shared memory. A box is written when a thread waits for the end of the phase of its barrier word,
   and no earlier. */

#define DLC_MAX_TENSOR_BARRIERS 64
#define DLC_MAX_TENSOR_COPIES 64

struct dlc_tensor_copy {
    char *to;
    struct dlc_simt_tensor tensor;
    int64_t first[DLC_RANK];
};

static __thread struct dlc_tensor_barrier {
    const void *at;
    int64_t phase, expected, copied; /* phases that have ended; bytes of the current one: announced, and copied */
    int ended, count;
    struct dlc_tensor_copy copies[DLC_MAX_TENSOR_COPIES];
} dlc_tensor_barriers[DLC_MAX_TENSOR_BARRIERS];

void dlc_simt_tensor_barriers_init(void *at, int64_t count)
{
    for (int64_t i = 0; i < count; ++i) {
        const char *one = (const char *)at + 8 * i;
        int slot = 0;
        while (slot < DLC_MAX_TENSOR_BARRIERS && dlc_tensor_barriers[slot].at && dlc_tensor_barriers[slot].at != one)
            ++slot;
        if (slot == DLC_MAX_TENSOR_BARRIERS)
            dlc_fail("there are more than %d barrier words of tensor copies", DLC_MAX_TENSOR_BARRIERS);
        memset(&dlc_tensor_barriers[slot], 0, sizeof dlc_tensor_barriers[slot]);
        dlc_tensor_barriers[slot].at = one;
    }
}

static struct dlc_tensor_barrier *dlc_tensor_barrier_at(const void *at)
{
    for (int i = 0; i < DLC_MAX_TENSOR_BARRIERS; ++i)
        if (dlc_tensor_barriers[i].at == at)
            return &dlc_tensor_barriers[i];
    dlc_fail("a tensor copy uses a barrier word that was not initialised");
    return NULL;
}

void dlc_simt_tensor_barrier_expect(void *at, int64_t bytes) { dlc_tensor_barrier_at(at)->expected += bytes; }

void dlc_simt_tensor_copy(void *to, struct dlc_simt_tensor tensor, const int64_t *first, void *at)
{
    struct dlc_tensor_barrier *barrier = dlc_tensor_barrier_at(at);
    int64_t bytes = tensor.size;
    if (barrier->count == DLC_MAX_TENSOR_COPIES)
        dlc_fail("more than %d tensor copies use one barrier word in a phase", DLC_MAX_TENSOR_COPIES);
    struct dlc_tensor_copy *box = &barrier->copies[barrier->count++];
    box->to = to;
    box->tensor = tensor;
    for (int i = 0; i < tensor.rank; ++i) {
        box->first[i] = first[tensor.rank - 1 - i];
        bytes *= tensor.box[i];
    }
    if ((uintptr_t)to % (tensor.swizzled ? 1024 : 128) || (uintptr_t)tensor.data % 16)
        dlc_fail("a tensor copy has an address that is not aligned");
    barrier->copied += bytes;
}

void dlc_simt_tensor_barrier_arrive(void *at)
{
    struct dlc_tensor_barrier *barrier = dlc_tensor_barrier_at(at);
    if (barrier->ended)
        dlc_fail("a batch of tensor copies ends in a phase that has already ended, and no thread has waited for it");
    barrier->ended = 1;
}

static void dlc_run_tensor_copy(const struct dlc_tensor_copy *box)
{
    const struct dlc_simt_tensor *tensor = &box->tensor;
    int64_t count = 1;
    for (int i = 0; i < tensor->rank; ++i)
        count *= tensor->box[i];
    for (int64_t number = 0; number < count; ++number) {
        const char *from = tensor->data;
        int64_t rest = number;
        int inside = 1;
        for (int i = (int)tensor->rank - 1; i >= 0; --i) {
            const int64_t index = box->first[i] + rest % tensor->box[i];
            rest /= tensor->box[i];
            inside &= index >= 0 && index < tensor->dims[i];
            from += index * tensor->strides[i] * tensor->size;
        }
        uintptr_t at = (uintptr_t)box->to + number * tensor->size;
        if (tensor->swizzled)
            at ^= (at >> 7 & 7) << 4;
        if (inside)
            dlc_copy((void *)at, from, tensor->size);
        else
            dlc_clear((void *)at, tensor->size);
    }
}

/* Returns at once if `parity` is not the lowest bit of the current phase: that phase has ended before. */
void dlc_simt_tensor_barrier_wait(void *at, int parity)
{
    struct dlc_tensor_barrier *barrier = dlc_tensor_barrier_at(at);
    if ((barrier->phase & 1) != parity)
        return;
    if (!barrier->ended)
        dlc_fail("a thread would wait without end: the batch of tensor copies that it waits for is not ended");
    if (barrier->expected != barrier->copied)
        dlc_fail("a thread would wait without end: %lld bytes are expected, and tensor copies have %lld",
                 (long long)barrier->expected, (long long)barrier->copied);
    dlc_set_unit_access(1);
    for (int i = 0; i < barrier->count; ++i)
        dlc_run_tensor_copy(&barrier->copies[i]);
    dlc_set_unit_access(0);
    ++barrier->phase;
    barrier->expected = barrier->copied = barrier->ended = barrier->count = 0;
}

/* numbers: the index of the buffer, bytes of an element, whether rows are swizzled, number of dims; for each dim: size,
   stride, extent of the box */
struct dlc_simt_tensor dlc_simt_tensor_of(void *const *buffers, const int64_t *numbers)
{
    struct dlc_simt_tensor tensor = {buffers[numbers[0]], numbers[3], numbers[1], numbers[2], {0}, {0}, {0}};
    for (int i = 0; i < tensor.rank; ++i) {
        tensor.dims[i] = numbers[4 + 3 * i];
        tensor.strides[i] = numbers[5 + 3 * i];
        tensor.box[i] = numbers[6 + 3 * i];
    }
    return tensor;
}
