/* Runs a model on a file of floats and compares the result with another one: classify MODEL INPUT EXPECTED

   It needs neither Python nor the header of the model: shapes are those that the model says. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "dlc_runtime.h"

static int give_up(const char *what) {
  fprintf(stderr, "%s: %s\n", what, dlc_error());
  return 1;
}

static size_t elements(const int64_t *shape, int ndim) {
  size_t count = 1;
  for (int i = 0; i < ndim; i++) count *= (size_t)shape[i];
  return count;
}

static float *read_floats(const char *path, size_t count) {
  FILE *file = fopen(path, "rb");
  float *data = malloc(count * sizeof *data);
  if (!file || !data || fread(data, sizeof *data, count, file) != count) {
    fprintf(stderr, "%s does not have %zu floats\n", path, count);
    exit(1);
  }
  fclose(file);
  return data;
}

int main(int argc, char **argv) {
  if (argc != 4) return fprintf(stderr, "usage: %s MODEL INPUT EXPECTED\n", argv[0]), 2;
  dlc_model *model = dlc_open(argv[1]);
  if (!model) return give_up("dlc_open");
  const dlc_tensor *image = dlc_input(model, 0, 0), *result = dlc_output(model, 0, 0);
  if (!image || !result) return give_up("the model");

  float *pixels = read_floats(argv[2], elements(image->shape, image->ndim));
  dlc_session *session = dlc_session_new(model, NULL);
  if (!session || dlc_set_input(session, 0, pixels, image->shape, image->ndim))
    return give_up("dlc_set_input");
  if (dlc_run(session, 0)) return give_up("dlc_run");

  const int64_t *shape;
  const float *scores = dlc_get_output(session, 0, &shape);
  size_t classes = elements(shape, result->ndim), best = 0;
  float *expected = read_floats(argv[3], classes), error = 0;
  for (size_t i = 0; i < classes; i++) {
    if (scores[i] > scores[best]) best = i;
    error = fmaxf(error, fabsf(scores[i] - expected[i]));
  }
  printf("class %zu, score %.6f, largest difference %g\n", best, scores[best], error);
  free(pixels);
  free(expected);
  dlc_session_free(session);
  dlc_close(model);
  return error < 1e-5f ? 0 : 1;
}
