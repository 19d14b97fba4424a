/* Tensor copies to shared memory. A box is written when a thread waits for the end of the phase of its barrier word,
   and no earlier. */

#define DLC_ARRIVALS 64
#define DLC_BOXES 64

struct dlc_box {
    char *to;
    struct dlc_simt_tensor tensor;
    int64_t first[DLC_RANK];
};

static __thread struct dlc_arrival {
    const void *at;
    int64_t phase, expected, brought; /* phases that have ended; bytes of the current one: announced, and copied */
    int ended, count;
    struct dlc_box boxes[DLC_BOXES];
} dlc_arrivals[DLC_ARRIVALS];

void dlc_simt_arrivals(void *at, int64_t count)
{
    for (int64_t i = 0; i < count; ++i) {
        const char *one = (const char *)at + 8 * i;
        int slot = 0;
        while (slot < DLC_ARRIVALS && dlc_arrivals[slot].at && dlc_arrivals[slot].at != one)
            ++slot;
        if (slot == DLC_ARRIVALS)
            dlc_stop("there are more than %d barrier words of tensor copies", DLC_ARRIVALS);
        memset(&dlc_arrivals[slot], 0, sizeof dlc_arrivals[slot]);
        dlc_arrivals[slot].at = one;
    }
}

static struct dlc_arrival *dlc_arrival_at(const void *at)
{
    for (int i = 0; i < DLC_ARRIVALS; ++i)
        if (dlc_arrivals[i].at == at)
            return &dlc_arrivals[i];
    dlc_stop("a tensor copy uses a barrier word that was not initialised");
    return NULL;
}

void dlc_simt_expect(void *at, int64_t bytes) { dlc_arrival_at(at)->expected += bytes; }

void dlc_simt_box(void *to, struct dlc_simt_tensor tensor, const int64_t *first, void *at)
{
    struct dlc_arrival *arrival = dlc_arrival_at(at);
    int64_t bytes = tensor.size;
    if (arrival->count == DLC_BOXES)
        dlc_stop("more than %d tensor copies use one barrier word in a phase", DLC_BOXES);
    struct dlc_box *box = &arrival->boxes[arrival->count++];
    box->to = to;
    box->tensor = tensor;
    for (int i = 0; i < tensor.rank; ++i) {
        box->first[i] = first[tensor.rank - 1 - i];
        bytes *= tensor.box[i];
    }
    if ((uintptr_t)to % (tensor.swizzled ? 1024 : 128) || (uintptr_t)tensor.data % 16)
        dlc_stop("a tensor copy has an address that is not aligned");
    arrival->brought += bytes;
}

void dlc_simt_arrive(void *at)
{
    struct dlc_arrival *arrival = dlc_arrival_at(at);
    if (arrival->ended)
        dlc_stop("a batch of tensor copies ends in a phase that has already ended, and no thread has waited for it");
    arrival->ended = 1;
}

static void dlc_fill(const struct dlc_box *box)
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
void dlc_simt_arrived(void *at, int parity)
{
    struct dlc_arrival *arrival = dlc_arrival_at(at);
    if ((arrival->phase & 1) != parity)
        return;
    if (!arrival->ended)
        dlc_stop("a thread would wait without end: the batch of tensor copies that it waits for is not ended");
    if (arrival->expected != arrival->brought)
        dlc_stop("a thread would wait without end: %lld bytes are expected, and tensor copies have %lld",
                 (long long)arrival->expected, (long long)arrival->brought);
    dlc_by_unit(1);
    for (int i = 0; i < arrival->count; ++i)
        dlc_fill(&arrival->boxes[i]);
    dlc_by_unit(0);
    ++arrival->phase;
    arrival->expected = arrival->brought = arrival->ended = arrival->count = 0;
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
