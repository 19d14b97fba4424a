/* dlc_runtime.c: see dlc_runtime.h.  SPDX-License-Identifier: Apache-2.0

   A .dlc file is a checked JSON header and sections (dlc_core/runtime/artefact/container.py).  The section
   `library` is a shared library without weights; it is loaded from a file in memory, and the weights are
   mapped from the section `weights`.  Libraries describe themselves by the table `dlc_library`, and their
   functions by JSON.  Nothing in a file is trusted before its checksum agrees, and sizes are checked before
   memory is read. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create */
#endif
#include "dlc_runtime.h"

#include "dlc_device.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ABI 1         /* the version of `struct table` */
#define DESCRIPTION 1 /* the version of a function's JSON */
#define SCHEMA 1      /* the version of the file format */
#define PREFIX 48     /* bytes before the header */
#define PAGE 4096     /* the alignment of sections */
#define MAX_HEADER (1u << 28)
#define MAX_DEPTH 64
#define MAX_NDIM 64
#define MAX_FUNCTIONS (1u << 16)
#define ALIGN 64
#define DLPACK_CPU 1
#define CHECK_FAILED 1  /* the status of a run with an index out of range, */
#define DEVICE_FAILED 2 /* or with a device that failed */
#define DEVICES 1       /* the version of `struct devices` */
#define MAX_DEVICES 64  /* that are registered */

static _Thread_local char error_text[1024];

static int fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(error_text, sizeof error_text, format, args);
  va_end(args);
  return -1;
}

static void *fail_null(const char *what, const char *path) {
  fail("%s: %s", path, what);
  return NULL;
}

const char *dlc_error(void) { return error_text; }
int dlc_runtime_version(void) { return DLC_RUNTIME_VERSION; }

/* SHA-256 (FIPS 180-4). */

static const uint32_t SHA_K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void sha_block(uint32_t *state, const uint8_t *p) {
  uint32_t w[64], s[8];
  int i;
  for (i = 0; i < 16; i++, p += 4)
    w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
  for (; i < 64; i++) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
           (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
  }
  memcpy(s, state, sizeof s);
  for (i = 0; i < 64; i++) {
    uint32_t t1 = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) +
                  ((s[4] & s[5]) ^ (~s[4] & s[6])) + SHA_K[i] + w[i];
    uint32_t t2 = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) +
                  ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += t1;
    s[0] = t1 + t2;
  }
  for (i = 0; i < 8; i++) state[i] += s[i];
}

static void sha_of(const uint8_t *data, size_t size, uint8_t digest[32]) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint8_t tail[128] = {0};
  size_t whole = size / 64 * 64, rest = size - whole, end = rest < 56 ? 64 : 128, i;
  for (i = 0; i < whole; i += 64) sha_block(state, data + i);
  if (rest) memcpy(tail, data + whole, rest);
  tail[rest] = 0x80;
  for (i = 0; i < 8; i++) tail[end - 1 - i] = (uint8_t)((uint64_t)size * 8 >> 8 * i);
  for (i = 0; i < end; i += 64) sha_block(state, tail + i);
  for (i = 0; i < 32; i++) digest[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}

static int is_digest(const uint8_t digest[32], const char *hex) {
  char text[65];
  int i;
  for (i = 0; i < 32; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
  return strcmp(text, hex) == 0;
}

/* JSON: values in one array; members of objects and items of arrays are linked. */

enum kind { J_NULL, J_BOOL, J_INT, J_REAL, J_TEXT, J_LIST, J_MAP };

typedef struct {
  enum kind kind;
  int32_t first, next; /* the first member, the next sibling; -1 is none */
  int64_t number;
  const char *text; /* of J_TEXT */
  const char *key;  /* if it is a member of an object */
} value;

typedef struct {
  const char *at, *end;
  char *texts; /* room for all texts, which are never longer than the JSON */
  value *values;
  int32_t count, room;
} json;

static int32_t json_value(json *j, int depth);

static void json_free(json *j) {
  free(j->texts);
  free(j->values);
  memset(j, 0, sizeof *j);
}

static void skip_space(json *j) {
  while (j->at < j->end && strchr(" \t\r\n", *j->at) && *j->at) j->at++;
}

static int32_t new_value(json *j, enum kind kind) {
  value *made;
  if (j->count == j->room) {
    int32_t room = j->room ? j->room * 2 : 256;
    made = room > j->room ? realloc(j->values, (size_t)room * sizeof *made) : NULL;
    if (!made) return -1;
    j->values = made;
    j->room = room;
  }
  made = j->values + j->count;
  memset(made, 0, sizeof *made);
  made->kind = kind;
  made->first = made->next = -1;
  return j->count++;
}

static int hex_digit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

static long unit(json *j) { /* the four digits of \uXXXX, or -1 */
  long found = 0;
  int i, digit;
  if (j->end - j->at < 4) return -1;
  for (i = 0; i < 4; i++) {
    digit = hex_digit(*j->at++);
    if (digit < 0) return -1;
    found = found * 16 + digit;
  }
  return found;
}

static char *put_utf8(char *to, unsigned long c) {
  if (c < 0x80) {
    *to++ = (char)c;
  } else if (c < 0x800) {
    *to++ = (char)(0xc0 | c >> 6);
    *to++ = (char)(0x80 | (c & 63));
  } else if (c < 0x10000) {
    *to++ = (char)(0xe0 | c >> 12);
    *to++ = (char)(0x80 | (c >> 6 & 63));
    *to++ = (char)(0x80 | (c & 63));
  } else {
    *to++ = (char)(0xf0 | c >> 18);
    *to++ = (char)(0x80 | (c >> 12 & 63));
    *to++ = (char)(0x80 | (c >> 6 & 63));
    *to++ = (char)(0x80 | (c & 63));
  }
  return to;
}

static const char *json_text(json *j) { /* after the opening quote; NULL if it is malformed */
  static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
  char *begin = j->texts, *to = begin;
  while (j->at < j->end && *j->at != '"') {
    char c = *j->at++;
    if ((unsigned char)c < 0x20) return NULL;
    if (c != '\\') {
      *to++ = c;
      continue;
    }
    if (j->at == j->end) return NULL;
    c = *j->at++;
    if (c == 'u') {
      long high = unit(j), low = 0;
      if (high <= 0) return NULL; /* a zero would end the text */
      if (high >= 0xd800 && high < 0xdc00 && j->end - j->at >= 6 && j->at[0] == '\\' && j->at[1] == 'u') {
        j->at += 2;
        low = unit(j);
        if (low < 0xdc00 || low > 0xdfff) return NULL;
        high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
      }
      to = put_utf8(to, (unsigned long)high);
    } else {
      const char *found = c ? strchr(escapes, c) : NULL;
      if (!found) return NULL;
      *to++ = meant[found - escapes];
    }
  }
  if (j->at == j->end) return NULL;
  j->at++;
  *to++ = 0;
  j->texts = to;
  return begin;
}

static int32_t json_number(json *j) {
  char copy[32];
  size_t length = 0;
  int real = 0;
  int32_t made;
  char *end;
  while (j->at < j->end && *j->at && strchr("+-0123456789.eE", *j->at)) {
    if (length + 1 >= sizeof copy) return -1;
    if (strchr(".eE", *j->at)) real = 1;
    copy[length++] = *j->at++;
  }
  copy[length] = 0;
  made = length ? new_value(j, real ? J_REAL : J_INT) : -1;
  if (made < 0) return -1;
  errno = 0;
  if (!real) {
    j->values[made].number = strtoll(copy, &end, 10);
    if (errno || *end) return -1;
  }
  return made;
}

static int32_t json_members(json *j, enum kind kind, char close, int depth) {
  int32_t made = new_value(j, kind), last = -1, item;
  if (made < 0 || depth >= MAX_DEPTH) return -1;
  skip_space(j);
  if (j->at < j->end && *j->at == close) {
    j->at++;
    return made;
  }
  for (;;) {
    const char *key = NULL;
    if (kind == J_MAP) {
      skip_space(j);
      if (j->at == j->end || *j->at++ != '"' || !(key = json_text(j))) return -1;
      skip_space(j);
      if (j->at == j->end || *j->at++ != ':') return -1;
    }
    item = json_value(j, depth + 1);
    if (item < 0) return -1;
    j->values[item].key = key;
    if (last < 0)
      j->values[made].first = item;
    else
      j->values[last].next = item;
    last = item;
    skip_space(j);
    if (j->at == j->end) return -1;
    if (*j->at == close) {
      j->at++;
      return made;
    }
    if (*j->at++ != ',') return -1;
  }
}

static int32_t json_word(json *j, const char *word, enum kind kind, int64_t number) {
  size_t length = strlen(word);
  int32_t made;
  if ((size_t)(j->end - j->at) < length || memcmp(j->at, word, length)) return -1;
  j->at += length;
  made = new_value(j, kind);
  if (made >= 0) j->values[made].number = number;
  return made;
}

static int32_t json_value(json *j, int depth) {
  int32_t made;
  skip_space(j);
  if (j->at == j->end) return -1;
  switch (*j->at) {
    case '{': j->at++; return json_members(j, J_MAP, '}', depth);
    case '[': j->at++; return json_members(j, J_LIST, ']', depth);
    case 't': return json_word(j, "true", J_BOOL, 1);
    case 'f': return json_word(j, "false", J_BOOL, 0);
    case 'n': return json_word(j, "null", J_NULL, 0);
    case 'N': return json_word(j, "NaN", J_REAL, 0);
    case 'I': return json_word(j, "Infinity", J_REAL, 0);
    case '"': {
      const char *text;
      j->at++;
      text = json_text(j);
      made = text ? new_value(j, J_TEXT) : -1;
      if (made >= 0) j->values[made].text = text;
      return made;
    }
    default:
      if (*j->at == '-' && j->end - j->at > 1 && j->at[1] == 'I') return json_word(j, "-Infinity", J_REAL, 0);
      return json_number(j);
  }
}

/* Parse a text; its root is value 0.  Returns the memory of texts in `texts`, or NULL if it is malformed. */
static char *json_parse(json *j, const char *text, size_t size) {
  char *texts = malloc(size + 1);
  memset(j, 0, sizeof *j);
  j->at = text;
  j->end = text + size;
  j->texts = texts;
  if (texts && json_value(j, 0) == 0) {
    skip_space(j);
    if (j->at == j->end) {
      j->texts = texts;
      return texts;
    }
  }
  j->texts = texts;
  json_free(j);
  return NULL;
}

static const value *member(const json *j, const value *object, const char *key, enum kind kind) {
  int32_t i;
  if (!object || object->kind != J_MAP) return NULL;
  for (i = object->first; i >= 0; i = j->values[i].next)
    if (strcmp(j->values[i].key, key) == 0) return j->values[i].kind == kind ? j->values + i : NULL;
  return NULL;
}

static const value *item(const json *j, const value *list, int64_t index) {
  int32_t i = list ? list->first : -1;
  while (i >= 0 && index-- > 0) i = j->values[i].next;
  return i < 0 ? NULL : j->values + i;
}

static const char *text_of(const json *j, const value *object, const char *key) {
  const value *found = member(j, object, key, J_TEXT);
  return found ? found->text : NULL;
}

static int length_of(const json *j, const value *list) {
  int count = 0;
  int32_t i;
  for (i = list->first; i >= 0; i = j->values[i].next) count++;
  return count;
}

/* Libraries. */

typedef struct {
  void *data;
  int32_t device, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t offset;
} tensor; /* DLTensor of DLPack */

typedef int plan_function(tensor *const *inputs, int64_t *results);
typedef int run_function(const void *weights, tensor *const *inputs, tensor *const *outputs, void *workspace,
                         int threads);

struct row {
  const char *name, *description;
  plan_function *plan;
  run_function *run;
};

struct table { /* `dlc_library` of a library */
  uint32_t abi, count;
  const struct row *rows;
  const void *weights; /* NULL if the file has them */
  uint64_t weights_size;
};

struct devices { /* `dlc_library_devices` of a library with regions on devices */
  uint32_t abi, num_devices, num_regions; /* those that the runtime sets; 0 if the library has them */
  const char *(*device)(uint32_t);
  void (*set_device)(uint32_t, const dlc_device_api *);
  const char *(*section)(uint32_t); /* of the weights of a region */
  uint64_t (*weights_size)(uint32_t);
  void (*set_weights)(uint32_t, const void *);
  int (*open)(const void *weights);
  void (*close)(void);
  const char *(*error)(void);
};

typedef struct {
  const char *name;
  uint8_t code, bits;
} dtype;

static const dtype DTYPES[] = {{"float32", 2, 32},
                               {"int64", 0, 64},
                               {"int32", 0, 32},
                               {"float64", 2, 64},
                               {"float16", 2, 16},
                               {"bfloat16", 4, 16},
                               {"int8", 0, 8},
                               {"uint8", 1, 8},
                               {"int16", 0, 16},
                               {"uint16", 1, 16},
                               {"uint32", 1, 32},
                               {"uint64", 1, 64},
                               {"bool", 6, 8},
                               {"complex64", 5, 64},
                               {"complex128", 5, 128},
                               {"float8_e4m3fn", 10, 8},
                               {"float8_e4m3fnuz", 11, 8},
                               {"float8_e5m2", 12, 8},
                               {"float8_e5m2fnuz", 13, 8},
                               {"float8_e8m0fnu", 14, 8}};

typedef struct {
  const struct row *row;
  json description;
  int inputs, outputs;
  dlc_tensor *tensors; /* inputs, then outputs */
  const dtype **dtypes;
} function;

struct dlc_model {
  const struct table *table;
  const struct devices *devices; /* NULL if it has no regions on devices */
  function *functions;
  const void *weights;
  void *mapped;
  size_t mapped_size;
};

static const dtype *dtype_of(const char *name) {
  size_t i;
  for (i = 0; i < sizeof DTYPES / sizeof *DTYPES; i++)
    if (strcmp(DTYPES[i].name, name) == 0) return DTYPES + i;
  return NULL;
}

/* A processor feature that code needs and this machine does not have; NULL if there is none. */
static const char *missing_feature(const char *features) {
#if (defined __x86_64__ || defined __i386__) && defined __GNUC__
#define FEATURE(name)                    \
  {                                      \
    name, !!__builtin_cpu_supports(name) \
  }
  const struct {
    const char *name;
    int here;
  } known[] = {FEATURE("avx"),          FEATURE("avx2"),           FEATURE("fma"),
               FEATURE("bmi"),          FEATURE("bmi2"),           FEATURE("avx512f"),
               FEATURE("avx512bw"),     FEATURE("avx512cd"),       FEATURE("avx512dq"),
               FEATURE("avx512vl"),     FEATURE("avx512vnni"),     FEATURE("avx512bf16"),
               FEATURE("avx512ifma"),   FEATURE("avx512vbmi"),     FEATURE("avx512vbmi2"),
               FEATURE("avx512bitalg"), FEATURE("avx512vpopcntdq")};
  size_t i, length;
  const char *at;
  for (i = 0; i < sizeof known / sizeof *known; i++) {
    length = strlen(known[i].name);
    for (at = features; !known[i].here && (at = strchr(at, '+')); at++)
      if (strncmp(at + 1, known[i].name, length) == 0 && (at[1 + length] == ',' || !at[1 + length]))
        return known[i].name;
  }
#else
  (void)features;
#endif
  return NULL;
}

/* The description of an input or output. Texts of dims are those of the JSON. */
static int read_tensor(const json *j, const value *signature, const value *given, dlc_tensor *made,
                       const dtype **type) {
  const value *shape = member(j, given, "shape", J_LIST), *exprs = member(j, signature, "exprs", J_LIST);
  const char *name = text_of(j, given, "name"), *word = text_of(j, given, "dtype");
  int64_t *sizes;
  const char **dims;
  int i, ndim;
  if (!shape || !exprs || !name || !word) return fail("an input or output is malformed");
  if (!(*type = dtype_of(word)))
    return fail("'%s' has the dtype %s, which this runtime does not know", name, word);
  ndim = length_of(j, shape);
  if (ndim > MAX_NDIM) return fail("'%s' has %d dims", name, ndim);
  sizes = calloc((size_t)ndim + 1, sizeof *sizes);
  dims = calloc((size_t)ndim + 1, sizeof *dims);
  made->shape = sizes;
  made->dims = dims;
  if (!sizes || !dims) return fail("there is not enough memory");
  for (i = 0; i < ndim; i++) {
    const value *dim = item(j, shape, i), *at = member(j, dim, "expr", J_INT);
    const value *expr = at && at->number >= 0 ? item(j, exprs, at->number) : NULL;
    const value *op = expr && expr->kind == J_LIST ? item(j, expr, 0) : NULL,
                *symbol = op ? item(j, expr, 1) : NULL;
    if (dim->kind == J_INT && dim->number < 0) return fail("'%s' has a negative size", name);
    if (dim->kind != J_INT && !op) return fail("a dim of '%s' is malformed", name);
    sizes[i] = dim->kind == J_INT ? dim->number : DLC_SYMBOLIC;
    if (dim->kind == J_INT) {
      char *digits = malloc(24);
      if (!digits) return fail("there is not enough memory");
      snprintf(digits, 24, "%lld", (long long)dim->number);
      dims[i] = digits;
    } else if (symbol && symbol->kind == J_TEXT && op->kind == J_TEXT && strcmp(op->text, "var") == 0) {
      dims[i] = symbol->text;
    } else {
      dims[i] = "?";
    }
  }
  made->name = name;
  made->dtype = (*type)->name;
  made->item_size = (*type)->bits / 8;
  made->ndim = ndim;
  return 0;
}

static int read_function(const struct row *row, function *made) {
  const value *root, *signature, *version, *metadata, *lists[2];
  const char *features, *missing;
  int side, i;
  json *j = &made->description;
  made->row = row;
  if (!row->name || !row->description || !row->plan || !row->run)
    return fail("a function of the library is incomplete");
  if (!json_parse(j, row->description, strlen(row->description))) return fail("a description is not JSON");
  root = j->values;
  version = member(j, root, "version", J_INT);
  if (!version || version->number != DESCRIPTION)
    return fail("it describes functions in version %lld, this runtime reads %d",
                version ? (long long)version->number : -1, DESCRIPTION);
  metadata = member(j, root, "metadata", J_MAP);
  features = text_of(j, metadata, "features");
  missing = features ? missing_feature(features) : NULL;
  if (missing)
    return fail("the code uses the processor feature %s, which this machine does not have", missing);
  signature = member(j, root, "signature", J_MAP);
  lists[0] = member(j, signature, "inputs", J_LIST);
  lists[1] = member(j, signature, "outputs", J_LIST);
  if (!lists[0] || !lists[1]) return fail("the description of '%s' is malformed", row->name);
  made->inputs = length_of(j, lists[0]);
  made->outputs = length_of(j, lists[1]);
  made->tensors = calloc((size_t)made->inputs + (size_t)made->outputs + 1, sizeof *made->tensors);
  made->dtypes = calloc((size_t)made->inputs + (size_t)made->outputs + 1, sizeof *made->dtypes);
  if (!made->tensors || !made->dtypes) return fail("there is not enough memory");
  for (side = 0; side < 2; side++)
    for (i = 0; i < (side ? made->outputs : made->inputs); i++) {
      int at = side ? made->inputs + i : i;
      if (read_tensor(j, signature, item(j, lists[side], i), made->tensors + at, made->dtypes + at))
        return -1;
    }
  return 0;
}

static void free_function(function *made) {
  int i, d;
  for (i = 0; made->tensors && i < made->inputs + made->outputs; i++) {
    const dlc_tensor *t = made->tensors + i;
    for (d = 0; t->dims && d < t->ndim; d++)
      if (t->shape[d] != DLC_SYMBOLIC) free((void *)t->dims[d]);
    free((void *)t->shape);
    free((void *)t->dims);
  }
  free(made->tensors);
  free(made->dtypes);
  json_free(&made->description);
}

/* Libraries from .dlc files are never unloaded, so equal ones are loaded once. */
typedef struct loaded {
  uint8_t digest[32];
  const struct table *table;
  const struct devices *devices;
  struct loaded *next;
} loaded;

static loaded *all_loaded;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static const struct table *load_library(const char *file, const char *path, const struct devices **devices) {
  void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  const struct table *table;
  const char *why;
  if (!handle) {
    why = dlerror();
    return fail_null(why ? why : "it cannot be loaded", path);
  }
  table = dlsym(handle, "dlc_library");
  if (!table) return fail_null("it has no table dlc_library; export the model again", path);
  if (table->abi != ABI) {
    fail("%s: its library has version %u, this runtime reads %d", path, (unsigned)table->abi, ABI);
    return NULL;
  }
  if (!table->rows || !table->count || table->count > MAX_FUNCTIONS)
    return fail_null("its table is malformed", path);
  *devices = dlsym(handle, "dlc_library_devices");
  if (*devices && (*devices)->abi != DEVICES) {
    fail("%s: its table of devices has version %u, this runtime reads %d", path, (unsigned)(*devices)->abi,
         DEVICES);
    return NULL;
  }
  return table;
}

static int write_all(int file, const uint8_t *data, size_t size) {
  while (size) {
    ssize_t done = write(file, data, size);
    if (done <= 0) {
      if (done < 0 && errno == EINTR) continue;
      return -1;
    }
    data += done;
    size -= (size_t)done;
  }
  return 0;
}

/* Load a library from memory: through a file in memory where the system has these, else a temporary file. */
static const struct table *load_bytes(const uint8_t *data, size_t size, const char *path,
                                      const struct devices **devices) {
  const struct table *table = NULL;
  char name[4096];
  int file = -1, temporary = 0;
#if defined __linux__ && defined MFD_CLOEXEC
  file = memfd_create("dlc", MFD_CLOEXEC);
#endif
  if (file >= 0) {
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
  } else {
    const char *folder = getenv("TMPDIR");
    snprintf(name, sizeof name, "%s/dlc-XXXXXX", folder && *folder ? folder : "/tmp");
    file = mkstemp(name);
    temporary = 1;
  }
  if (file < 0 || write_all(file, data, size)) {
    fail("%s: its library cannot be written: %s", path, strerror(errno));
    if (file >= 0) close(file);
    if (file >= 0 && temporary) unlink(name);
    return NULL;
  }
  if (temporary) close(file);
  table = load_library(name, path, devices);
  if (temporary) unlink(name);
  /* The file stays open if it was loaded: the loader knows libraries by path, so the number must not be
   * reused. */
  if (!table && !temporary) close(file);
  return table;
}

static const struct table *load_once(const uint8_t *data, size_t size, const uint8_t digest[32],
                                     const char *path, const struct devices **devices) {
  loaded *one;
  const struct table *table = NULL;
  pthread_mutex_lock(&loading);
  for (one = all_loaded; one && memcmp(one->digest, digest, 32); one = one->next) {
  }
  if (one) {
    table = one->table;
    *devices = one->devices;
  } else if ((one = malloc(sizeof *one)) && (table = load_bytes(data, size, path, devices))) {
    memcpy(one->digest, digest, 32);
    one->table = table;
    one->devices = *devices;
    one->next = all_loaded;
    all_loaded = one;
  } else {
    free(one);
  }
  pthread_mutex_unlock(&loading);
  return table;
}

/* Files. */

typedef struct {
  const uint8_t *data;
  size_t size;
  const char *digest;
} section;

static uint64_t little_endian(const uint8_t *data, int bytes) {
  uint64_t found = 0;
  while (bytes--) found = found << 8 | data[bytes];
  return found;
}

static uint64_t pages(uint64_t size) { return (size + PAGE - 1) / PAGE * PAGE; }

/* Devices. */

static const dlc_device_api *registered[MAX_DEVICES];
static int num_registered;

int dlc_register_device(const dlc_device_api *api) {
  int i, status = 0;
  if (!api || !api->name) return fail("the table of a device is NULL, or has no name");
  if (api->version != DLC_DEVICE_VERSION || api->size < offsetof(dlc_device_api, copy))
    return fail("device '%s': its runtime has version %u of dlc_device.h, this runtime reads %d", api->name,
                (unsigned)api->version, DLC_DEVICE_VERSION);
  pthread_mutex_lock(&loading);
  for (i = 0; i < num_registered && strcmp(registered[i]->name, api->name); i++) {
  }
  if (i < num_registered && registered[i] != api)
    status = fail("another runtime of the device '%s' is registered", api->name);
  else if (i == MAX_DEVICES)
    status = fail("there are %d devices", MAX_DEVICES);
  else if (i == num_registered)
    registered[num_registered++] = api;
  pthread_mutex_unlock(&loading);
  return status;
}

/* The models that use the devices of a library. */
typedef struct users {
  const struct devices *devices;
  int count;
  struct users *next;
} users;

static users *all_users;

static users *users_of(const struct devices *devices) {
  users *one = all_users;
  while (one && one->devices != devices) one = one->next;
  if (!one && (one = calloc(1, sizeof *one))) {
    one->devices = devices;
    one->next = all_users;
    all_users = one;
  }
  return one;
}

/* Set the devices of a library, open them, and load code and constants. */
static int open_devices(dlc_model *model, const section *regions, const char *path) {
  const struct devices *devices = model->devices;
  users *own;
  uint32_t i;
  int k, status = 0;
  pthread_mutex_lock(&loading);
  own = users_of(devices);
  if (!own) status = fail("%s: there is not enough memory", path);
  for (i = 0; !status && own->count == 0 && i < devices->num_devices; i++) {
    const char *name = devices->device(i);
    for (k = 0; k < num_registered && strcmp(registered[k]->name, name); k++) {
    }
    if (k == num_registered)
      status = fail("%s: it runs on the device '%s', whose runtime is not registered: call"
                    " dlc_register_device before dlc_open",
                    path, name);
    else
      devices->set_device(i, registered[k]);
  }
  for (i = 0; !status && own->count == 0 && i < devices->num_regions; i++)
    devices->set_weights(i, regions[i].data);
  if (!status && devices->open(model->weights)) status = fail("%s: %s", path, devices->error());
  if (!status) own->count++;
  pthread_mutex_unlock(&loading);
  if (status) model->devices = NULL;
  return status;
}

static void close_devices(const struct devices *devices) {
  users *own;
  pthread_mutex_lock(&loading);
  own = users_of(devices);
  if (own && --own->count == 0) devices->close();
  pthread_mutex_unlock(&loading);
}

/* Check the list of sections, and find the library and the weights. */
static int find_sections(const json *j, const uint8_t *file, size_t size, uint64_t base, section found[2]) {
  const value *list = member(j, j->values, "sections", J_LIST), *entry;
  uint64_t end = 0;
  int32_t i;
  if (!list || list->first < 0) return fail("it lists no sections");
  for (i = list->first; i >= 0; i = j->values[i].next) {
    const value *offset, *length;
    const char *name, *digest;
    entry = j->values + i;
    name = text_of(j, entry, "name");
    digest = text_of(j, entry, "sha256");
    offset = member(j, entry, "offset", J_INT);
    length = member(j, entry, "size", J_INT);
    if (!name || !digest || !offset || !length || offset->number < 0 || length->number < 0 ||
        (uint64_t)offset->number != pages(end))
      return fail("its list of sections is malformed");
    if (base > size || (uint64_t)offset->number > size - base ||
        (uint64_t)length->number > size - base - (uint64_t)offset->number)
      return fail("section '%s' ends after the file", name);
    end = (uint64_t)offset->number + (uint64_t)length->number;
    if (strcmp(name, "library") == 0 || strcmp(name, "weights") == 0) {
      section *one = found + (name[0] == 'w');
      if (one->digest) return fail("it has two sections '%s'", name);
      one->data = file + base + offset->number;
      one->size = (size_t)length->number;
      one->digest = digest;
    }
  }
  return base + end == size ? 0 : fail("bytes follow its last section");
}

/* Find the weights of regions, which `find_sections` has checked. */
static section *region_sections(const json *j, const uint8_t *file, uint64_t base,
                                const struct devices *devices) {
  const value *list = member(j, j->values, "sections", J_LIST);
  section *found = calloc((size_t)devices->num_regions + 1, sizeof *found);
  uint32_t i;
  for (i = 0; found && i < devices->num_regions; i++) {
    int32_t at = list->first;
    while (at >= 0 && strcmp(text_of(j, j->values + at, "name"), devices->section(i))) at = j->values[at].next;
    if (at >= 0) {
      const value *entry = j->values + at;
      found[i].data = file + base + member(j, entry, "offset", J_INT)->number;
      found[i].size = (size_t)member(j, entry, "size", J_INT)->number;
    }
    if (at < 0 || found[i].size != devices->weights_size(i)) {
      free(found);
      return NULL;
    }
  }
  return found;
}

/* The size of a file without the seals that may follow its last section: records, their u64 size, a magic. */
static size_t unsealed(const uint8_t *file, size_t size) {
  uint64_t records;
  if (size < 16 || memcmp(file + size - 8, "DLCSEALS", 8)) return size;
  records = little_endian(file + size - 16, 8);
  return records > size - 16 ? size : size - 16 - (size_t)records;
}

static int open_container(dlc_model *model, const uint8_t *file, size_t size, const char *path) {
  section found[2] = {{NULL, 0, NULL}, {NULL, 0, NULL}};
  uint8_t digest[32];
  const struct devices *devices = NULL;
  uint64_t length;
  json header;
  int bad;
  if (size < PREFIX) return fail("%s: it is shorter than the prefix of a .dlc file", path);
  if (little_endian(file + 8, 4) != SCHEMA)
    return fail("%s: it has the format %u, this runtime reads %d", path, (unsigned)little_endian(file + 8, 4),
                SCHEMA);
  length = little_endian(file + 12, 4);
  if (length > MAX_HEADER || length > size - PREFIX)
    return fail("%s: its header is longer than the file", path);
  sha_of(file + PREFIX, (size_t)length, digest);
  if (memcmp(digest, file + 16, 32)) return fail("%s: the checksum of its header differs", path);
  if (!json_parse(&header, (const char *)file + PREFIX, (size_t)length))
    return fail("%s: its header is not JSON", path);
  bad = find_sections(&header, file, unsealed(file, size), pages(PREFIX + length), found);
  if (bad) {
    char why[sizeof error_text];
    memcpy(why, error_text, sizeof why);
    fail("%s: it is damaged: %s", path, why);
  } else if (!found[0].digest) {
    bad = fail("%s: it has no library; save it with exe.save(path, library=True)", path);
  } else if (!found[1].digest) {
    bad = fail("%s: it has no weights", path);
  } else {
    sha_of(found[0].data, found[0].size, digest);
    if (!is_digest(digest, found[0].digest)) bad = fail("%s: the checksum of its library differs", path);
  }
  if (!bad) {
    model->table = load_once(found[0].data, found[0].size, digest, path, &devices);
    if (!model->table) bad = -1;
  }
  if (!bad && model->table->weights_size != found[1].size)
    bad = fail("%s: its weights have the wrong size", path);
  if (!bad) model->weights = found[1].data;
  if (!bad && devices) {
    section *regions = region_sections(&header, file, pages(PREFIX + length), devices);
    model->devices = devices;
    if (regions) {
      bad = open_devices(model, regions, path);
    } else {
      model->devices = NULL;
      bad = fail("%s: the weights of a region are missing, or have the wrong size", path);
    }
    free(regions);
  }
  json_free(&header);
  return bad ? -1 : 0;
}

static int open_file(dlc_model *model, const char *path) {
  static const uint8_t magic[8] = {0x89, 'D', 'L', 'C', '\r', '\n', 0x1a, '\n'};
  struct stat facts;
  uint8_t start[8] = {0};
  void *mapped;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return fail("%s: %s", path, strerror(errno));
  if (fstat(file, &facts) || !S_ISREG(facts.st_mode) ||
      pread(file, start, sizeof start, 0) != (ssize_t)sizeof start) {
    close(file);
    return fail("%s: it is no .dlc file and no library", path);
  }
  if (memcmp(start, magic, sizeof magic)) {
    char *full;
    close(file);
    if (memcmp(start, "\177ELF", 4)) return fail("%s: it is no .dlc file and no library", path);
    full = realpath(path, NULL); /* with a slash, so that the loader does not search for it */
    if (!full) return fail("%s: %s", path, strerror(errno));
    model->table = load_library(full, path, &model->devices);
    free(full);
    if (!model->table || !model->table->weights) model->devices = NULL;
    if (!model->table) return -1;
    model->weights = model->table->weights;
    if (!model->weights) return fail("%s: it is the library of a .dlc file, without weights", path);
    return model->devices ? open_devices(model, NULL, path) : 0;
  }
  mapped = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return fail("%s: %s", path, strerror(errno));
  model->mapped = mapped;
  model->mapped_size = (size_t)facts.st_size;
  return open_container(model, mapped, model->mapped_size, path);
}

dlc_model *dlc_open(const char *path) {
  dlc_model *model = calloc(1, sizeof *model);
  uint32_t i;
  error_text[0] = 0;
  if (!path) path = "";
  if (!model) return fail_null("there is not enough memory", path);
  if (open_file(model, path)) {
    dlc_close(model);
    return NULL;
  }
  model->functions = calloc(model->table->count, sizeof *model->functions);
  for (i = 0; i < model->table->count; i++)
    if (!model->functions || read_function(model->table->rows + i, model->functions + i)) {
      char why[sizeof error_text];
      memcpy(why, error_text, sizeof why);
      fail("%s: %s", path, why[0] ? why : "there is not enough memory");
      dlc_close(model);
      return NULL;
    }
  return model;
}

void dlc_close(dlc_model *model) {
  uint32_t i;
  if (!model) return;
  for (i = 0; model->functions && i < model->table->count; i++) free_function(model->functions + i);
  free(model->functions);
  if (model->devices) close_devices(model->devices);
  if (model->mapped) munmap(model->mapped, model->mapped_size);
  free(model);
}

static const function *function_at(const dlc_model *model, int index) {
  if (model && index >= 0 && (uint32_t)index < model->table->count) return model->functions + index;
  fail("there is no function %d", index);
  return NULL;
}

int dlc_num_functions(const dlc_model *model) {
  return model ? (int)model->table->count : fail("the model is NULL");
}

const char *dlc_function_name(const dlc_model *model, int index) {
  const function *found = function_at(model, index);
  return found ? found->row->name : NULL;
}

int dlc_num_inputs(const dlc_model *model, int index) {
  const function *found = function_at(model, index);
  return found ? found->inputs : -1;
}

int dlc_num_outputs(const dlc_model *model, int index) {
  const function *found = function_at(model, index);
  return found ? found->outputs : -1;
}

const dlc_tensor *dlc_input(const dlc_model *model, int index, int input) {
  const function *found = function_at(model, index);
  if (found && input >= 0 && input < found->inputs) return found->tensors + input;
  if (found) fail("there is no input %d", input);
  return NULL;
}

const dlc_tensor *dlc_output(const dlc_model *model, int index, int output) {
  const function *found = function_at(model, index);
  if (found && output >= 0 && output < found->outputs) return found->tensors + found->inputs + output;
  if (found) fail("there is no output %d", output);
  return NULL;
}

/* Sessions. */

typedef struct {
  tensor array;
  int64_t shape[MAX_NDIM];
  int set;   /* of an input */
  void *own; /* of an output: memory of the session, */
  size_t own_size;
  void *given; /* or of the caller */
  size_t given_size;
} slot;

struct dlc_session {
  const dlc_model *model;
  const function *function;
  slot *slots;     /* inputs, then outputs */
  tensor **arrays; /* theirs */
  int64_t *plan;
  void *workspace;
  size_t workspace_size;
  int ran;
};

dlc_session *dlc_session_new(dlc_model *model, const char *name) {
  dlc_session *made;
  const function *found = NULL;
  size_t count, words = 1;
  uint32_t i;
  int k;
  if (!model) {
    fail("the model is NULL");
    return NULL;
  }
  for (i = 0; i < model->table->count && !found; i++)
    if (!name || strcmp(model->functions[i].row->name, name) == 0) found = model->functions + i;
  if (!found) {
    fail("there is no function '%s'", name);
    return NULL;
  }
  count = (size_t)found->inputs + (size_t)found->outputs;
  for (k = 0; k < found->outputs; k++) words += (size_t)found->tensors[found->inputs + k].ndim;
  made = calloc(1, sizeof *made);
  if (made) {
    made->model = model;
    made->function = found;
    made->slots = calloc(count + 1, sizeof *made->slots);
    made->arrays = calloc(count + 1, sizeof *made->arrays);
    made->plan = calloc(words, sizeof *made->plan);
  }
  if (!made || !made->slots || !made->arrays || !made->plan) {
    fail("there is not enough memory");
    dlc_session_free(made);
    return NULL;
  }
  for (i = 0; i < count; i++) {
    tensor *array = &made->slots[i].array;
    array->device = DLPACK_CPU;
    array->code = found->dtypes[i]->code;
    array->bits = found->dtypes[i]->bits;
    array->lanes = 1;
    array->ndim = found->tensors[i].ndim;
    array->shape = made->slots[i].shape;
    made->arrays[i] = array;
  }
  return made;
}

void dlc_session_free(dlc_session *session) {
  int i;
  if (!session) return;
  for (i = 0; session->slots && i < session->function->inputs + session->function->outputs; i++)
    free(session->slots[i].own);
  free(session->slots);
  free(session->arrays);
  free(session->plan);
  free(session->workspace);
  free(session);
}

static int index_of(const dlc_tensor *tensors, int count, const char *name, const char *what) {
  int i;
  for (i = 0; i < count; i++)
    if (name && strcmp(tensors[i].name, name) == 0) return i;
  return fail("there is no %s '%s'", what, name ? name : "NULL");
}

int dlc_input_index(const dlc_session *session, const char *name) {
  if (!session) return fail("the session is NULL");
  return index_of(session->function->tensors, session->function->inputs, name, "input");
}

int dlc_output_index(const dlc_session *session, const char *name) {
  if (!session) return fail("the session is NULL");
  return index_of(session->function->tensors + session->function->inputs, session->function->outputs, name,
                  "output");
}

int dlc_set_input(dlc_session *session, int index, const void *data, const int64_t *shape, int ndim) {
  const dlc_tensor *expected;
  slot *one;
  if (!session) return fail("the session is NULL");
  if (index < 0 || index >= session->function->inputs) return fail("there is no input %d", index);
  expected = session->function->tensors + index;
  if (ndim != expected->ndim)
    return fail("input '%s' has %d dims, not %d", expected->name, ndim, expected->ndim);
  if (ndim && !shape) return fail("the shape of input '%s' is NULL", expected->name);
  one = session->slots + index;
  if (ndim) memcpy(one->shape, shape, (size_t)ndim * sizeof *shape);
  one->array.data = (void *)data;
  one->set = 1;
  return 0;
}

int dlc_set_output(dlc_session *session, int index, void *data, size_t size) {
  slot *one;
  if (!session) return fail("the session is NULL");
  if (index < 0 || index >= session->function->outputs) return fail("there is no output %d", index);
  one = session->slots + session->function->inputs + index;
  one->given = data;
  one->given_size = data ? size : 0;
  return 0;
}

/* `[1, 3, n]`, of sizes or of the texts of dims. */
static void shape_text(char *to, size_t room, const int64_t *sizes, const char *const *dims, int ndim) {
  size_t used = 0;
  int i, length;
  to[0] = 0;
  for (i = -1; i <= ndim && used < room; i++) {
    const char *comma = i > 0 ? ", " : "";
    if (i < 0 || i == ndim)
      length = snprintf(to + used, room - used, "%s", i < 0 ? "[" : "]");
    else if (dims)
      length = snprintf(to + used, room - used, "%s%s", comma, dims[i]);
    else
      length = snprintf(to + used, room - used, "%s%lld", comma, (long long)sizes[i]);
    used += length > 0 ? (size_t)length : 0;
  }
}

static int explain(const dlc_session *session, int status) {
  static const char *const reasons[] = {
      "", "is NULL",           "is on another device",          "has another rank", "has another dtype",
      "", "is not contiguous", "is not aligned to its elements"};
  const function *f = session->function;
  int argument = -status / 100 - 1, reason = -status % 100;
  const dlc_tensor *one;
  char given[256], needed[256];
  if (status == DEVICE_FAILED && session->model->devices)
    return fail("%s", session->model->devices->error());
  if (status == CHECK_FAILED) return fail("an index in the data of the inputs is out of range");
  if (status > -100 || argument >= f->inputs + f->outputs || reason < 1 || reason > 7)
    return fail("the model refuses the call (status %d)", status);
  one = f->tensors + argument;
  if (reason != 5)
    return fail("%s '%s' %s", argument < f->inputs ? "input" : "output", one->name, reasons[reason]);
  shape_text(given, sizeof given, session->slots[argument].shape, NULL, one->ndim);
  shape_text(needed, sizeof needed, NULL, one->dims, one->ndim);
  return fail("%s '%s' has the shape %s, which does not fit %s and the other inputs",
              argument < f->inputs ? "input" : "output", one->name, given, needed);
}

static int reserve(void **memory, size_t *size, size_t needed) {
  size_t rounded = (needed + ALIGN - 1) / ALIGN * ALIGN + ALIGN;
  void *made = NULL;
  if (*memory && *size >= needed) return 0;
  if (rounded < needed || posix_memalign(&made, ALIGN, rounded))
    return fail("there is not enough memory for %llu bytes", (unsigned long long)needed);
  free(*memory);
  *memory = made;
  *size = rounded;
  return 0;
}

/* Memory for an output of the planned shape. */
static int place_output(slot *one, const dlc_tensor *expected, const int64_t *shape) {
  size_t bytes = expected->item_size;
  int d;
  for (d = 0; d < expected->ndim; d++) {
    if (shape[d] < 0 || (shape[d] && bytes > SIZE_MAX / 2 / (size_t)shape[d]))
      return fail("output '%s' would have an impossible size", expected->name);
    bytes *= (size_t)shape[d];
    one->shape[d] = shape[d];
  }
  if (one->given) {
    if (one->given_size < bytes)
      return fail("output '%s' needs %llu bytes, and %llu are given", expected->name,
                  (unsigned long long)bytes, (unsigned long long)one->given_size);
    one->array.data = one->given;
    return 0;
  }
  if (reserve(&one->own, &one->own_size, bytes)) return -1;
  one->array.data = one->own;
  return 0;
}

int dlc_run(dlc_session *session, int threads) {
  const function *f;
  const int64_t *shape;
  int i, status;
  if (!session) return fail("the session is NULL");
  f = session->function;
  session->ran = 0;
  for (i = 0; i < f->inputs; i++)
    if (!session->slots[i].set) return fail("input '%s' is not set", f->tensors[i].name);
  if (threads < 0) return fail("the number of threads is %d", threads);
  status = f->row->plan(session->arrays, session->plan);
  if (status) return explain(session, status);
  shape = session->plan;
  for (i = 0; i < f->outputs; shape += f->tensors[f->inputs + i++].ndim)
    if (place_output(session->slots + f->inputs + i, f->tensors + f->inputs + i, shape)) return -1;
  if (*shape < 0) return fail("the model needs an impossible amount of memory");
  if (reserve(&session->workspace, &session->workspace_size, (size_t)*shape)) return -1;
  status = f->row->run(session->model->weights, session->arrays, session->arrays + f->inputs,
                       session->workspace, threads);
  if (status) return explain(session, status);
  session->ran = 1;
  return 0;
}

const void *dlc_get_output(const dlc_session *session, int index, const int64_t **shape) {
  const slot *one;
  if (!session || index < 0 || index >= session->function->outputs) {
    fail("there is no output %d", index);
    return NULL;
  }
  if (!session->ran) {
    fail("there are no outputs: dlc_run has not succeeded");
    return NULL;
  }
  one = session->slots + session->function->inputs + index;
  if (shape) *shape = one->shape;
  return one->array.data;
}
