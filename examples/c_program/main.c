/* Runs an exported classifier on numbers from 0 to 1 in order and prints the best class; needs no Python. */
#include <stdio.h>
#include <stdlib.h>

#include "squeezenet.h"

int main(void) {
  size_t floats = SQUEEZENET_INPUT0_BYTES / sizeof(float);
  size_t classes = SQUEEZENET_OUTPUT0_BYTES / sizeof(float);
  size_t workspace_size = squeezenet_workspace_size();
  float *image = malloc(SQUEEZENET_INPUT0_BYTES);
  float *scores = malloc(SQUEEZENET_OUTPUT0_BYTES);
  void *workspace = aligned_alloc(64, (workspace_size + 63) / 64 * 64);
  if (!image || !scores || !workspace) return 1;
  for (size_t i = 0; i < floats; ++i) image[i] = (float)i / (float)floats;

  const void *inputs[] = {image};
  void *outputs[] = {scores};
  int failed = squeezenet_run(inputs, outputs, workspace, 0);
  if (failed) return 2;

  size_t best = 0;
  for (size_t i = 1; i < classes; ++i)
    if (scores[i] > scores[best]) best = i;
  printf("%zu %.6f\n", best, scores[best]);
  free(image);
  free(scores);
  free(workspace);
  return 0;
}
