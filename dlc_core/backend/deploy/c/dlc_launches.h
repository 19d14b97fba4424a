/* dlc_launches.h: read the launches of code for devices that run kernels.  C99 and C++.
   SPDX-License-Identifier: Apache-2.0

   The code of a `LaunchCodegen` is a text of kernels, and a list of the launches of each entry point.  The
   function `pack_launches` in Python packs both for the C runtime of a device (`DeviceRuntime.code`).  The
   integers of a launch are expressions over the integers of the call.

     dlc_launches list;
     if (dlc_launches_open(&list, code, size)) ...
     entry = dlc_launches_entry(&list, "main");
     status = dlc_launches_run(&list, entry, scalars, num_scalars, start, context);

   `start` is called for each launch, in order.  The functions allocate memory only during a run.  Names with
   two underscores are internal. */
#ifndef DLC_LAUNCHES_H
#define DLC_LAUNCHES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define DLC_LAUNCHES_VERSION 1
#define DLC_LAUNCHES_MALFORMED (-1)
#define DLC_LAUNCHES_NO_MEMORY (-2)
#define DLC_LAUNCHES_NO_ENTRY (-3)
#define DLC_LAUNCHES_SCALARS (-4) /* the call has another number of integers */
#define DLC_LAUNCHES_SIZES (-5)   /* a launch has negative sizes */

/* Bytes of a buffer of the entry point. */
typedef struct {
  int64_t buffer, offset, size;
} dlc_launch_window;

/* A launch of a kernel.  `order` has a letter for each parameter: b for a buffer, s for an integer. */
typedef struct {
  int64_t kernel; /* its number */
  const char *name, *order;
  int64_t groups[3], threads[3];
  const dlc_launch_window *buffers;
  const int64_t *scalars;
  size_t num_buffers, num_scalars;
  int64_t shared_bytes;
} dlc_launch;

/* Start a launch; another result than 0 ends the run. */
typedef int (*dlc_launch_start)(void *context, const dlc_launch *launch);

typedef struct {
  const int64_t *words;
  const char *texts;
  const void *code; /* that of the kernels */
  size_t code_size;
  int64_t num_kernels, num_entries;
} dlc_launches;

enum {
  DLC_LAUNCHES_WORDS = 1, DLC_LAUNCHES_CODE, DLC_LAUNCHES_EXPRS, DLC_LAUNCHES_KERNELS, DLC_LAUNCHES_ENTRIES,
  DLC_LAUNCHES_EXPRS_AT, DLC_LAUNCHES_KERNELS_AT, DLC_LAUNCHES_ENTRIES_AT, DLC_LAUNCHES_TEXTS_AT,
  DLC_LAUNCHES_BUFFERS, DLC_LAUNCHES_SCALARS_MOST, DLC_LAUNCHES_HEAD
};

/* Read packed code, which must stay valid and be aligned to 8 bytes. */
static inline int dlc_launches_open(dlc_launches *list, const void *code, size_t size) {
  static const char magic[8] = {'D', 'L', 'C', 'L', 'N', 'C', 'H', '0' + DLC_LAUNCHES_VERSION};
  const int64_t *words = (const int64_t *)code;
  size_t begin;
  if (size < DLC_LAUNCHES_HEAD * sizeof *words || memcmp(code, magic, sizeof magic))
    return DLC_LAUNCHES_MALFORMED;
  begin = ((size_t)words[DLC_LAUNCHES_WORDS] * sizeof *words + 63) / 64 * 64;
  if (begin > size || (size_t)words[DLC_LAUNCHES_CODE] != size - begin) return DLC_LAUNCHES_MALFORMED;
  list->words = words;
  list->texts = (const char *)(words + words[DLC_LAUNCHES_TEXTS_AT]);
  list->code = (const char *)code + begin;
  list->code_size = size - begin;
  list->num_kernels = words[DLC_LAUNCHES_KERNELS];
  list->num_entries = words[DLC_LAUNCHES_ENTRIES];
  return 0;
}

/* The name of a kernel. */
static inline const char *dlc_launches_kernel(const dlc_launches *list, int64_t kernel) {
  return list->texts + list->words[list->words[DLC_LAUNCHES_KERNELS_AT] + 5 * kernel];
}

/* The number of an entry point; negative if there is none. */
static inline int64_t dlc_launches_entry(const dlc_launches *list, const char *name) {
  int64_t i;
  for (i = 0; i < list->num_entries; i++)
    if (!strcmp(list->texts + list->words[list->words[DLC_LAUNCHES_ENTRIES_AT] + 6 * i], name)) return i;
  return DLC_LAUNCHES_NO_ENTRY;
}

static inline int64_t dlc_launches__div(int64_t a, int64_t b) {
  int64_t q;
  if (b == 0 || b == -1) return (int64_t)((uint64_t)a * (uint64_t)b);
  q = a / b;
  return a % b && (a < 0) != (b < 0) ? q - 1 : q;
}

/* The value of an expression, from those of its operands. */
static inline int64_t dlc_launches__value(const int64_t *row, const int64_t *v, int64_t old) {
  const int64_t a = row[0] > 1 ? v[row[1]] : 0, b = row[0] > 4 ? v[row[2]] : 0;
  switch (row[0]) {
    case 0: return row[1]; /* a constant */
    case 1: return old;    /* a variable */
    case 2: return -a;
    case 3: return !a;
    case 4: return a ? v[row[2]] : v[row[3]];
    case 5: return a + b;
    case 6: return a - b;
    case 7: return a * b;
    case 8: return dlc_launches__div(a, b);
    case 9: return a - dlc_launches__div(a, b) * b;
    case 10: return b && b != -1 ? a / b : (int64_t)((uint64_t)a * (uint64_t)b);
    case 11: return b && b != -1 ? a % b : 0;
    case 12: return a < b ? a : b;
    case 13: return a > b ? a : b;
    case 14: return a == b;
    case 15: return a != b;
    case 16: return a < b;
    case 17: return a <= b;
    case 18: return a > b;
    case 19: return a >= b;
    case 20: return a && b;
    default: return a || b;
  }
}

typedef struct {
  const dlc_launches *list;
  int64_t *values, *scalars;
  dlc_launch_window *windows;
  dlc_launch_start start;
  void *context;
} dlc_launches__call;

static inline void dlc_launches__evaluate(const dlc_launches__call *call) {
  const int64_t *words = call->list->words, *row = words + words[DLC_LAUNCHES_EXPRS_AT];
  int64_t i;
  for (i = 0; i < words[DLC_LAUNCHES_EXPRS]; i++, row += 4)
    call->values[i] = dlc_launches__value(row, call->values, call->values[i]);
}

static inline int dlc_launches__one(dlc_launches__call *call, const int64_t *step) {
  const dlc_launches *list = call->list;
  const int64_t *kernel = list->words + list->words[DLC_LAUNCHES_KERNELS_AT] + 5 * step[1], *v = call->values;
  dlc_launch launch;
  int64_t i;
  int empty = 0, negative = 0;
  launch.kernel = step[1];
  launch.name = list->texts + kernel[0];
  launch.order = list->texts + kernel[3];
  launch.num_buffers = (size_t)kernel[1];
  launch.num_scalars = (size_t)kernel[2];
  launch.shared_bytes = kernel[4];
  step += 2;
  for (i = 0; i < 6; i++) {
    int64_t extent = v[*step++];
    empty |= !extent;
    negative |= extent < 0;
    if (i < 3)
      launch.groups[i] = extent;
    else
      launch.threads[i - 3] = extent;
  }
  for (i = 0; i < kernel[1]; i++, step += 3) {
    call->windows[i].buffer = step[0];
    call->windows[i].offset = v[step[1]];
    call->windows[i].size = v[step[2]];
    negative |= v[step[1]] < 0 || v[step[2]] < 0;
  }
  for (i = 0; i < kernel[2]; i++) call->scalars[i] = v[*step++];
  launch.buffers = call->windows;
  launch.scalars = call->scalars;
  if (negative) return DLC_LAUNCHES_SIZES;
  return empty ? 0 : call->start(call->context, &launch);
}

/* Run steps: 0 is a launch, 1 a loop, 2 a branch; each begins with its kind, and has its length. */
static inline int dlc_launches__steps(dlc_launches__call *call, const int64_t *step, int64_t count) {
  const int64_t *end = step + count;
  int status = 0;
  while (step < end && !status) {
    if (step[0] == 0) {
      const int64_t *words = call->list->words;
      const int64_t *kernel = words + words[DLC_LAUNCHES_KERNELS_AT] + 5 * step[1];
      status = dlc_launches__one(call, step);
      step += 2 + 6 + 3 * kernel[1] + kernel[2];
    } else if (step[0] == 1) { /* variable, begin, extent, words of the body */
      const int64_t begin = call->values[step[2]], stop = begin + call->values[step[3]];
      int64_t i;
      for (i = begin; i < stop && !status; i++) {
        call->values[step[1]] = i;
        dlc_launches__evaluate(call);
        status = dlc_launches__steps(call, step + 5, step[4]);
      }
      step += 5 + step[4];
    } else { /* condition, words of each side */
      const int64_t *side = step + 4 + (call->values[step[1]] ? 0 : step[2]);
      status = dlc_launches__steps(call, side, call->values[step[1]] ? step[2] : step[3]);
      step += 4 + step[2] + step[3];
    }
  }
  return status;
}

/* Call `start` for each launch of an entry point.  Returns 0, its result, or an error from above. */
static inline int dlc_launches_run(const dlc_launches *list, int64_t entry, const int64_t *scalars,
                                   size_t num_scalars, dlc_launch_start start, void *context) {
  const int64_t *words = list->words, *one;
  dlc_launches__call call;
  int status = DLC_LAUNCHES_NO_MEMORY;
  size_t i;
  if (entry < 0 || entry >= list->num_entries) return DLC_LAUNCHES_NO_ENTRY;
  one = words + words[DLC_LAUNCHES_ENTRIES_AT] + 6 * entry;
  if ((size_t)one[2] != num_scalars) return DLC_LAUNCHES_SCALARS;
  call.list = list;
  call.start = start;
  call.context = context;
  call.values = (int64_t *)calloc((size_t)words[DLC_LAUNCHES_EXPRS] + 1, sizeof *call.values);
  call.scalars = (int64_t *)calloc((size_t)words[DLC_LAUNCHES_SCALARS_MOST] + 1, sizeof *call.scalars);
  call.windows = (dlc_launch_window *)calloc((size_t)words[DLC_LAUNCHES_BUFFERS] + 1, sizeof *call.windows);
  if (call.values && call.scalars && call.windows) {
    for (i = 0; i < num_scalars; i++) call.values[words[one[3] + (int64_t)i]] = scalars[i];
    dlc_launches__evaluate(&call);
    status = dlc_launches__steps(&call, words + one[4], one[5]);
  }
  free(call.values);
  free(call.scalars);
  free(call.windows);
  return status;
}

#endif
