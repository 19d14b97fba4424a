/* Asynchronous copies and products are queued, and carried out when the thread waits for them. A kernel that uses a
   result without waiting therefore reads old values. */

#define DLC_MAX_ASYNC 1024

struct dlc_async {
    void *to;
    const void *from, *other;
    int64_t size, stride, other_stride;
    const int16_t *unit;
    const char *layouts;
    int number; /* of its batch */
    int64_t phase; /* in which it was queued */
};

struct dlc_queue {
    struct dlc_async ops[DLC_MAX_ASYNC];
    int count, committed; /* queued operations; committed batches */
};

static __thread struct {
    struct dlc_queue *copies, *products;
    int open;
} *dlc_queues;
static __thread int64_t dlc_queues_count;

/* Empty all queues, because a group of threads begins. */
static void dlc_clear_queues(int64_t count)
{
    if (dlc_queues_count < count) {
        dlc_queues = realloc(dlc_queues, (size_t)count * sizeof *dlc_queues);
        if (!dlc_queues)
            dlc_fail("there is no memory for %lld threads", (long long)count);
        memset(dlc_queues + dlc_queues_count, 0, (size_t)(count - dlc_queues_count) * sizeof *dlc_queues);
        dlc_queues_count = count;
    }
    for (int64_t i = 0; i < count; ++i) {
        if (dlc_queues[i].copies)
            dlc_queues[i].copies->count = 0;
        if (dlc_queues[i].products)
            dlc_queues[i].products->count = 0;
        dlc_queues[i].open = 0;
    }
}

static struct dlc_queue *dlc_queue_of(struct dlc_queue **queue)
{
    if (!*queue)
        *queue = calloc(1, sizeof **queue);
    if (!*queue)
        dlc_fail("there is no memory for the asynchronous operations of a thread");
    return *queue;
}

static struct dlc_async *dlc_enqueue(struct dlc_queue *queue)
{
    if (queue->count == DLC_MAX_ASYNC)
        dlc_fail("a thread starts more than %d asynchronous operations without waiting", DLC_MAX_ASYNC);
    struct dlc_async *op = &queue->ops[queue->count++];
    op->number = queue->committed;
    op->phase = dlc_state.phase;
    return op;
}

/* Carry out all batches but the last `in_flight`. */
static void dlc_run_batches(struct dlc_queue *queue, int in_flight, void (*run)(const struct dlc_async *))
{
    int done = 0;
    while (done < queue->count && queue->ops[done].number < queue->committed - in_flight)
        run(&queue->ops[done++]);
    memmove(queue->ops, queue->ops + done, (size_t)(queue->count - done) * sizeof *queue->ops);
    queue->count -= done;
}

void dlc_simt_copy_async(void *to, const void *from, size_t size)
{
    struct dlc_async *op = dlc_enqueue(dlc_queue_of(&dlc_queues[dlc_state.current].copies));
    op->to = to;
    op->from = from;
    op->size = (int64_t)size;
}

void dlc_simt_copies_commit(void) { ++dlc_queue_of(&dlc_queues[dlc_state.current].copies)->committed; }

static void dlc_run_copy(const struct dlc_async *op)
{
    if (op->from)
        dlc_copy(op->to, op->from, (size_t)op->size);
    else
        dlc_clear(op->to, (size_t)op->size);
}

void dlc_simt_copies_wait(int in_flight)
{
    dlc_run_batches(dlc_queue_of(&dlc_queues[dlc_state.current].copies), in_flight, dlc_run_copy);
}
