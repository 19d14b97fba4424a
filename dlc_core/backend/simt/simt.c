/* The threads of a group on one processor. Each thread is a fibre that runs from barrier to barrier.

   A fibre starts on its own stack (makecontext). It is entered and left by _setjmp and _longjmp, which make no system
   call. Kernels without barriers need no fibres: their threads are consecutive calls.

   With DLC_SIMT_CHECKED kernels are compiled with -fsanitize=thread, and this file defines the functions that the
   compiler then calls at each access, and those of failed bounds checks of arrays. */

#undef _FORTIFY_SOURCE
#define _GNU_SOURCE
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
    int64_t count, now; /* threads of a group; the index of the current one */
    int64_t phase;      /* barriers passed, over all groups */
    int64_t meetings;   /* barriers and exchanges of values; exchanges do not order memory accesses */
    int exchanging;
    struct dlc_fibre *fibres;
    int64_t made;
    char *values[2]; /* exchanged values; double-buffered, so that an exchange needs only one barrier */
    int64_t *rounds;
    int64_t capacity; /* threads that there is memory for */
    jmp_buf back, out;
    char error[512];
    int quiet;
} dlc_now;

#define DLC_DIM(name, from) \
    int64_t dlc_simt_##name(int dim) { return dlc_now.from[dim]; }
DLC_DIM(group, group)
DLC_DIM(thread, thread)
DLC_DIM(groups, launch->groups)
DLC_DIM(threads, launch->threads)

const char *dlc_simt_last_error(void) { return dlc_now.error; }
void dlc_simt_quiet(int on) { dlc_now.quiet = on; }

static int dlc_stop(const char *form, ...)
{
    va_list args;
    va_start(args, form);
    vsnprintf(dlc_now.error, sizeof dlc_now.error, form, args);
    va_end(args);
    _longjmp(dlc_now.out, 1);
    return 1;
}

static void dlc_name(char *text, size_t size, int64_t number)
{
    const int64_t *d = dlc_now.launch->threads;
    snprintf(text, size, "(%lld, %lld, %lld)", (long long)(number % d[0]), (long long)(number / d[0] % d[1]),
             (long long)(number / d[0] / d[1]));
}

static __attribute__((noinline)) void dlc_to_scheduler(struct dlc_fibre *fibre)
{
    if (!_setjmp(fibre->at))
        _longjmp(dlc_now.back, 1);
}

static void dlc_life(void)
{
    for (;;) {
        struct dlc_fibre *fibre = &dlc_now.fibres[dlc_now.now];
        dlc_now.launch->body(dlc_now.launch->buffers, dlc_now.launch->scalars);
        fibre = &dlc_now.fibres[dlc_now.now];
        fibre->state = DLC_ENDED;
        dlc_to_scheduler(fibre);
    }
}

static __attribute__((noinline)) void dlc_enter(int64_t number)
{
    struct dlc_fibre *fibre = &dlc_now.fibres[number];
    if (_setjmp(dlc_now.back))
        return;
    if (fibre->fresh) {
        fibre->fresh = 0;
        setcontext(&fibre->first);
    }
    _longjmp(fibre->at, 1);
}

static void dlc_select(int64_t number)
{
    const int64_t *d = dlc_now.launch->threads;
    dlc_now.now = number;
    dlc_now.thread[0] = number % d[0];
    dlc_now.thread[1] = number / d[0] % d[1];
    dlc_now.thread[2] = number / d[0] / d[1];
}

void dlc_simt_barrier(void)
{
    struct dlc_fibre *fibre = &dlc_now.fibres[dlc_now.now];
    fibre->state = DLC_WAITING;
    dlc_to_scheduler(fibre);
    fibre->state = DLC_RUNNING;
}

int64_t dlc_simt_lane(int64_t width) { return dlc_now.now % width; }

void dlc_simt_give(const void *value, size_t size)
{
    memcpy(dlc_now.values[dlc_now.rounds[dlc_now.now] & 1] + dlc_now.now * DLC_VALUE, value, size);
}

/* Waits until all threads have given their values. Returns the array of the values. */
static const char *dlc_given(void)
{
    const int64_t round = dlc_now.rounds[dlc_now.now]++;
    dlc_now.exchanging = 1;
    dlc_simt_barrier();
    return dlc_now.values[round & 1];
}

void dlc_simt_take(void *value, size_t size, int64_t from)
{
    const int64_t other = dlc_now.now + from;
    const char *given = dlc_given();
    if (other < 0 || other >= dlc_now.count)
        dlc_stop("a thread exchanges values with thread %lld, which its group does not have", (long long)other);
    memcpy(value, given + other * DLC_VALUE, size);
}

static void dlc_copy(void *to, const void *from, size_t size);
static void dlc_clear(void *to, size_t size);
static void dlc_drop(int64_t count);

static int dlc_reserve(int64_t count)
{
    if (dlc_now.capacity < count) {
        struct dlc_fibre *fibres = realloc(dlc_now.fibres, (size_t)count * sizeof *fibres);
        char *first = realloc(dlc_now.values[0], (size_t)count * DLC_VALUE);
        char *second = realloc(dlc_now.values[1], (size_t)count * DLC_VALUE);
        int64_t *rounds = realloc(dlc_now.rounds, (size_t)count * sizeof *rounds);
        if (fibres)
            dlc_now.fibres = fibres;
        if (first)
            dlc_now.values[0] = first;
        if (second)
            dlc_now.values[1] = second;
        if (rounds)
            dlc_now.rounds = rounds;
        if (!fibres || !first || !second || !rounds)
            return 0;
        /* A context may contain pointers into itself, so contexts that realloc moved are made again. */
        for (int64_t i = 0; i < dlc_now.made; ++i)
            fibres[i].state = DLC_NEW;
        dlc_now.capacity = count;
    }
    for (; dlc_now.made < count; ++dlc_now.made) {
        struct dlc_fibre *fibre = &dlc_now.fibres[dlc_now.made];
        fibre->stack = malloc(DLC_STACK);
        if (!fibre->stack)
            return 0;
        fibre->state = DLC_NEW;
    }
    return 1;
}

static void dlc_ready(struct dlc_fibre *fibre)
{
    if (fibre->state == DLC_NEW) {
        getcontext(&fibre->first);
        fibre->first.uc_stack.ss_sp = fibre->stack;
        /* Stacks whose tops have the same offset in a page would compete for the same cache sets. */
        fibre->first.uc_stack.ss_size = DLC_STACK - (size_t)((fibre - dlc_now.fibres) % 64) * DLC_STEP;
        fibre->first.uc_link = NULL;
        makecontext(&fibre->first, dlc_life, 0);
        fibre->fresh = 1;
    }
    fibre->state = DLC_IDLE;
    fibre->fenced = dlc_now.phase - 1;
}

/* Report a barrier that some threads of the group did not reach. */
static void dlc_missed(void)
{
    char waits[64], ended[64];
    int64_t first = 0, other = 0;
    while (dlc_now.fibres[first].state != DLC_WAITING)
        ++first;
    while (dlc_now.fibres[other].state == DLC_WAITING)
        ++other;
    dlc_name(waits, sizeof waits, first);
    dlc_name(ended, sizeof ended, other);
    dlc_stop("thread %s waits at a barrier, and thread %s of its group has ended", waits, ended);
}

static void dlc_group_of_fibres(void)
{
    int64_t waiting;
    for (int64_t i = 0; i < dlc_now.count; ++i) {
        dlc_ready(&dlc_now.fibres[i]);
        dlc_now.rounds[i] = 0;
    }
    do {
        waiting = 0;
        for (int64_t i = 0; i < dlc_now.count; ++i) {
            dlc_select(i);
            dlc_enter(i);
            waiting += dlc_now.fibres[i].state == DLC_WAITING;
        }
        if (waiting && waiting < dlc_now.count)
            dlc_missed();
        ++dlc_now.meetings;
        dlc_now.phase += !dlc_now.exchanging;
        dlc_now.exchanging = 0;
    } while (waiting);
}

static void dlc_group_of_calls(void)
{
    for (int64_t i = 0; i < dlc_now.count; ++i) {
        dlc_select(i);
        dlc_now.launch->body(dlc_now.launch->buffers, dlc_now.launch->scalars);
    }
}

static void dlc_begin(void);
static void dlc_begin_group(void);
static void dlc_end(void);

int32_t dlc_simt_run(const struct dlc_simt_launch *launch)
{
    const int64_t *g = launch->groups, *t = launch->threads;
    volatile int failed = 0;
    dlc_now.launch = launch;
    dlc_now.count = t[0] * t[1] * t[2];
    dlc_now.error[0] = 0;
    dlc_now.quiet = 0;
#ifdef DLC_SIMT_CHECKED
    const int fibres = 1;
#else
    const int fibres = launch->has_barriers;
#endif
    if (fibres && !dlc_reserve(dlc_now.count)) {
        snprintf(dlc_now.error, sizeof dlc_now.error, "there is no memory for %lld threads", (long long)dlc_now.count);
        return 1;
    }
    dlc_begin();
    if (_setjmp(dlc_now.out))
        failed = 1;
    else
        for (dlc_now.group[2] = 0; dlc_now.group[2] < g[2]; ++dlc_now.group[2])
            for (dlc_now.group[1] = 0; dlc_now.group[1] < g[1]; ++dlc_now.group[1])
                for (dlc_now.group[0] = 0; dlc_now.group[0] < g[0]; ++dlc_now.group[0]) {
                    dlc_begin_group();
                    dlc_drop(dlc_now.count);
                    if (fibres)
                        dlc_group_of_fibres();
                    else
                        dlc_group_of_calls();
                }
    if (failed && fibres)
        for (int64_t i = 0; i < dlc_now.count; ++i)
            dlc_now.fibres[i].state = DLC_NEW;
    dlc_end();
    dlc_now.launch = NULL;
    return failed;
}

#ifndef DLC_SIMT_CHECKED

void dlc_simt_shared(const char *name, void *data, int64_t size)
{
    (void)name, (void)data, (void)size;
}
static void dlc_copy(void *to, const void *from, size_t size) { memcpy(to, from, size); }
static void dlc_clear(void *to, size_t size) { memset(to, 0, size); }
static void dlc_read_by_unit(const void *at, int64_t size, int64_t begun) { (void)at, (void)size, (void)begun; }
void dlc_simt_fence(void) {}
static void dlc_by_unit(int on) { (void)on; }
static void dlc_begin(void) {}
static void dlc_begin_group(void) {}
static void dlc_end(void) {}

#else

/* The last accesses of each byte, with the group and the phase (between two barriers) in which they were made. */
struct dlc_touch {
    int64_t group, phase;
    int32_t thread, many; /* many: 1 if several threads of the group accessed it, 2 if several groups did */
    int32_t unit; /* whether a tensor copy wrote it, which units see without a fence */
};
struct dlc_word {
    uintptr_t at; /* address / 8, plus 1: 0 is free */
    struct dlc_touch wrote[8], read[8];
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
} dlc_seen;

static void dlc_begin(void)
{
    dlc_seen.size = 1 << 12;
    dlc_seen.used = 0;
    dlc_seen.words = calloc(dlc_seen.size, sizeof *dlc_seen.words);
    dlc_seen.group = 0;
    dlc_seen.unit = 0;
    dlc_seen.arrays = 0;
}

static void dlc_begin_group(void) { ++dlc_seen.group; }

static void dlc_end(void)
{
    free(dlc_seen.words);
    dlc_seen.words = NULL;
}

void dlc_simt_shared(const char *name, void *data, int64_t size)
{
    for (int i = 0; i < dlc_seen.arrays; ++i)
        if (dlc_seen.shared[i].data == data)
            return;
    if (dlc_seen.arrays == DLC_ARRAYS)
        dlc_stop("a kernel has more than %d shared arrays", DLC_ARRAYS);
    dlc_seen.shared[dlc_seen.arrays].name = name;
    dlc_seen.shared[dlc_seen.arrays].data = data;
    dlc_seen.shared[dlc_seen.arrays++].size = size;
}

static struct dlc_word *dlc_word_at(uintptr_t at)
{
    size_t i;
    if (dlc_seen.used * 2 >= dlc_seen.size) {
        struct dlc_word *old = dlc_seen.words;
        const size_t size = dlc_seen.size;
        dlc_seen.size *= 2;
        dlc_seen.words = calloc(dlc_seen.size, sizeof *old);
        if (!dlc_seen.words)
            dlc_stop("there is no memory to check this launch");
        for (size_t k = 0; k < size; ++k)
            if (old[k].at) {
                for (i = (old[k].at * 0x9e3779b97f4a7c15u) >> 20; dlc_seen.words[i % dlc_seen.size].at; ++i)
                    ;
                dlc_seen.words[i % dlc_seen.size] = old[k];
            }
        free(old);
    }
    for (i = ((at + 1) * 0x9e3779b97f4a7c15u) >> 20;; ++i) {
        struct dlc_word *word = &dlc_seen.words[i % dlc_seen.size];
        if (word->at == at + 1)
            return word;
        if (!word->at) {
            word->at = at + 1;
            ++dlc_seen.used;
            return word;
        }
    }
}

static int dlc_clashes(const struct dlc_touch *touch, int shared, int reads)
{
    if (!touch->group)
        return 0;
    if (touch->group != dlc_seen.group)
        return !shared;
    if (reads && touch->many == 2 && !shared)
        return 1;
    if (touch->phase != dlc_now.phase)
        return 0;
    return touch->thread != dlc_now.now || (reads && touch->many);
}

static void dlc_race(const char *name, int64_t byte, const struct dlc_touch *other, const char *theirs, int write)
{
    char mine[64], its[64];
    dlc_name(mine, sizeof mine, dlc_now.now);
    dlc_name(its, sizeof its, other->thread);
    const char *where = other->group == dlc_seen.group ? "with no barrier between" : "of another group";
    dlc_stop("race: byte %lld of %s is %s by thread %s of group (%lld, %lld, %lld) and %s by thread %s, %s",
             (long long)byte, name, write ? "written" : "read", mine, (long long)dlc_now.group[0],
             (long long)dlc_now.group[1], (long long)dlc_now.group[2], theirs, its, where);
}

static void dlc_record(struct dlc_touch *touch, int shared)
{
    if (touch->group == dlc_seen.group && touch->phase == dlc_now.phase) {
        if (touch->thread != dlc_now.now)
            touch->many = touch->many ? touch->many : 1;
        return;
    }
    touch->many = !shared && (touch->many == 2 || (touch->group && touch->group != dlc_seen.group)) ? 2 : 0;
    touch->group = dlc_seen.group;
    touch->phase = dlc_now.phase;
    touch->thread = (int32_t)dlc_now.now;
}

static void dlc_touched(const char *name, char *base, char *at, int64_t size, int shared, int write)
{
    for (int64_t i = 0; i < size; ++i) {
        const uintptr_t byte = (uintptr_t)(at + i);
        struct dlc_word *word = dlc_word_at(byte / 8);
        struct dlc_touch *wrote = &word->wrote[byte % 8], *read = &word->read[byte % 8];
        if (dlc_clashes(wrote, shared, 0))
            dlc_race(name, at + i - base, wrote, "written", write);
        if (write && dlc_clashes(read, shared, 1))
            dlc_race(name, at + i - base, read, "read", write);
        dlc_record(write ? wrote : read, shared);
        if (write) {
            wrote->many = 0;
            wrote->unit = dlc_seen.unit;
        }
    }
}

static void dlc_access(void *address, int64_t size, int write)
{
    char *at = address;
    const struct dlc_simt_launch *launch = dlc_now.launch;
    const struct dlc_simt_buffer *near = NULL;
    char *stack;
    int64_t away = 0;
    if (!launch || dlc_now.quiet)
        return;
    stack = dlc_now.fibres[dlc_now.now].stack;
    if (at >= stack && at < stack + DLC_STACK)
        return;
    for (int i = 0; i < dlc_seen.arrays; ++i) {
        char *data = dlc_seen.shared[i].data;
        if (at >= data && at + size <= data + dlc_seen.shared[i].size) {
            dlc_touched(dlc_seen.shared[i].name, data, at, size, 1, write);
            if (write && !dlc_seen.unit && dlc_now.fibres[dlc_now.now].fenced >= dlc_now.phase)
                dlc_now.fibres[dlc_now.now].fenced = dlc_now.phase - 1;
            return;
        }
    }
    for (int i = 0; i < launch->count; ++i) {
        char *data = launch->windows[i].data;
        const int64_t bytes = launch->windows[i].size;
        const int64_t off = at < data ? data - at : at + size > data + bytes ? at + size - data - bytes : 0;
        if (!off) {
            if (!launch->windows[i].racy)
                dlc_touched(launch->windows[i].name, data, at, size, 0, write);
            return;
        }
        if (!near || off < away) {
            near = &launch->windows[i];
            away = off;
        }
    }
    char mine[64];
    dlc_name(mine, sizeof mine, dlc_now.now);
    dlc_stop("thread %s of group (%lld, %lld, %lld) %s %lld bytes outside of all buffers: byte %lld of %s, "
             "which has %lld",
             mine, (long long)dlc_now.group[0], (long long)dlc_now.group[1], (long long)dlc_now.group[2],
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

static void dlc_by_unit(int on) { dlc_seen.unit = on; }
void dlc_simt_fence(void) { dlc_now.fibres[dlc_now.now].fenced = dlc_now.phase; }

/* Check a read by a matrix unit. The thread that wrote the bytes must have executed a fence and a barrier after the
   write, and no thread may write them from the phase on in which the product began. */
static void dlc_read_by_unit(const void *at, int64_t size, int64_t begun)
{
    dlc_access((void *)at, size, 0);
    for (int64_t i = 0; i < size; ++i) {
        const uintptr_t byte = (uintptr_t)at + i;
        struct dlc_word *word = dlc_word_at(byte / 8);
        const struct dlc_touch *wrote = &word->wrote[byte % 8];
        word->read[byte % 8].many = 1;
        if (wrote->group == dlc_seen.group && !wrote->unit &&
            dlc_now.fibres[wrote->thread].fenced < wrote->phase) {
            char its[64];
            dlc_name(its, sizeof its, wrote->thread);
            dlc_stop("a unit reads data that thread %s has written, without a fence in between", its);
        }
        if (wrote->group == dlc_seen.group && wrote->phase >= begun) {
            char its[64];
            dlc_name(its, sizeof its, wrote->thread);
            dlc_stop("race: thread %s has written data that an unfinished product reads", its);
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
    if (!dlc_now.launch)
        return;
    dlc_name(mine, sizeof mine, dlc_now.now);
    dlc_stop("thread %s of group (%lld, %lld, %lld) takes element %lld of an array %s, line %u", mine,
             (long long)dlc_now.group[0], (long long)dlc_now.group[1], (long long)dlc_now.group[2],
             (long long)index, where->array->name, where->line);
}

#endif
