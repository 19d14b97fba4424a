/* dlc_runtime.h: run models that dlc has compiled, without Python.  C99 and C++.
   SPDX-License-Identifier: Apache-2.0

   A model is a file: `exe.save("model.dlc", library=True)` or `exe.export("model.so")`.

     dlc_model *model = dlc_open("model.dlc");
     dlc_session *session = dlc_session_new(model, NULL);
     int64_t shape[] = {1, 3, 224, 224};
     dlc_set_input(session, 0, image, shape, 4);
     if (dlc_run(session, 0) != 0) puts(dlc_error());
     const float *scores = dlc_get_output(session, 0, NULL);

   Build it with dlc_runtime.c (C11, it includes dlc_device.h), -ldl, -lm and -lpthread.  The file contains native code: opening it is
   as safe as loading a library of the same origin.

   Functions that can fail return NULL, or a negative number; dlc_error() then has the reason.  Threads may
   share a model.  A session has the arrays of one call: one thread at a time uses it.  Within a version of
   the interface (DLC_RUNTIME_VERSION) functions and structs only grow. */
#ifndef DLC_RUNTIME_H
#define DLC_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#define DLC_RUNTIME_VERSION 1
#define DLC_SYMBOLIC (-1) /* a size in `shape` that each call determines */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dlc_model dlc_model;
typedef struct dlc_session dlc_session;

/* An input or output of a function, owned by the model. */
typedef struct {
  const char *name;
  const char *dtype; /* "float32", "int8", "bfloat16", ... */
  size_t item_size;  /* bytes of an element */
  int ndim;
  const int64_t *shape;    /* `ndim` sizes; DLC_SYMBOLIC where it varies */
  const char *const *dims; /* `ndim` texts: the size, the name of a symbolic dim, or "?" */
} dlc_tensor;

/* The version of the library that is linked; compare it with DLC_RUNTIME_VERSION. */
int dlc_runtime_version(void);

/* The reason of the last failure in this thread; "" if there was none. */
const char *dlc_error(void);

/* Register the C runtime of a device, by the table that its function returns (dlc_device.h).  Files whose
   models have regions on the device need it when they are opened; exported libraries contain it. */
struct dlc_device_api;
int dlc_register_device(const struct dlc_device_api *api);

/* Open a .dlc file that has a library, or a library.  Checks format, version, sizes, the checksums of header
   and code, and the processor.  Opens the devices of its regions, and loads code and constants. */
dlc_model *dlc_open(const char *path);

/* Close a model after all of its sessions.  Code stays loaded, because its threads may be running.  Memory of
   devices is released with the last model of a library. */
void dlc_close(dlc_model *model);

/* The functions of a model.  Function 0 is the one that Python calls as exe(...). */
int dlc_num_functions(const dlc_model *model);
const char *dlc_function_name(const dlc_model *model, int function);
int dlc_num_inputs(const dlc_model *model, int function);
int dlc_num_outputs(const dlc_model *model, int function);
const dlc_tensor *dlc_input(const dlc_model *model, int function, int index);
const dlc_tensor *dlc_output(const dlc_model *model, int function, int index);

/* A session of the function with this name; NULL is function 0. */
dlc_session *dlc_session_new(dlc_model *model, const char *function);
void dlc_session_free(dlc_session *session);

/* The index of an input or output by name; -1 if there is none. */
int dlc_input_index(const dlc_session *session, const char *name);
int dlc_output_index(const dlc_session *session, const char *name);

/* Set an input: a row-major array, aligned to its elements.  It is not copied, and must stay valid until the
   last run.  dlc_run checks its shape. */
int dlc_set_input(dlc_session *session, int index, const void *data, const int64_t *shape, int ndim);

/* Where an output is written: `size` bytes of the caller.  NULL, the default, lets the session allocate it.
 */
int dlc_set_output(dlc_session *session, int index, void *data, size_t size);

/* Run on at most `threads` threads; 0 is all cores that the process may use.  Returns 0, or a negative
   number: then a check failed before anything ran, except for an index in the inputs' data that is out of
   range. */
int dlc_run(dlc_session *session, int threads);

/* An output of the last run, and its shape (`ndim` sizes) if `shape` is not NULL.  Valid until the next run,
   or until the session is freed. */
const void *dlc_get_output(const dlc_session *session, int index, const int64_t **shape);

#ifdef __cplusplus
}
#endif
#endif
