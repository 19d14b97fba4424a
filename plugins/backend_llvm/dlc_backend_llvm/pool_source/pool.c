/* The thread pool of generated code.  `tools/make_pool_ir.py` compiles it to LLVM IR in this folder, one file for
 * each architecture, which `pool_text.py` reads.  A test checks that these files are up to date.
 *
 * A job is a loop over n items.  It is divided into at most 8 ranges per thread.  They are distributed before
 * the job is published: of t threads, thread i has the ranges from i/t to (i + 1)/t.  So in kernel after kernel
 * a thread works on the same part of the data.  The ranges of a thread are a queue, one 64-bit word in a cache
 * line of its own:
 *
 *     generation (32 bits) | end of its ranges (16) | next range (16)
 *
 * The owner of a queue takes ranges from the front; threads that have finished their own steal from the end.
 * Each claim is a compare-and-swap on the word.  It can only succeed while the job that the word was read for
 * has a range left.  That job is then the current one, so what was read of `body` to `ranges` before the claim
 * belongs to it.
 *
 * A job is published by storing its generation.  Each thread adds the number of ranges that it ran to `done`,
 * and the caller waits until all ranges are done.
 *
 * Workers are started when they are first needed.  An idle worker spins for 100 us, then sleeps in a futex on
 * the generation.  A worker that the current job does not use sleeps on the number of threads.  A forked child
 * sees another process id, forgets the workers that it does not have, and starts its own.
 *
 * A call can be stopped.  Each thread has the address of a *stop word*, which generated code reads in long loops
 * and between kernels.  If the bit STOP is set, the code returns; ranges of a job that have not begun are then
 * skipped.  The caller of the code sees the bit and discards the results.  The word is that of the call
 * (`dlc_call_stoppable`), else one for the process's first thread and one that is never set for all others.  The
 * bit LOOK means that a signal has arrived.  Its handler in the host language runs on the first thread only, so
 * this thread calls `look`, which runs the handler and returns whether to stop.  Signal handlers of the host
 * language are kept: `dlc_stop_enter` puts a handler before them, again if they have been replaced.
 *
 * State is internal and functions are weak: objects that each contain this code link into one library and use
 * one pool.  A library that contains it must not be unmapped, since workers sleep in it.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_THREADS = 1024,
    RANGES_PER_THREAD = 8,
    SPIN_NANOSECONDS = 100 * 1000, /* how long an idle worker spins before it sleeps */
    SPINS_PER_CLOCK = 64,          /* reading the clock costs more than a spin */
    CALLER_SPINS = 4000,           /* how long a caller spins for the last ranges of others */
    LINE = 128                     /* two cache lines, which processors fetch together */
};

typedef void Body(void *closure, int64_t begin, int64_t end);
typedef int32_t Entry(void *buffers, void *scalars, int32_t threads);
typedef int32_t Look(void);
enum { STOP = 1, LOOK = 2 }; /* bits of a stop word */
typedef struct {
    _Alignas(LINE) uint64_t word;
} Queue;

#define LOAD(from, order) __atomic_load_n(&(from), __ATOMIC_##order)
#define STORE(to, value, order) __atomic_store_n(&(to), value, __ATOMIC_##order)
#define ADD(to, value) __atomic_fetch_add(&(to), value, __ATOMIC_SEQ_CST)

/* The current job.  Only its caller, who holds `busy`, writes it. */
static _Alignas(LINE) uint32_t generation; /* futex: idle workers sleep on it */
static _Alignas(LINE) Body *body;
static void *closure;
static int64_t items;
static int64_t ranges;
static int32_t *job_word; /* the stop word of the job */
static Queue queues[MAX_THREADS];
static _Alignas(LINE) int32_t threads; /* futex: workers that the job does not use sleep on it */

static _Alignas(LINE) int32_t done; /* ranges that are finished; futex: the caller sleeps on it */
static int32_t waiting;             /* whether the caller sleeps or is about to */
static _Alignas(LINE) int32_t sleepers;
static _Alignas(LINE) int32_t busy; /* whether a caller uses the pool */
static int32_t process;             /* the process that started the workers; -1 while a child takes over */
static int32_t workers;             /* how many exist; under `busy` */
static int32_t limit;               /* the maximum number of threads of a call; 0 is no limit */

static _Alignas(LINE) int32_t first_word; /* the stop word of calls of the first thread that have no other */
static int32_t never;                     /* that of all other threads */
static int32_t *call_word;                /* that of the first thread's running call, or null */
static pthread_key_t words;               /* the address of each thread's stop word */
static int32_t has_words;                 /* 0: no key; 1: one is being created; 2: there is one */
static Look *look;
static struct sigaction first_handler, next_handler; /* of the host language; those before which ours is */
static int32_t handling;

static inline void pause_spinning(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) && defined(__clang__)
    __builtin_arm_yield(); /* not inline assembly: not every build of LLVM has an assembler */
#else
    __atomic_signal_fence(__ATOMIC_ACQ_REL);
#endif
}

static int64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void sleep_while(void *at, int32_t value) {
    syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

/* Like `sleep_while`, for at most 20 ms. */
static void nap_while(void *at, int32_t value) {
    struct timespec most = {0, 20 * 1000 * 1000};
    syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, value, &most, NULL, 0);
}

static void wake_all(void *at) {
    syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static int is_first_thread(void) {
    return syscall(SYS_gettid) == getpid();
}

static void set_word(int32_t *word) {
    int32_t none = 0;
    if (__atomic_compare_exchange_n(&has_words, &none, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        pthread_key_create(&words, NULL);
        STORE(has_words, 2, SEQ_CST);
    }
    while (LOAD(has_words, ACQUIRE) != 2) pause_spinning();
    pthread_setspecific(words, word);
}

/* The address of the stop word of this thread. */
__attribute__((weak)) int32_t *dlc_stop_word(void) {
    int32_t *word = LOAD(has_words, ACQUIRE) == 2 ? pthread_getspecific(words) : NULL;
    if (word == NULL) {
        word = is_first_thread() ? &first_word : &never;
        set_word(word);
    }
    return word;
}

/* Set the bit LOOK for the first thread, then call the handler of the host language. */
static void on_signal(int number, siginfo_t *info, void *context) {
    __atomic_fetch_or(&first_word, LOOK, __ATOMIC_SEQ_CST);
    int32_t *word = LOAD(call_word, SEQ_CST);
    if (word != NULL) __atomic_fetch_or(word, LOOK, __ATOMIC_SEQ_CST);
    /* A handler that was put before ours may call ours, which must not call it again. */
    struct sigaction *next = handling ? &first_handler : &next_handler;
    handling++;
    if (next->sa_flags & SA_SIGINFO) next->sa_sigaction(number, info, context);
    else next->sa_handler(number);
    handling--;
}

/* Put our handler of SIGINT before that of the host language, unless it is there or the signal is not handled. */
static void watch_signals(void) {
    struct sigaction now;
    if (sigaction(SIGINT, NULL, &now) || (now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_signal)) return;
    if (!(now.sa_flags & SA_SIGINFO) && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)) return;
    if (first_handler.sa_handler == NULL) first_handler = now;
    next_handler = now;
    now.sa_sigaction = on_signal;
    now.sa_flags |= SA_SIGINFO;
    sigaction(SIGINT, &now, NULL);
}

/* `dlc_stop_word` for an entry point whose call may take long. */
__attribute__((weak)) int32_t *dlc_stop_enter(void) {
    int32_t *word = dlc_stop_word();
    if (LOAD(look, ACQUIRE) != NULL && (word == &first_word || word == LOAD(call_word, RELAXED))) watch_signals();
    return word;
}

/* Whether to stop, for a stop word that is not 0. */
__attribute__((weak)) int32_t dlc_stop_look(int32_t *word) {
    Look *ask = LOAD(look, ACQUIRE);
    if (LOAD(*word, ACQUIRE) & LOOK && ask != NULL && is_first_thread()) {
        __atomic_fetch_and(word, ~LOOK, __ATOMIC_SEQ_CST);
        __atomic_fetch_and(&first_word, ~LOOK, __ATOMIC_SEQ_CST);
        if (ask()) __atomic_fetch_or(word, STOP, __ATOMIC_SEQ_CST);
    }
    return LOAD(*word, ACQUIRE) & STOP;
}

/* Register the function of the host language that runs pending handlers of signals. */
__attribute__((weak)) void dlc_stop_register(Look *function) {
    STORE(look, function, RELEASE);
}

/* Clear the stop word of calls of the first thread. */
__attribute__((weak)) void dlc_stop_clear(void) {
    STORE(first_word, 0, SEQ_CST);
}

/* Call an entry point with a stop word of its own. */
__attribute__((weak)) int32_t dlc_call_stoppable(
    Entry *entry, void *buffers, void *scalars, int32_t num_threads, int32_t *word
) {
    int32_t *outer = dlc_stop_word(), *outer_call = LOAD(call_word, RELAXED);
    int first = is_first_thread();
    set_word(word);
    if (first) {
        STORE(call_word, word, SEQ_CST);
        if (LOAD(first_word, SEQ_CST) & LOOK) __atomic_fetch_or(word, LOOK, __ATOMIC_SEQ_CST);
    }
    int32_t status = entry(buffers, scalars, num_threads);
    if (first) STORE(call_word, outer_call, SEQ_CST);
    set_word(outer);
    return status;
}

/* Claim and run ranges of a job, given by its generation: first those of thread `index`, then others'.  Return
 * how many were run. */
static int32_t work(uint32_t job, int32_t index, int32_t num_threads) {
    int32_t count = 0, owner = index;
    int32_t *own = NULL;
    for (int32_t visits = 0; visits < num_threads; visits++) {
        Queue *queue = &queues[owner];
        for (;;) {
            uint64_t now = LOAD(queue->word, ACQUIRE);
            uint64_t front = now & 0xffff, end = now >> 16 & 0xffff;
            if (now >> 32 != job || front >= end) break;
            Body *run = LOAD(body, RELAXED);
            void *argument = LOAD(closure, RELAXED);
            int64_t n = LOAD(items, RELAXED), parts = LOAD(ranges, RELAXED);
            int32_t *word = LOAD(job_word, RELAXED);
            int64_t range = visits == 0 ? front : end - 1;
            uint64_t claimed = visits == 0 ? now + 1 : now - (1 << 16);
            if (!__atomic_compare_exchange_n(&queue->word, &now, claimed, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
                continue;
            count++;
            if (LOAD(*word, RELAXED) & STOP) continue;
            if (index > 0 && word != own) set_word(own = word);
            run(argument, (uint64_t)(n * range) / parts, (uint64_t)(n * (range + 1)) / parts);
        }
        owner = owner + 1 >= num_threads ? 0 : owner + 1;
    }
    return count;
}

/* Wait for a job after `seen`: spin, then sleep.  Return its generation. */
static uint32_t next_job(uint32_t seen) {
    int64_t since = 0;
    for (uint32_t tries = 1;; tries++) {
        uint32_t now = LOAD(generation, ACQUIRE);
        if (now != seen) return now;
        pause_spinning();
        if (tries % SPINS_PER_CLOCK) continue;
        int64_t time = nanoseconds();
        if (since == 0) since = time;
        if (time - since <= SPIN_NANOSECONDS) continue;
        ADD(sleepers, 1);
        if (LOAD(generation, SEQ_CST) == seen) sleep_while(&generation, seen);
        ADD(sleepers, -1);
        since = 0;
    }
}

static void *worker(void *argument) {
    int32_t index = (int32_t)(intptr_t)argument + 1;
    uint32_t seen = 0;
    for (;;) {
        seen = next_job(seen);
        int32_t num_threads = LOAD(threads, ACQUIRE);
        if (index >= num_threads) {
            sleep_while(&threads, num_threads);
            continue;
        }
        int32_t finished = work(seen, index, num_threads);
        if (finished == 0) continue;
        ADD(done, finished);
        if (LOAD(waiting, SEQ_CST)) wake_all(&done);
    }
}

/* Start workers until there are `count`; return how many there are.  Runs under `busy`.
 *
 * Workers block all signals except those that a fault of the thread itself raises, so that other threads of the
 * process handle the rest.
 */
static int32_t start_workers(int32_t count) {
    if (workers >= count) return workers;
    static const int faults[] = {SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV};
    sigset_t blocked, previous;
    sigfillset(&blocked);
    for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &previous);
    while (workers < count) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, worker, (void *)(intptr_t)workers)) break;
        pthread_detach(thread);
        workers++;
    }
    pthread_sigmask(SIG_SETMASK, &previous, NULL);
    return workers;
}

/* Whether the workers belong to this process.  After a fork one caller of the child resets the state. */
static int owns_workers(void) {
    int32_t pid = getpid(), creator = LOAD(process, ACQUIRE);
    if (pid == creator) return 1;
    if (creator == -1 ||
        !__atomic_compare_exchange_n(&process, &creator, -1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return 0;
    workers = 0;
    STORE(sleepers, 0, SEQ_CST);
    STORE(waiting, 0, SEQ_CST);
    STORE(busy, 0, SEQ_CST);
    STORE(process, pid, SEQ_CST);
    return 1;
}

/* Publish a job for some threads, and wake those that sleep; return its generation. */
static uint32_t publish(
    Body *run, void *argument, int64_t n, int64_t parts, int32_t num_threads, int32_t *word
) {
    STORE(body, run, RELAXED);
    STORE(closure, argument, RELAXED);
    STORE(items, n, RELAXED);
    STORE(ranges, parts, RELAXED);
    STORE(job_word, word, RELAXED);
    STORE(done, 0, RELAXED);
    STORE(waiting, 0, RELAXED);
    int32_t previous = LOAD(threads, RELAXED);
    STORE(threads, num_threads, RELEASE);
    uint32_t job = LOAD(generation, RELAXED) + 1;
    int64_t first = 0;
    for (int64_t thread = 0; thread < num_threads; thread++) {
        int64_t end = parts * (thread + 1) / num_threads;
        STORE(queues[thread].word, (uint64_t)job << 32 | end << 16 | first, RELEASE);
        first = end;
    }
    STORE(generation, job, SEQ_CST);
    if (LOAD(sleepers, SEQ_CST) > 0) wake_all(&generation);
    if (num_threads > previous) wake_all(&threads);
    return job;
}

/* Wait until all ranges of the current job are done: spin, then sleep.  Workers cannot run handlers of signals,
 * so look for them here. */
static void await(int32_t parts, int32_t *word) {
    for (uint32_t tries = 0; LOAD(done, ACQUIRE) != parts; tries++) {
        if (LOAD(*word, RELAXED) & LOOK) dlc_stop_look(word);
        if (tries <= CALLER_SPINS) {
            pause_spinning();
            continue;
        }
        STORE(waiting, 1, SEQ_CST);
        int32_t so_far = LOAD(done, SEQ_CST);
        if (so_far != parts) nap_while(&done, so_far);
        tries = 0;
    }
}

__attribute__((weak)) void dlc_pool_set_num_threads(int32_t n) {
    STORE(limit, n > 0 ? n : 0, SEQ_CST);
}

__attribute__((weak)) int32_t dlc_pool_get_num_threads(void) {
    int32_t set = LOAD(limit, RELAXED);
    if (set > 0) return set;
    cpu_set_t mask;
    memset(&mask, 0, sizeof mask);
    sched_getaffinity(0, sizeof mask, &mask);
    const uint64_t *bits = (const uint64_t *)&mask;
    int32_t count = 0;
    for (unsigned i = 0; i < sizeof mask / sizeof *bits; i++) count += __builtin_popcountll(bits[i]);
    return count > 1 ? count : 1;
}

/* The number of threads of a call: as requested, within the limit, and at most one per item. */
static int32_t threads_for(int64_t n, int32_t requested) {
    int32_t maximum = LOAD(limit, RELAXED);
    if (requested < 1) requested = dlc_pool_get_num_threads();
    if (maximum > 0 && maximum < requested) requested = maximum;
    if (requested > MAX_THREADS) requested = MAX_THREADS;
    return requested < n ? requested : (int32_t)n;
}

/* Run items 0 to n - 1 as calls `run(argument, begin, end)` on disjoint ranges; return 0 when all are done.
 *
 * Nested calls, and calls while another thread has the pool, run all items on the calling thread.
 */
__attribute__((weak)) int32_t dlc_parallel_for(Body *run, void *argument, int64_t n, int32_t requested) {
    if (n < 1) return 0;
    int32_t num_threads = n > 1 ? threads_for(n, requested) : 1, idle = 0;
    if (num_threads < 2 || !owns_workers() ||
        !__atomic_compare_exchange_n(&busy, &idle, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        run(argument, 0, n);
        return 0;
    }
    int32_t available = start_workers(num_threads - 1);
    if (available == 0) {
        STORE(busy, 0, RELEASE);
        run(argument, 0, n);
        return 0;
    }
    if (available + 1 < num_threads) num_threads = available + 1;
    int64_t parts = (int64_t)num_threads * RANGES_PER_THREAD < n ? (int64_t)num_threads * RANGES_PER_THREAD : n;
    int32_t *word = dlc_stop_word();
    uint32_t job = publish(run, argument, n, parts, num_threads, word);
    ADD(done, work(job, 0, num_threads));
    await((int32_t)parts, word);
    STORE(busy, 0, RELEASE);
    return 0;
}
