/* The threads of a group on one processor. Each thread is a fibre that runs from barrier to barrier.

   A fibre starts on its own stack (makecontext). It is entered and left by _setjmp and _longjmp, which make no system
   call. Kernels without barriers need no fibres: their threads are consecutive calls.

   With DLC_SIMT_CHECKED kernels are compiled with -fsanitize=thread, and this file defines the functions that the
   compiler then calls at each access, and those of failed bounds checks of arrays. */

#undef _FORTIFY_SOURCE
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#define DLC_STACK (256 << 10)
#define DLC_STEP 448
#define DLC_VALUE 64

enum { DLC_NEW, DLC_IDLE, DLC_RUNNING, DLC_WAITING, DLC_ENDED };

struct dlc_fibre {
    ucontext_t first;
    jmp_buf at;
    char *stack;
    int state, fresh;
    int64_t fenced; /* the last phase whose writes of this thread are visible to units */
};

static __thread struct {
    const struct dlc_simt_launch *launch;
    int64_t group[3], thread[3];
    int64_t count, current; /* threads of a group; the index of the current one */
    int64_t phase;      /* barriers passed, over all groups */
    int64_t sync_points; /* barriers and exchanges of values; exchanges do not order memory accesses */
    int exchanging;
    struct dlc_fibre *fibres;
    int64_t made;
    char *values[2]; /* exchanged values; double-buffered, so that an exchange needs only one barrier */
    int64_t *exchanges;
    int64_t capacity; /* threads that there is memory for */
    jmp_buf back, out;
    char error[512];
    int unchecked;
} dlc_state;

#define DLC_DIM(name, from) \
    int64_t dlc_simt_##name(int dim) { return dlc_state.from[dim]; }
DLC_DIM(group, group)
DLC_DIM(thread, thread)
DLC_DIM(groups, launch->groups)
DLC_DIM(threads, launch->threads)

const char *dlc_simt_last_error(void) { return dlc_state.error; }
void dlc_simt_unchecked(int on) { dlc_state.unchecked = on; }

static int dlc_fail(const char *form, ...)
{
    va_list args;
    va_start(args, form);
    vsnprintf(dlc_state.error, sizeof dlc_state.error, form, args);
    va_end(args);
    _longjmp(dlc_state.out, 1);
    return 1;
}

static void dlc_thread_name(char *text, size_t size, int64_t number)
{
    const int64_t *d = dlc_state.launch->threads;
    snprintf(text, size, "(%lld, %lld, %lld)", (long long)(number % d[0]), (long long)(number / d[0] % d[1]),
             (long long)(number / d[0] / d[1]));
}

static __attribute__((noinline)) void dlc_to_scheduler(struct dlc_fibre *fibre)
{
    if (!_setjmp(fibre->at))
        _longjmp(dlc_state.back, 1);
}

static void dlc_fibre_main(void)
{
    for (;;) {
        struct dlc_fibre *fibre = &dlc_state.fibres[dlc_state.current];
        dlc_state.launch->body(dlc_state.launch->buffers, dlc_state.launch->scalars);
        fibre = &dlc_state.fibres[dlc_state.current];
        fibre->state = DLC_ENDED;
        dlc_to_scheduler(fibre);
    }
}

static __attribute__((noinline)) void dlc_enter(int64_t number)
{
    struct dlc_fibre *fibre = &dlc_state.fibres[number];
    if (_setjmp(dlc_state.back))
        return;
    if (fibre->fresh) {
        fibre->fresh = 0;
        setcontext(&fibre->first);
    }
    _longjmp(fibre->at, 1);
}

static void dlc_select(int64_t number)
{
    const int64_t *d = dlc_state.launch->threads;
    dlc_state.current = number;
    dlc_state.thread[0] = number % d[0];
    dlc_state.thread[1] = number / d[0] % d[1];
    dlc_state.thread[2] = number / d[0] / d[1];
}

void dlc_simt_barrier(void)
{
    struct dlc_fibre *fibre = &dlc_state.fibres[dlc_state.current];
    fibre->state = DLC_WAITING;
    dlc_to_scheduler(fibre);
    fibre->state = DLC_RUNNING;
}

int64_t dlc_simt_lane(int64_t width) { return dlc_state.current % width; }

void dlc_simt_send(const void *value, size_t size)
{
    memcpy(dlc_state.values[dlc_state.exchanges[dlc_state.current] & 1] + dlc_state.current * DLC_VALUE, value, size);
}

/* Waits until all threads have sent their values. Returns the array of the values. */
static const char *dlc_exchanged_values(void)
{
    const int64_t exchange = dlc_state.exchanges[dlc_state.current]++;
    dlc_state.exchanging = 1;
    dlc_simt_barrier();
    return dlc_state.values[exchange & 1];
}

void dlc_simt_receive(void *value, size_t size, int64_t from)
{
    const int64_t other = dlc_state.current + from;
    const char *values = dlc_exchanged_values();
    if (other < 0 || other >= dlc_state.count)
        dlc_fail("a thread exchanges values with thread %lld, which its group does not have", (long long)other);
    memcpy(value, values + other * DLC_VALUE, size);
}

static void dlc_copy(void *to, const void *from, size_t size);
static void dlc_clear(void *to, size_t size);
static void dlc_clear_queues(int64_t count);

static pthread_key_t dlc_key;
static pthread_once_t dlc_once = PTHREAD_ONCE_INIT;

/* Frees the fibres of a thread that ends. */
static void dlc_release(void *any)
{
    (void)any;
    for (int64_t i = 0; i < dlc_state.made; ++i)
        free(dlc_state.fibres[i].stack);
    free(dlc_state.fibres);
    free(dlc_state.values[0]);
    free(dlc_state.values[1]);
    free(dlc_state.exchanges);
    memset(&dlc_state, 0, sizeof dlc_state);
}

static void dlc_make_key(void) { pthread_key_create(&dlc_key, dlc_release); }

static int dlc_reserve(int64_t count)
{
    pthread_once(&dlc_once, dlc_make_key);
    pthread_setspecific(dlc_key, &dlc_state);
    if (dlc_state.capacity < count) {
        struct dlc_fibre *fibres = realloc(dlc_state.fibres, (size_t)count * sizeof *fibres);
        char *first = realloc(dlc_state.values[0], (size_t)count * DLC_VALUE);
        char *second = realloc(dlc_state.values[1], (size_t)count * DLC_VALUE);
        int64_t *exchanges = realloc(dlc_state.exchanges, (size_t)count * sizeof *exchanges);
        if (fibres)
            dlc_state.fibres = fibres;
        if (first)
            dlc_state.values[0] = first;
        if (second)
            dlc_state.values[1] = second;
        if (exchanges)
            dlc_state.exchanges = exchanges;
        if (!fibres || !first || !second || !exchanges)
            return 0;
        /* A context may contain pointers into itself, so contexts that realloc moved are made again. */
        for (int64_t i = 0; i < dlc_state.made; ++i)
            fibres[i].state = DLC_NEW;
        dlc_state.capacity = count;
    }
    for (; dlc_state.made < count; ++dlc_state.made) {
        struct dlc_fibre *fibre = &dlc_state.fibres[dlc_state.made];
        fibre->stack = malloc(DLC_STACK);
        if (!fibre->stack)
            return 0;
        fibre->state = DLC_NEW;
    }
    return 1;
}

static void dlc_init_fibre(struct dlc_fibre *fibre)
{
    if (fibre->state == DLC_NEW) {
        getcontext(&fibre->first);
        fibre->first.uc_stack.ss_sp = fibre->stack;
        /* Stacks whose tops have the same offset in a page would compete for the same cache sets. */
        fibre->first.uc_stack.ss_size = DLC_STACK - (size_t)((fibre - dlc_state.fibres) % 64) * DLC_STEP;
        fibre->first.uc_link = NULL;
        makecontext(&fibre->first, dlc_fibre_main, 0);
        fibre->fresh = 1;
    }
    fibre->state = DLC_IDLE;
    fibre->fenced = dlc_state.phase - 1;
}

/* Report a barrier that some threads of the group did not reach. */
static void dlc_report_missed_barrier(void)
{
    char waits[64], ended[64];
    int64_t first = 0, other = 0;
    while (dlc_state.fibres[first].state != DLC_WAITING)
        ++first;
    while (dlc_state.fibres[other].state == DLC_WAITING)
        ++other;
    dlc_thread_name(waits, sizeof waits, first);
    dlc_thread_name(ended, sizeof ended, other);
    dlc_fail("thread %s waits at a barrier, and thread %s of its group has ended", waits, ended);
}

static void dlc_run_fibres(void)
{
    int64_t waiting;
    for (int64_t i = 0; i < dlc_state.count; ++i) {
        dlc_init_fibre(&dlc_state.fibres[i]);
        dlc_state.exchanges[i] = 0;
    }
    do {
        waiting = 0;
        for (int64_t i = 0; i < dlc_state.count; ++i) {
            dlc_select(i);
            dlc_enter(i);
            waiting += dlc_state.fibres[i].state == DLC_WAITING;
        }
        if (waiting && waiting < dlc_state.count)
            dlc_report_missed_barrier();
        ++dlc_state.sync_points;
        dlc_state.phase += !dlc_state.exchanging;
        dlc_state.exchanging = 0;
    } while (waiting);
}

static void dlc_run_calls(void)
{
    for (int64_t i = 0; i < dlc_state.count; ++i) {
        dlc_select(i);
        dlc_state.launch->body(dlc_state.launch->buffers, dlc_state.launch->scalars);
    }
}

static void dlc_begin(void);
static void dlc_begin_group(void);
static void dlc_end(void);

int32_t dlc_simt_run(const struct dlc_simt_launch *launch)
{
    const int64_t *g = launch->groups, *t = launch->threads;
    volatile int failed = 0;
    dlc_state.launch = launch;
    dlc_state.count = t[0] * t[1] * t[2];
    dlc_state.error[0] = 0;
    dlc_state.unchecked = 0;
#ifdef DLC_SIMT_CHECKED
    const int fibres = 1;
#else
    const int fibres = launch->has_barriers;
#endif
    if (fibres && !dlc_reserve(dlc_state.count)) {
        snprintf(dlc_state.error, sizeof dlc_state.error, "there is no memory for %lld threads",
                 (long long)dlc_state.count);
        return 1;
    }
    dlc_begin();
    if (_setjmp(dlc_state.out))
        failed = 1;
    else
        for (dlc_state.group[2] = 0; dlc_state.group[2] < g[2]; ++dlc_state.group[2])
            for (dlc_state.group[1] = 0; dlc_state.group[1] < g[1]; ++dlc_state.group[1])
                for (dlc_state.group[0] = 0; dlc_state.group[0] < g[0]; ++dlc_state.group[0]) {
                    dlc_begin_group();
                    dlc_clear_queues(dlc_state.count);
                    if (fibres)
                        dlc_run_fibres();
                    else
                        dlc_run_calls();
                }
    if (failed && fibres)
        for (int64_t i = 0; i < dlc_state.count; ++i)
            dlc_state.fibres[i].state = DLC_NEW;
    dlc_end();
    dlc_state.launch = NULL;
    return failed;
}

#ifndef DLC_SIMT_CHECKED

void dlc_simt_shared(const char *name, void *data, int64_t size)
{
    (void)name, (void)data, (void)size;
}
static void dlc_copy(void *to, const void *from, size_t size) { memcpy(to, from, size); }
static void dlc_clear(void *to, size_t size) { memset(to, 0, size); }
static void dlc_check_unit_read(const void *at, int64_t size, int64_t start_phase)
{
    (void)at, (void)size, (void)start_phase;
}
void dlc_simt_fence(void) {}
static void dlc_set_unit_access(int on) { (void)on; }
static void dlc_begin(void) {}
static void dlc_begin_group(void) {}
static void dlc_end(void) {}

#else

/* The last accesses of each byte, with the group and the phase (between two barriers) in which they were made. */
struct dlc_last_access {
    int64_t group, phase;
    int32_t thread, many; /* many: 1 if several threads of the group accessed it, 2 if several groups did */
    int32_t unit; /* whether a tensor copy wrote it, which units see without a fence */
};
struct dlc_word {
    uintptr_t at; /* address / 8, plus 1: 0 is free */
    struct dlc_last_access wrote[8], read[8];
};

#define DLC_ARRAYS 64

static __thread struct {
    struct dlc_word *words;
    size_t size, used;
    struct {
        const char *name;
        char *data;
        int64_t size;
    } shared[DLC_ARRAYS];
    int arrays, unit;
    int64_t group;
} dlc_shadow;

static void dlc_begin(void)
{
    dlc_shadow.size = 1 << 12;
    dlc_shadow.used = 0;
    dlc_shadow.words = calloc(dlc_shadow.size, sizeof *dlc_shadow.words);
    dlc_shadow.group = 0;
    dlc_shadow.unit = 0;
    dlc_shadow.arrays = 0;
}

static void dlc_begin_group(void) { ++dlc_shadow.group; }

static void dlc_end(void)
{
    free(dlc_shadow.words);
    dlc_shadow.words = NULL;
}

void dlc_simt_shared(const char *name, void *data, int64_t size)
{
    for (int i = 0; i < dlc_shadow.arrays; ++i)
        if (dlc_shadow.shared[i].data == data)
            return;
    if (dlc_shadow.arrays == DLC_ARRAYS)
        dlc_fail("a kernel has more than %d shared arrays", DLC_ARRAYS);
    dlc_shadow.shared[dlc_shadow.arrays].name = name;
    dlc_shadow.shared[dlc_shadow.arrays].data = data;
    dlc_shadow.shared[dlc_shadow.arrays++].size = size;
}

static struct dlc_word *dlc_word_at(uintptr_t at)
{
    size_t i;
    if (dlc_shadow.used * 2 >= dlc_shadow.size) {
        struct dlc_word *old = dlc_shadow.words;
        const size_t size = dlc_shadow.size;
        dlc_shadow.size *= 2;
        dlc_shadow.words = calloc(dlc_shadow.size, sizeof *old);
        if (!dlc_shadow.words)
            dlc_fail("there is no memory to check this launch");
        for (size_t k = 0; k < size; ++k)
            if (old[k].at) {
                for (i = (old[k].at * 0x9e3779b97f4a7c15u) >> 20; dlc_shadow.words[i % dlc_shadow.size].at; ++i)
                    ;
                dlc_shadow.words[i % dlc_shadow.size] = old[k];
            }
        free(old);
    }
    for (i = ((at + 1) * 0x9e3779b97f4a7c15u) >> 20;; ++i) {
        struct dlc_word *word = &dlc_shadow.words[i % dlc_shadow.size];
        if (word->at == at + 1)
            return word;
        if (!word->at) {
            word->at = at + 1;
            ++dlc_shadow.used;
            return word;
        }
    }
}

static int dlc_is_race(const struct dlc_last_access *access, int shared, int reads)
{
    if (!access->group)
        return 0;
    if (access->group != dlc_shadow.group)
        return !shared;
    if (reads && access->many == 2 && !shared)
        return 1;
    if (access->phase != dlc_state.phase)
        return 0;
    return access->thread != dlc_state.current || (reads && access->many);
}

static void dlc_report_race(const char *name, int64_t byte, const struct dlc_last_access *other, const char *theirs,
                            int write)
{
    char mine[64], its[64];
    dlc_thread_name(mine, sizeof mine, dlc_state.current);
    dlc_thread_name(its, sizeof its, other->thread);
    const char *where = other->group == dlc_shadow.group ? "with no barrier between" : "of another group";
    dlc_fail("race: byte %lld of %s is %s by thread %s of group (%lld, %lld, %lld) and %s by thread %s, %s",
             (long long)byte, name, write ? "written" : "read", mine, (long long)dlc_state.group[0],
             (long long)dlc_state.group[1], (long long)dlc_state.group[2], theirs, its, where);
}

static void dlc_record_access(struct dlc_last_access *access, int shared)
{
    if (access->group == dlc_shadow.group && access->phase == dlc_state.phase) {
        if (access->thread != dlc_state.current)
            access->many = access->many ? access->many : 1;
        return;
    }
    access->many = !shared && (access->many == 2 || (access->group && access->group != dlc_shadow.group)) ? 2 : 0;
    access->group = dlc_shadow.group;
    access->phase = dlc_state.phase;
    access->thread = (int32_t)dlc_state.current;
}

static void dlc_check_bytes(const char *name, char *base, char *at, int64_t size, int shared, int write)
{
    for (int64_t i = 0; i < size; ++i) {
        const uintptr_t byte = (uintptr_t)(at + i);
        struct dlc_word *word = dlc_word_at(byte / 8);
        struct dlc_last_access *wrote = &word->wrote[byte % 8], *read = &word->read[byte % 8];
        if (dlc_is_race(wrote, shared, 0))
            dlc_report_race(name, at + i - base, wrote, "written", write);
        if (write && dlc_is_race(read, shared, 1))
            dlc_report_race(name, at + i - base, read, "read", write);
        dlc_record_access(write ? wrote : read, shared);
        if (write) {
            wrote->many = 0;
            wrote->unit = dlc_shadow.unit;
        }
    }
}

static void dlc_access(void *address, int64_t size, int write)
{
    char *at = address;
    const struct dlc_simt_launch *launch = dlc_state.launch;
    const struct dlc_simt_buffer *near = NULL;
    char *stack;
    int64_t away = 0;
    if (!launch || dlc_state.unchecked)
        return;
    stack = dlc_state.fibres[dlc_state.current].stack;
    if (at >= stack && at < stack + DLC_STACK)
        return;
    for (int i = 0; i < dlc_shadow.arrays; ++i) {
        char *data = dlc_shadow.shared[i].data;
        if (at >= data && at + size <= data + dlc_shadow.shared[i].size) {
            dlc_check_bytes(dlc_shadow.shared[i].name, data, at, size, 1, write);
            if (write && !dlc_shadow.unit && dlc_state.fibres[dlc_state.current].fenced >= dlc_state.phase)
                dlc_state.fibres[dlc_state.current].fenced = dlc_state.phase - 1;
            return;
        }
    }
    for (int i = 0; i < launch->count; ++i) {
        char *data = launch->windows[i].data;
        const int64_t bytes = launch->windows[i].size;
        const int64_t off = at < data ? data - at : at + size > data + bytes ? at + size - data - bytes : 0;
        if (!off) {
            if (!launch->windows[i].racy)
                dlc_check_bytes(launch->windows[i].name, data, at, size, 0, write);
            return;
        }
        if (!near || off < away) {
            near = &launch->windows[i];
            away = off;
        }
    }
    char mine[64];
    dlc_thread_name(mine, sizeof mine, dlc_state.current);
    dlc_fail("thread %s of group (%lld, %lld, %lld) %s %lld bytes outside of all buffers: byte %lld of %s, "
             "which has %lld",
             mine, (long long)dlc_state.group[0], (long long)dlc_state.group[1], (long long)dlc_state.group[2],
             write ? "writes" : "reads", (long long)size, near ? (long long)(at - (char *)near->data) : 0,
             near ? near->name : "nothing", near ? (long long)near->size : 0);
}

#define DLC_ACCESS(size) \
    void __tsan_read##size(void *at) { dlc_access(at, size, 0); } \
    void __tsan_write##size(void *at) { dlc_access(at, size, 1); } \
    void __tsan_unaligned_read##size(void *at) { dlc_access(at, size, 0); } \
    void __tsan_unaligned_write##size(void *at) { dlc_access(at, size, 1); } \
    void __tsan_volatile_read##size(void *at) { dlc_access(at, size, 0); } \
    void __tsan_volatile_write##size(void *at) { dlc_access(at, size, 1); } \
    void __tsan_unaligned_volatile_read##size(void *at) { dlc_access(at, size, 0); } \
    void __tsan_unaligned_volatile_write##size(void *at) { dlc_access(at, size, 1); }
DLC_ACCESS(1)
DLC_ACCESS(2)
DLC_ACCESS(4)
DLC_ACCESS(8)
DLC_ACCESS(16)
void __tsan_read_range(void *at, unsigned long size) { dlc_access(at, (int64_t)size, 0); }
void __tsan_write_range(void *at, unsigned long size) { dlc_access(at, (int64_t)size, 1); }
void *__tsan_memcpy(void *to, const void *from, size_t size)
{
    dlc_access((void *)from, (int64_t)size, 0);
    dlc_access(to, (int64_t)size, 1);
    return memcpy(to, from, size);
}
static void dlc_copy(void *to, const void *from, size_t size) { __tsan_memcpy(to, from, size); }
void *__tsan_memset(void *to, int value, size_t size)
{
    dlc_access(to, (int64_t)size, 1);
    return memset(to, value, size);
}
static void dlc_clear(void *to, size_t size) { __tsan_memset(to, 0, size); }

static void dlc_set_unit_access(int on) { dlc_shadow.unit = on; }
void dlc_simt_fence(void) { dlc_state.fibres[dlc_state.current].fenced = dlc_state.phase; }

/* Check a read by a matrix unit. The thread that wrote the bytes must have executed a fence and a barrier after the
   write, and no thread may write them from the phase on in which the product was queued (`start_phase`). */
static void dlc_check_unit_read(const void *at, int64_t size, int64_t start_phase)
{
    dlc_access((void *)at, size, 0);
    for (int64_t i = 0; i < size; ++i) {
        const uintptr_t byte = (uintptr_t)at + i;
        struct dlc_word *word = dlc_word_at(byte / 8);
        const struct dlc_last_access *wrote = &word->wrote[byte % 8];
        word->read[byte % 8].many = 1;
        if (wrote->group == dlc_shadow.group && !wrote->unit &&
            dlc_state.fibres[wrote->thread].fenced < wrote->phase) {
            char its[64];
            dlc_thread_name(its, sizeof its, wrote->thread);
            dlc_fail("a unit reads data that thread %s has written, without a fence in between", its);
        }
        if (wrote->group == dlc_shadow.group && wrote->phase >= start_phase) {
            char its[64];
            dlc_thread_name(its, sizeof its, wrote->thread);
            dlc_fail("race: thread %s has written data that an unfinished product reads", its);
        }
    }
}

void __tsan_init(void) {}
void __tsan_func_entry(void *from) { (void)from; }
void __tsan_func_exit(void) {}

struct dlc_bounds {
    const char *file;
    uint32_t line, column;
    struct {
        uint16_t kind, info;
        char name[1];
    } *array;
};
void __ubsan_handle_out_of_bounds(struct dlc_bounds *where, uintptr_t index)
{
    char mine[64];
    if (!dlc_state.launch)
        return;
    dlc_thread_name(mine, sizeof mine, dlc_state.current);
    dlc_fail("thread %s of group (%lld, %lld, %lld) takes element %lld of an array %s, line %u", mine,
             (long long)dlc_state.group[0], (long long)dlc_state.group[1], (long long)dlc_state.group[2],
             (long long)index, where->array->name, where->line);
}

#endif
