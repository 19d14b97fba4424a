/* dlc_host.h: what exported host programs share: devices, loaded code, and memory of calls.  C99 and C++.
   SPDX-License-Identifier: Apache-2.0

   It is part of exported code and no interface.  Devices are opened, and code and constants are loaded, by the
   first call.  Calls of several threads share them; each call takes a frame, which has the memory of its
   values on devices, and returns it for later calls.  Define DLC_HOST_SINGLE_THREAD where there are no POSIX
   threads: then one thread at a time may call a model. */
#ifndef DLC_HOST_H
#define DLC_HOST_H

#include "dlc_device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef DLC_HOST_SINGLE_THREAD
#define DLC_HOST_LOCAL
#define DLC_HOST_MUTEX
#define DLC_HOST_UNLOCKED
#define DLC_HOST_LOCK(host) ((void)(host))
#define DLC_HOST_UNLOCK(host) ((void)(host))
#else
#include <pthread.h>
#define DLC_HOST_LOCAL __thread
#define DLC_HOST_MUTEX pthread_mutex_t lock;
#define DLC_HOST_UNLOCKED PTHREAD_MUTEX_INITIALIZER,
#define DLC_HOST_LOCK(host) pthread_mutex_lock(&(host)->lock)
#define DLC_HOST_UNLOCK(host) pthread_mutex_unlock(&(host)->lock)
#endif

#ifdef __GNUC__
#define DLC_HOST_PUBLIC __attribute__((visibility("default")))
#else
#define DLC_HOST_PUBLIC
#endif

#define DLC_HOST_OK 0
#define DLC_HOST_CHECK_FAILED 1  /* an index that is data was out of range */
#define DLC_HOST_DEVICE_FAILED 2 /* a device failed; there is a text */
#define DLC_HOST_ALIGN 64
#define DLC_HOST_RECORD 32 /* bytes of the record of failed checks */
#define DLC_HOST_TEXT 512

/* A device.  `find` returns the table of its runtime; without it, a runtime that opens the model sets `api`. */
struct dlc_host_device {
  const char *name, *target;
  const dlc_device_api *(*find)(void);
  const dlc_device_api *api;
  void *opened;
};

/* A region: its code, and its weights in the model's weights, or in memory that a runtime sets. */
struct dlc_host_region {
  const char *name, *section, *format, *entry;
  int32_t device;
  uint64_t code_offset, code_size, weights_offset, weights_size;
  const void *weights;
  void *program, *call;
  dlc_memory memory;
};

/* A constant of the model that a region reads. */
struct dlc_host_constant {
  int32_t device;
  uint64_t offset, size;
  dlc_memory memory;
};

/* The memory of one call on devices, by slot. */
struct dlc_host_frame {
  struct dlc_host_frame *next;
  dlc_memory *memory;
  uint64_t *size;
};

struct dlc_host {
  DLC_HOST_MUTEX
  int is_open;
  const uint8_t *code;
  struct dlc_host_device *devices;
  struct dlc_host_region *regions;
  struct dlc_host_constant *constants;
  const int32_t *slots; /* their devices */
  int32_t num_devices, num_regions, num_constants, num_slots;
  struct dlc_host_frame *frames; /* those that no call uses */
};

/* What a runtime that opens a library sets and calls: devices, and the weights of regions by their sections. */
struct dlc_host_table {
  uint32_t abi, num_devices, num_regions;
  const char *(*device)(uint32_t);
  void (*set_device)(uint32_t, const dlc_device_api *);
  const char *(*section)(uint32_t);
  uint64_t (*weights_size)(uint32_t);
  void (*set_weights)(uint32_t, const void *);
  int (*open)(const void *weights);
  void (*close)(void);
  const char *(*error)(void);
};

static inline int dlc_host_fail(char *text, const char *form, ...) {
  va_list args;
  va_start(args, form);
  vsnprintf(text, DLC_HOST_TEXT, form, args);
  va_end(args);
  return DLC_HOST_DEVICE_FAILED;
}

/* The failure of a request to a device, with its own text. */
static inline int dlc_host_failed(char *text, const struct dlc_host_device *device, const char *what, int code) {
  const char *why = device->api->error ? device->api->error(device->opened) : NULL;
  return dlc_host_fail(text, "device %s: %s failed with code %d: %s", device->name, what, code,
                       why && *why ? why : "the runtime gives no reason");
}

static inline int dlc_host_check_api(const struct dlc_host_device *device, char *text) {
  const dlc_device_api *api = device->api;
  if (!api)
    return dlc_host_fail(text, "device %s: its runtime is not there; register it before the model is opened",
                         device->name);
  if (api->version != DLC_DEVICE_VERSION)
    return dlc_host_fail(text, "device %s: its runtime has version %u of dlc_device.h, the model version %d",
                         device->name, (unsigned)api->version, DLC_DEVICE_VERSION);
  if (api->size < offsetof(dlc_device_api, copy))
    return dlc_host_fail(text, "device %s: the table of its runtime is too small", device->name);
  return DLC_HOST_OK;
}

/* Release a frame and its memory. */
static inline void dlc_host_free_frame(struct dlc_host *host, struct dlc_host_frame *frame) {
  int32_t i;
  for (i = 0; frame->memory && i < host->num_slots; i++)
    if (frame->memory[i]) {
      struct dlc_host_device *device = host->devices + host->slots[i];
      device->api->release(device->opened, frame->memory[i]);
    }
  free(frame->memory);
  free(frame->size);
  free(frame);
}

static inline void dlc_host_close_all(struct dlc_host *host) {
  int32_t i;
  while (host->frames) {
    struct dlc_host_frame *frame = host->frames;
    host->frames = frame->next;
    dlc_host_free_frame(host, frame);
  }
  for (i = 0; i < host->num_constants; i++) {
    struct dlc_host_constant *one = host->constants + i;
    struct dlc_host_device *device = host->devices + one->device;
    if (one->memory) device->api->release(device->opened, one->memory);
    one->memory = 0;
  }
  for (i = 0; i < host->num_regions; i++) {
    struct dlc_host_region *region = host->regions + i;
    struct dlc_host_device *device = host->devices + region->device;
    if (region->memory) device->api->release(device->opened, region->memory);
    if (region->program) device->api->unload(device->opened, region->program);
    region->memory = 0;
    region->program = region->call = NULL;
  }
  for (i = 0; i < host->num_devices; i++) {
    struct dlc_host_device *device = host->devices + i;
    if (device->opened) device->api->close(device->opened);
    device->opened = NULL;
  }
  host->is_open = 0;
}

/* Allocate memory of a device and write bytes to it. */
static inline int dlc_host_place(const struct dlc_host_device *device, const void *data, uint64_t size,
                                 dlc_memory *memory, char *text) {
  int code;
  if (!size) return DLC_HOST_OK;
  code = device->api->alloc(device->opened, (size_t)size, DLC_HOST_ALIGN, memory);
  if (code) {
    *memory = 0;
    return dlc_host_failed(text, device, "the allocation of constants", code);
  }
  code = device->api->write(device->opened, *memory, 0, data, (size_t)size);
  return code ? dlc_host_failed(text, device, "a copy to it", code) : DLC_HOST_OK;
}

static inline int dlc_host_open_all(struct dlc_host *host, const uint8_t *weights, char *text) {
  int32_t i;
  int code, status;
  for (i = 0; i < host->num_devices; i++) {
    struct dlc_host_device *device = host->devices + i;
    if (device->find) device->api = device->find();
    status = dlc_host_check_api(device, text);
    if (status) return status;
    code = device->api->open(device->target, &device->opened);
    if (code) {
      device->opened = NULL;
      return dlc_host_failed(text, device, "open", code);
    }
  }
  for (i = 0; i < host->num_regions; i++) {
    struct dlc_host_region *region = host->regions + i;
    struct dlc_host_device *device = host->devices + region->device;
    const void *data = region->weights ? region->weights : (const void *)(weights + region->weights_offset);
    const uint8_t *bytes = host->code + region->code_offset;
    code = device->api->load(device->opened, region->format, bytes, (size_t)region->code_size,
                             &region->program);
    if (code) {
      region->program = NULL;
      return dlc_host_failed(text, device, "the load of code", code);
    }
    code = device->api->entry(device->opened, region->program, region->entry, &region->call);
    if (code) return dlc_host_failed(text, device, "the search for an entry point", code);
    status = dlc_host_place(device, data, region->weights_size, &region->memory, text);
    if (status) return status;
  }
  for (i = 0; i < host->num_constants; i++) {
    struct dlc_host_constant *one = host->constants + i;
    status = dlc_host_place(host->devices + one->device, weights + one->offset, one->size, &one->memory, text);
    if (status) return status;
  }
  host->is_open = 1;
  return DLC_HOST_OK;
}

/* Open the devices, and load code and constants, unless that is done. */
static inline int dlc_host_open(struct dlc_host *host, const void *weights, char *text) {
  int status = DLC_HOST_OK;
  DLC_HOST_LOCK(host);
  if (!host->is_open) {
    status = dlc_host_open_all(host, (const uint8_t *)weights, text);
    if (status) dlc_host_close_all(host);
  }
  DLC_HOST_UNLOCK(host);
  return status;
}

/* Release everything; no call may be running.  A later call opens the devices again. */
static inline void dlc_host_close(struct dlc_host *host) {
  DLC_HOST_LOCK(host);
  dlc_host_close_all(host);
  DLC_HOST_UNLOCK(host);
}

/* A frame for a call; NULL if there is no memory. */
static inline struct dlc_host_frame *dlc_host_take(struct dlc_host *host, char *text) {
  struct dlc_host_frame *frame;
  size_t count = (size_t)host->num_slots + 1;
  DLC_HOST_LOCK(host);
  frame = host->frames;
  if (frame) host->frames = frame->next;
  DLC_HOST_UNLOCK(host);
  if (frame) return frame;
  frame = (struct dlc_host_frame *)calloc(1, sizeof *frame);
  if (frame) {
    frame->memory = (dlc_memory *)calloc(count, sizeof *frame->memory);
    frame->size = (uint64_t *)calloc(count, sizeof *frame->size);
    if (frame->memory && frame->size) return frame;
    free(frame->memory);
    free(frame->size);
    free(frame);
  }
  dlc_host_fail(text, "there is not enough memory");
  return NULL;
}

/* End a call: wait for the devices, and return its frame. */
static inline int dlc_host_end(struct dlc_host *host, struct dlc_host_frame *frame, int status, char *text) {
  int32_t i;
  for (i = 0; i < host->num_devices; i++) {
    struct dlc_host_device *device = host->devices + i;
    int code = device->api->wait(device->opened);
    if (code && !status) status = dlc_host_failed(text, device, "a launch", code);
  }
  DLC_HOST_LOCK(host);
  frame->next = host->frames;
  host->frames = frame;
  DLC_HOST_UNLOCK(host);
  return status;
}

/* Make a slot of a frame at least `size` bytes large. */
static inline int dlc_host_reserve(struct dlc_host *host, struct dlc_host_frame *frame, int32_t slot,
                                   int64_t size, char *text) {
  struct dlc_host_device *device = host->devices + host->slots[slot];
  int code;
  if (size < 0 || (uint64_t)size > SIZE_MAX / 2)
    return dlc_host_fail(text, "device %s: a value of an impossible size", device->name);
  if (frame->size[slot] >= (uint64_t)size) return DLC_HOST_OK;
  if (frame->memory[slot]) device->api->release(device->opened, frame->memory[slot]);
  frame->memory[slot] = 0;
  frame->size[slot] = 0;
  code = device->api->alloc(device->opened, (size_t)size, DLC_HOST_ALIGN, &frame->memory[slot]);
  if (code) {
    char what[64];
    frame->memory[slot] = 0;
    snprintf(what, sizeof what, "the allocation of %llu bytes", (unsigned long long)size);
    return dlc_host_failed(text, device, what, code);
  }
  frame->size[slot] = (uint64_t)size;
  return DLC_HOST_OK;
}

static inline int dlc_host_write(struct dlc_host *host, struct dlc_host_frame *frame, int32_t slot,
                                 const void *data, int64_t size, char *text) {
  struct dlc_host_device *device = host->devices + host->slots[slot];
  int code = size ? device->api->write(device->opened, frame->memory[slot], 0, data, (size_t)size) : 0;
  return code ? dlc_host_failed(text, device, "a copy to it", code) : DLC_HOST_OK;
}

static inline int dlc_host_read(struct dlc_host *host, struct dlc_host_frame *frame, int32_t slot, void *data,
                                int64_t size, char *text) {
  struct dlc_host_device *device = host->devices + host->slots[slot];
  int code = size ? device->api->read(device->opened, frame->memory[slot], 0, data, (size_t)size) : 0;
  return code ? dlc_host_failed(text, device, "a copy from it", code) : DLC_HOST_OK;
}

/* Copy between devices: directly if they have one runtime that can, else through `buffer`. */
static inline int dlc_host_move(struct dlc_host *host, struct dlc_host_frame *frame, int32_t to, int32_t from,
                                void *buffer, int64_t size, char *text) {
  struct dlc_host_device *a = host->devices + host->slots[to], *b = host->devices + host->slots[from];
  int status;
  if (!size) return DLC_HOST_OK;
  if (a->api == b->api && a->api->size >= sizeof(dlc_device_api) && a->api->copy) {
    int code = a->api->copy(a->opened, frame->memory[to], b->opened, frame->memory[from], (size_t)size);
    return code ? dlc_host_failed(text, a, "a copy from another device", code) : DLC_HOST_OK;
  }
  status = dlc_host_read(host, frame, from, buffer, size, text);
  return status ? status : dlc_host_write(host, frame, to, buffer, size, text);
}

static inline int dlc_host_launch(struct dlc_host *host, int32_t number, const dlc_memory *buffers,
                                  size_t num_buffers, const int64_t *scalars, size_t num_scalars, int threads,
                                  char *text) {
  struct dlc_host_region *region = host->regions + number;
  struct dlc_host_device *device = host->devices + region->device;
  int code = device->api->launch(device->opened, region->call, buffers, num_buffers, scalars, num_scalars,
                                 threads);
  if (code) {
    char what[128];
    snprintf(what, sizeof what, "the launch of %s", region->name);
    return dlc_host_failed(text, device, what, code);
  }
  return DLC_HOST_OK;
}

/* Add `first` to the number of a kernel in a record of failed checks, and copy the record to `to`. */
static inline int dlc_host_record(int64_t *to, const void *record, int64_t first) {
  int64_t found[4];
  memcpy(found, record, sizeof found);
  if (!found[0]) return DLC_HOST_OK;
  found[0] += first * 65536;
  memcpy(to, found, sizeof found);
  return DLC_HOST_CHECK_FAILED;
}

/* The check of a region whose scratch memory is in a slot. */
static inline int dlc_host_region_record(struct dlc_host *host, struct dlc_host_frame *frame, int32_t slot,
                                         int64_t *to, int64_t first, char *text) {
  int64_t record[4];
  int status = dlc_host_read(host, frame, slot, record, sizeof record, text);
  return status ? status : dlc_host_record(to, record, first);
}

#endif
