/* The C runtime of the test's card: memory behind numbers, and a queue that a thread works off.

   CARD_FAIL names a request that fails: open, alloc, write, read, load, entry, launch, kernel, wait; with a
   number after a colon, only that one (from 1) fails.  CARD_LOG is a file that the requests are appended to. */
#include "dlc_device.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef CARD_VERSION
#define CARD_VERSION DLC_DEVICE_VERSION
#endif
#ifndef CARD_NAME
#define CARD_NAME "card"
#define CARD_COPY card_copy
#endif
#define BLOCKS 4096
#define MASK 0x5ca1ab1e00000000ull
#define MOST 64

typedef struct job {
  struct job *next;
  void *entry;
  uint64_t buffers[MOST];
  int64_t scalars[MOST];
  size_t num_scalars;
  uint64_t to, from; /* of a copy or a release */
  size_t size, offset;
  void *data; /* of a write */
  int kind;   /* 0 launch, 1 write, 2 release, 3 copy */
  struct card *source;
} job;

typedef struct card {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pthread_t worker;
  job *first, *last;
  int busy, stopped, failed;
  char why[128];
  unsigned char *blocks[BLOCKS];
  size_t sizes[BLOCKS];
} card;

typedef struct {
  char name[32];
  const int64_t *words;
} program;

static __thread char reason[256];

static int fail(int code, const char *form, ...) {
  va_list args;
  va_start(args, form);
  vsnprintf(reason, sizeof reason, form, args);
  va_end(args);
  return code;
}

static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

/* Log a request; whether it has to fail. */
static int must_fail(const char *what) {
  static int seen;
  const char *wanted = getenv("CARD_FAIL"), *path = getenv("CARD_LOG");
  size_t length = strlen(what);
  int found = 0;
  pthread_mutex_lock(&counting);
  if (path) {
    FILE *log = fopen(path, "a");
    if (log) {
      fprintf(log, "%s\n", what);
      fclose(log);
    }
  }
  if (wanted && !strncmp(wanted, what, length) && (!wanted[length] || wanted[length] == ':'))
    found = !wanted[length] || ++seen == atoi(wanted + length + 1);
  pthread_mutex_unlock(&counting);
  return found;
}

static int index_of(uint64_t memory) { return (int)(memory ^ MASK); }

static void relu(const float *a, float *to, int64_t count) {
  int64_t i;
  for (i = 0; i < count; i++) to[i] = a[i] > 0 ? a[i] : 0;
}

/* A program: inputs, constants, operations, results, rows (-1: the first scalar); then for each value its
   columns; for each constant its offset in floats and its rows; operations (kind, a, b); results; floats. */
static int run(card *c, const job *j) {
  const int64_t *w = ((const program *)j->entry)->words, *columns = w + 5;
  const int64_t ins = w[0], consts = w[1], ops = w[2], results = w[3], rows = w[4] < 0 ? j->scalars[0] : w[4];
  const int64_t *constants = columns + ins + consts + ops, *op = constants + 2 * consts;
  const int64_t *result = op + 3 * ops;
  const float *floats = (const float *)(result + results);
  const float *values[MOST];
  float *owned[MOST] = {NULL};
  int64_t i, r, n, k;
  if (must_fail("kernel")) return 1;
  for (i = 0; i < ins; i++)
    values[i] = j->buffers[i] ? (const float *)c->blocks[index_of(j->buffers[i])] : NULL;
  for (i = 0; i < consts; i++) values[ins + i] = floats + constants[2 * i];
  for (i = 0; i < ops; i++, op += 3) {
    const int64_t at = ins + consts + i, cols = columns[at];
    const float *a = values[op[1]], *b = values[op[2]];
    float *to = owned[i] = malloc((size_t)(rows * cols) * sizeof *to + 1);
    values[at] = to;
    if (op[0] == 0) { /* a product with a constant */
      for (r = 0; r < rows; r++)
        for (n = 0; n < cols; n++) {
          float sum = 0;
          for (k = 0; k < columns[op[1]]; k++) sum += a[r * columns[op[1]] + k] * b[k * cols + n];
          to[r * cols + n] = sum;
        }
    } else if (op[0] == 1) { /* a sum; a constant has one row */
      const int whole = op[2] < ins || op[2] >= ins + consts;
      for (r = 0; r < rows; r++)
        for (n = 0; n < cols; n++) to[r * cols + n] = a[r * cols + n] + b[whole ? r * cols + n : n];
    } else {
      relu(a, to, rows * cols);
    }
  }
  for (i = 0; i < results; i++) {
    const int64_t from = result[i];
    if (rows * columns[from] > 0)
      memcpy(c->blocks[index_of(j->buffers[ins + i])], values[from],
             (size_t)(rows * columns[from]) * sizeof(float));
  }
  for (i = 0; i < ops; i++) free(owned[i]);
  return 0;
}

static void *work(void *given) {
  card *c = (card *)given;
  pthread_mutex_lock(&c->lock);
  for (;;) {
    job *j = c->first;
    if (!j) {
      if (c->stopped) break;
      pthread_cond_wait(&c->changed, &c->lock);
      continue;
    }
    c->first = j->next;
    if (!c->first) c->last = NULL;
    c->busy = 1;
    pthread_mutex_unlock(&c->lock);
    if (j->kind == 0 && run(c, j)) {
      pthread_mutex_lock(&c->lock);
      c->failed = 1;
      snprintf(c->why, sizeof c->why, "a kernel of %s failed", ((program *)j->entry)->name);
      pthread_mutex_unlock(&c->lock);
    }
    if (j->kind == 1) memcpy(c->blocks[index_of(j->to)] + j->offset, j->data, j->size);
    if (j->kind == 3) memcpy(c->blocks[index_of(j->to)], j->source->blocks[index_of(j->from)], j->size);
    pthread_mutex_lock(&c->lock);
    if (j->kind == 2) {
      free(c->blocks[index_of(j->to)]);
      c->blocks[index_of(j->to)] = NULL;
    }
    free(j->data);
    free(j);
    c->busy = 0;
    pthread_cond_broadcast(&c->changed);
  }
  pthread_mutex_unlock(&c->lock);
  return NULL;
}

static void submit(card *c, job *j) {
  pthread_mutex_lock(&c->lock);
  if (c->last)
    c->last->next = j;
  else
    c->first = j;
  c->last = j;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
}

/* Wait until the queue is empty. */
static int drain(card *c) {
  int failed;
  pthread_mutex_lock(&c->lock);
  while (c->first || c->busy) pthread_cond_wait(&c->changed, &c->lock);
  failed = c->failed;
  c->failed = 0;
  if (failed) fail(7, "%s", c->why);
  pthread_mutex_unlock(&c->lock);
  return failed ? 7 : 0;
}

static int card_open(const char *target, void **device) {
  card *c;
  if (must_fail("open")) return fail(1, "there is no card for '%s'", target);
  c = (card *)calloc(1, sizeof *c);
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->changed, NULL);
  pthread_create(&c->worker, NULL, work, c);
  *device = c;
  return 0;
}

static void card_close(void *device) {
  card *c = (card *)device;
  int i;
  must_fail("close");
  pthread_mutex_lock(&c->lock);
  c->stopped = 1;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
  pthread_join(c->worker, NULL);
  for (i = 0; i < BLOCKS; i++)
    if (c->blocks[i]) fprintf(stderr, "block %d was not released\n", i);
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->changed);
  free(c);
}

static int card_alloc(void *device, size_t size, size_t align, dlc_memory *memory) {
  card *c = (card *)device;
  int i = 1;
  (void)align;
  if (must_fail("alloc")) return fail(2, "the card's memory is full");
  pthread_mutex_lock(&c->lock);
  while (i < BLOCKS && c->blocks[i]) i++;
  if (i < BLOCKS) {
    c->blocks[i] = (unsigned char *)malloc(size);
    c->sizes[i] = size;
    memset(c->blocks[i], 0xff, size); /* NaN */
  }
  pthread_mutex_unlock(&c->lock);
  *memory = (uint64_t)i ^ MASK;
  return i < BLOCKS ? 0 : fail(2, "there are too many blocks");
}

static void card_release(void *device, dlc_memory memory) {
  job *j = (job *)calloc(1, sizeof *j);
  j->kind = 2;
  j->to = memory;
  submit((card *)device, j);
}

static int card_write(void *device, dlc_memory memory, size_t offset, const void *data, size_t size) {
  job *j;
  if (must_fail("write")) return fail(3, "a copy to the card was interrupted");
  j = (job *)calloc(1, sizeof *j);
  j->kind = 1;
  j->to = memory;
  j->offset = offset;
  j->size = size;
  j->data = malloc(size);
  memcpy(j->data, data, size);
  submit((card *)device, j);
  return 0;
}

static int card_read(void *device, dlc_memory memory, size_t offset, void *data, size_t size) {
  card *c = (card *)device;
  int status;
  if (must_fail("read")) return fail(4, "a copy from the card was interrupted");
  status = drain(c);
  if (!status) memcpy(data, c->blocks[index_of(memory)] + offset, size);
  return status;
}

__attribute__((unused)) static int card_copy(void *device, dlc_memory memory, void *from, dlc_memory source, size_t size) {
  job *j = (job *)calloc(1, sizeof *j);
  int status = drain((card *)from);
  must_fail("copy");
  j->kind = 3;
  j->to = memory;
  j->from = source;
  j->source = (card *)from;
  j->size = size;
  submit((card *)device, j);
  if (!status) status = drain((card *)device);
  return status;
}

static int card_load(void *device, const char *format, const void *code, size_t size, void **made) {
  program *p;
  (void)device;
  if (must_fail("load") || strcmp(format, "card-graph") || size < 40) return fail(5, "the code is too new");
  p = (program *)calloc(1, sizeof *p);
  p->words = (const int64_t *)code;
  *made = p;
  return 0;
}

static void card_unload(void *device, void *given) {
  (void)device;
  free(given);
}

static int card_entry(void *device, void *given, const char *name, void **entry) {
  (void)device;
  if (must_fail("entry")) return fail(6, "there is no entry point %s", name);
  snprintf(((program *)given)->name, sizeof ((program *)given)->name, "%s", name);
  *entry = given;
  return 0;
}

static int card_launch(void *device, void *entry, const dlc_memory *buffers, size_t num_buffers,
                       const int64_t *scalars, size_t num_scalars, int threads) {
  job *j;
  (void)threads;
  if (must_fail("launch")) return fail(-8, "the card was removed");
  if (num_buffers > MOST || num_scalars > MOST) return fail(9, "too many arguments");
  j = (job *)calloc(1, sizeof *j);
  j->entry = entry;
  memcpy(j->buffers, buffers, num_buffers * sizeof *buffers);
  if (num_scalars) memcpy(j->scalars, scalars, num_scalars * sizeof *scalars);
  submit((card *)device, j);
  return 0;
}

static int card_wait(void *device) {
  if (must_fail("wait")) return fail(10, "the card does not answer");
  return drain((card *)device);
}

static const char *card_error(void *device) {
  (void)device;
  return reason;
}

const dlc_device_api *card_device_api(void);
const dlc_device_api *card_device_api(void) {
  static const dlc_device_api api = {
      CARD_VERSION, sizeof(dlc_device_api), CARD_NAME, card_open, card_close, card_alloc, card_release, card_write,
      card_read, card_load, card_unload, card_entry, card_launch, card_wait, card_error, CARD_COPY};
  return &api;
}
