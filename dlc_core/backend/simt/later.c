/* Asynchronous copies and products are queued, and carried out when the thread waits for them. A kernel that uses a
   result without waiting therefore reads old values. */

#define DLC_LATE 1024

struct dlc_late {
    void *to;
    const void *from, *other;
    int64_t size, stride, other_stride;
    const int16_t *unit;
    const char *layouts;
    int number; /* of its batch */
    int64_t phase; /* in which it was queued */
};

struct dlc_queue {
    struct dlc_late late[DLC_LATE];
    int count, begun; /* queued operations; committed batches */
};

static __thread struct {
    struct dlc_queue *copies, *products;
    int open;
} *dlc_queues;
static __thread int64_t dlc_queues_count;

/* Empty all queues, because a group of threads begins. */
static void dlc_drop(int64_t count)
{
    if (dlc_queues_count < count) {
        dlc_queues = realloc(dlc_queues, (size_t)count * sizeof *dlc_queues);
        if (!dlc_queues)
            dlc_stop("there is no memory for %lld threads", (long long)count);
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
        dlc_stop("there is no memory for the asynchronous operations of a thread");
    return *queue;
}

static struct dlc_late *dlc_add_late(struct dlc_queue *queue)
{
    if (queue->count == DLC_LATE)
        dlc_stop("a thread starts more than %d asynchronous operations without waiting", DLC_LATE);
    struct dlc_late *late = &queue->late[queue->count++];
    late->number = queue->begun;
    late->phase = dlc_now.phase;
    return late;
}

/* Carry out all batches but the last `but`. */
static void dlc_settle(struct dlc_queue *queue, int but, void (*make)(const struct dlc_late *))
{
    int done = 0;
    while (done < queue->count && queue->late[done].number < queue->begun - but)
        make(&queue->late[done++]);
    memmove(queue->late, queue->late + done, (size_t)(queue->count - done) * sizeof *queue->late);
    queue->count -= done;
}

void dlc_simt_later(void *to, const void *from, size_t size)
{
    struct dlc_late *late = dlc_add_late(dlc_queue_of(&dlc_queues[dlc_now.now].copies));
    late->to = to;
    late->from = from;
    late->size = (int64_t)size;
}

void dlc_simt_commit(void) { ++dlc_queue_of(&dlc_queues[dlc_now.now].copies)->begun; }

static void dlc_make_copy(const struct dlc_late *late)
{
    if (late->from)
        dlc_copy(late->to, late->from, (size_t)late->size);
    else
        dlc_clear(late->to, (size_t)late->size);
}

void dlc_simt_copies(int but)
{
    dlc_settle(dlc_queue_of(&dlc_queues[dlc_now.now].copies), but, dlc_make_copy);
}
