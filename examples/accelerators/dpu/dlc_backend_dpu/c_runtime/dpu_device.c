/* The card's runtime in C, for exported models: a simulation.  The code of a region is a list of launches,
   and a shared library that a C compiler has made from the text of the kernels.  A real card's runtime would
   give the kernels to its driver, and enqueue each launch.

   DPU_MEMORY, if it is set, is the memory of the card in bytes. */
#define _GNU_SOURCE /* memfd_create */
#include "dlc_device.h"
#include "dlc_launches.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CARD_MEMORY 8589934592ull
enum { DPU_NO_MEMORY = 1, DPU_BAD_CODE, DPU_NO_ENTRY, DPU_BAD_ACCESS, DPU_BAD_KERNEL };

typedef int32_t kernel_function(const int64_t *dims, void *const *buffers, const int64_t *scalars,
                                const int64_t *sizes);

typedef struct {
  size_t size;
  unsigned char *bytes;
} block;

typedef struct program {
  dlc_launches list;
  void *library;
  kernel_function **kernels;
  const char *(*last_error)(void);
  struct entry *entries;
} program;

typedef struct entry {
  program *of;
  int64_t number;
  struct entry *next;
} entry;

typedef struct {
  pthread_mutex_t lock;
  unsigned long long used, most;
} card;

static __thread char reason[512];

static int fail(int code, const char *form, ...) {
  va_list args;
  va_start(args, form);
  vsnprintf(reason, sizeof reason, form, args);
  va_end(args);
  return code;
}

static const char *card_error(void *device) {
  (void)device;
  return reason;
}

static int card_open(const char *target, void **device) {
  const char *most = getenv("DPU_MEMORY");
  card *made = (card *)calloc(1, sizeof *made);
  (void)target;
  if (!made) return fail(DPU_NO_MEMORY, "the host has no memory");
  pthread_mutex_init(&made->lock, NULL);
  made->most = most ? strtoull(most, NULL, 10) : CARD_MEMORY;
  *device = made;
  return 0;
}

static void card_close(void *device) {
  pthread_mutex_destroy(&((card *)device)->lock);
  free(device);
}

/* Count memory that is allocated (or released, if `size` is negative); 0 if there is enough. */
static int count(card *c, long long size) {
  int full;
  pthread_mutex_lock(&c->lock);
  full = size > 0 && (unsigned long long)size > c->most - c->used;
  if (!full) c->used += (unsigned long long)size;
  pthread_mutex_unlock(&c->lock);
  return full;
}

static int card_alloc(void *device, size_t size, size_t align, dlc_memory *memory) {
  card *c = (card *)device;
  block *made;
  void *bytes = NULL;
  if (count(c, (long long)size))
    return fail(DPU_NO_MEMORY, "%llu of %llu bytes are in use, %llu more do not fit", c->used, c->most,
                (unsigned long long)size);
  made = (block *)malloc(sizeof *made);
  if (!made || posix_memalign(&bytes, align < sizeof(void *) ? sizeof(void *) : align, size)) {
    free(made);
    count(c, -(long long)size);
    return fail(DPU_NO_MEMORY, "the host has no memory for %llu bytes", (unsigned long long)size);
  }
  made->size = size;
  made->bytes = (unsigned char *)bytes;
  *memory = (dlc_memory)(uintptr_t)made;
  return 0;
}

static block *block_of(dlc_memory memory) { return (block *)(uintptr_t)memory; }

static void card_release(void *device, dlc_memory memory) {
  block *one = block_of(memory);
  count((card *)device, -(long long)one->size);
  free(one->bytes);
  free(one);
}

static int card_write(void *device, dlc_memory memory, size_t offset, const void *data, size_t size) {
  block *to = block_of(memory);
  (void)device;
  if (offset > to->size || size > to->size - offset) return fail(DPU_BAD_ACCESS, "a write beyond memory");
  memcpy(to->bytes + offset, data, size);
  return 0;
}

static int card_read(void *device, dlc_memory memory, size_t offset, void *data, size_t size) {
  const block *from = block_of(memory);
  (void)device;
  if (offset > from->size || size > from->size - offset) return fail(DPU_BAD_ACCESS, "a read beyond memory");
  memcpy(data, from->bytes + offset, size);
  return 0;
}

static int card_copy(void *device, dlc_memory memory, void *from, dlc_memory source, size_t size) {
  const block *given = block_of(source);
  (void)from;
  if (size > given->size) return fail(DPU_BAD_ACCESS, "a copy beyond memory");
  return card_write(device, memory, 0, given->bytes, size);
}

/* Load the library of the kernels from memory. */
static void *library_of(const void *code, size_t size) {
  char path[64];
  void *found = NULL;
  int file = memfd_create("dpu", MFD_CLOEXEC);
  size_t done = 0;
  if (file < 0) return NULL;
  while (done < size) {
    ssize_t written = write(file, (const char *)code + done, size - done);
    if (written <= 0) break;
    done += (size_t)written;
  }
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  if (done == size) found = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!found) {
    close(file);
    return NULL;
  }
  return found; /* the file stays open: the loader knows libraries by path */
}

static void card_unload(void *device, void *given) {
  program *p = (program *)given;
  (void)device;
  while (p->entries) {
    entry *one = p->entries;
    p->entries = one->next;
    free(one);
  }
  free(p->kernels); /* the library stays: threads have stacks of its fibres */
  free(p);
}

static int card_load(void *device, const char *format, const void *code, size_t size, void **made) {
  program *p;
  int64_t i;
  if (strcmp(format, "dpu-kernels")) return fail(DPU_BAD_CODE, "it does not run the format %s", format);
  p = (program *)calloc(1, sizeof *p);
  if (!p) return fail(DPU_NO_MEMORY, "the host has no memory");
  if (dlc_launches_open(&p->list, code, size)) {
    free(p);
    return fail(DPU_BAD_CODE, "the code has no list of launches of version %d", DLC_LAUNCHES_VERSION);
  }
  p->library = library_of(p->list.code, p->list.code_size);
  p->kernels = (kernel_function **)calloc((size_t)p->list.num_kernels + 1, sizeof *p->kernels);
  if (!p->library || !p->kernels) {
    const char *why = dlerror();
    card_unload(device, p);
    return fail(DPU_BAD_CODE, "the kernels cannot be loaded: %s", why ? why : "there is no memory");
  }
  for (i = 0; i < p->list.num_kernels; i++) {
    char symbol[256];
    snprintf(symbol, sizeof symbol, "%s__launch", dlc_launches_kernel(&p->list, i));
    *(void **)&p->kernels[i] = dlsym(p->library, symbol);
    if (!p->kernels[i]) {
      card_unload(device, p);
      return fail(DPU_BAD_CODE, "there is no kernel %s", symbol);
    }
  }
  *(void **)&p->last_error = dlsym(p->library, "dlc_simt_last_error");
  *made = p;
  return 0;
}

static int card_entry(void *device, void *given, const char *name, void **found) {
  program *p = (program *)given;
  entry *made = (entry *)calloc(1, sizeof *made);
  (void)device;
  if (!made) return fail(DPU_NO_MEMORY, "the host has no memory");
  made->of = p;
  made->number = dlc_launches_entry(&p->list, name);
  if (made->number < 0) {
    free(made);
    return fail(DPU_NO_ENTRY, "there is no entry point %s", name);
  }
  made->next = p->entries;
  p->entries = made;
  *found = made;
  return 0;
}

typedef struct {
  const program *of;
  const dlc_memory *buffers;
  size_t count;
} call;

static int start(void *context, const dlc_launch *launch) {
  const call *c = (const call *)context;
  int64_t dims[6], *sizes = (int64_t *)calloc(launch->num_buffers + 1, sizeof *sizes);
  void **pointers = (void **)calloc(launch->num_buffers + 1, sizeof *pointers);
  int status = 0;
  size_t i;
  if (!sizes || !pointers) status = fail(DPU_NO_MEMORY, "the host has no memory");
  for (i = 0; !status && i < launch->num_buffers; i++) {
    const dlc_launch_window *w = launch->buffers + i;
    const block *b = w->buffer < (int64_t)c->count ? block_of(c->buffers[w->buffer]) : NULL;
    if ((b ? (int64_t)b->size : 0) < w->offset + w->size)
      status = fail(DPU_BAD_ACCESS, "%s would access memory outside of its buffers", launch->name);
    else
      pointers[i] = b ? b->bytes + w->offset : NULL;
    sizes[i] = w->size;
  }
  for (i = 0; i < 3; i++) {
    dims[i] = launch->groups[i];
    dims[3 + i] = launch->threads[i];
  }
  if (!status && c->of->kernels[launch->kernel](dims, pointers, launch->scalars, sizes))
    status = fail(DPU_BAD_KERNEL, "kernel %s failed: %s", launch->name,
                  c->of->last_error ? c->of->last_error() : "no reason is known");
  free(sizes);
  free(pointers);
  return status;
}

static int card_launch(void *device, void *given, const dlc_memory *buffers, size_t num_buffers,
                       const int64_t *scalars, size_t num_scalars, int threads) {
  const entry *e = (const entry *)given;
  call c;
  int status;
  (void)device;
  (void)threads;
  c.of = e->of;
  c.buffers = buffers;
  c.count = num_buffers;
  status = dlc_launches_run(&e->of->list, e->number, scalars, num_scalars, start, &c);
  return status < 0 ? fail(DPU_BAD_CODE, "the list of launches cannot be run (%d)", status) : status;
}

static int card_wait(void *device) {
  (void)device;
  return 0; /* launches return when they have finished */
}

const dlc_device_api *dpu_device_api(void);
const dlc_device_api *dpu_device_api(void) {
  static const dlc_device_api api = {
      DLC_DEVICE_VERSION, sizeof(dlc_device_api), "dpu",      card_open,   card_close,
      card_alloc,         card_release,           card_write, card_read,   card_load,
      card_unload,        card_entry,             card_launch, card_wait,  card_error,
      card_copy};
  return &api;
}
