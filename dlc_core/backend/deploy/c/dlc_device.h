/* dlc_device.h: the interface between compiled models and the C runtime of a device.  C99 and C++.
   SPDX-License-Identifier: Apache-2.0

   The package of a device implements it; exported models and dlc_runtime.c call it.  The package defines one
   function that returns the table of its functions, and names it in its target kind (`DeviceRuntime`):

     const dlc_device_api *npu_device_api(void);

   Functions that can fail return 0, or another number that is the runtime's own error code; `error` then has
   the reason.  All functions may be called by several threads at the same time.

   Requests to one device take effect in the order in which they are made: `launch`, `write`, `copy` and
   `release` may return before they have finished.  `read` and `wait` return when all earlier requests have.

   Within a version of the interface the table only grows at its end, and callers check `size` before they
   use a function that was added. */
#ifndef DLC_DEVICE_H
#define DLC_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#define DLC_DEVICE_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

/* Memory of a device: any number but 0 that the runtime chooses, such as an address. */
typedef uint64_t dlc_memory;

typedef struct dlc_device_api {
  uint32_t version; /* DLC_DEVICE_VERSION of the header that the runtime was compiled with */
  uint32_t size;    /* sizeof(dlc_device_api) of that header */
  const char *name; /* of the device, as in `DeviceRuntime` */

  /* Open a device.  `target` is the target of the compile as text, such as "npu -cores=2". */
  int (*open)(const char *target, void **device);
  /* Close a device.  All of its programs are unloaded, and all of its memory is released. */
  void (*close)(void *device);

  /* Allocate `size` bytes (1 or more), with an alignment of `align`. */
  int (*alloc)(void *device, size_t size, size_t align, dlc_memory *memory);
  /* Release memory.  Earlier launches may still use it. */
  void (*release)(void *device, dlc_memory memory);
  /* Copy bytes to the device.  The caller may reuse `data` when it returns. */
  int (*write)(void *device, dlc_memory memory, size_t offset, const void *data, size_t size);
  /* Copy bytes from the device, after all earlier launches. */
  int (*read)(void *device, dlc_memory memory, size_t offset, void *data, size_t size);

  /* Load the code of a region, in the artefact format `format`.  `code` is aligned to 64 bytes, and stays
     valid until the program is unloaded. */
  int (*load)(void *device, const char *format, const void *code, size_t size, void **program);
  /* Unload a program.  None of its launches is running. */
  void (*unload)(void *device, void *program);
  /* Find an entry point of a program by name.  It is valid until the program is unloaded. */
  int (*entry)(void *device, void *program, const char *name, void **entry);
  /* Launch an entry point: its inputs, its outputs, its weights, its scratch memory, and then integers.
     Memory without bytes is 0.  `threads` is the maximum number of threads of the caller; devices with
     threads of their own ignore it. */
  int (*launch)(void *device, void *entry, const dlc_memory *buffers, size_t num_buffers,
                const int64_t *scalars, size_t num_scalars, int threads);
  /* Wait for all launches.  Fails if one of them has failed. */
  int (*wait)(void *device);

  /* The reason of the last failure in this thread; `device` is NULL if it was that of `open`. */
  const char *(*error)(void *device);

  /* Copy bytes between memories of two devices of this runtime, or of one.  It takes effect after earlier and
     before later requests to both.  May be NULL: then values are copied through the host. */
  int (*copy)(void *device, dlc_memory memory, void *from, dlc_memory source, size_t size);
} dlc_device_api;

#ifdef __cplusplus
}
#endif
#endif
