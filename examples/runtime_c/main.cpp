// The same in C++: classify MODEL INPUT EXPECTED.  The handles are owned by unique pointers.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "dlc_runtime.h"

using Model = std::unique_ptr<dlc_model, decltype(&dlc_close)>;
using Session = std::unique_ptr<dlc_session, decltype(&dlc_session_free)>;

static void require(bool done, const std::string &what) {
  if (!done) throw std::runtime_error(what + ": " + dlc_error());
}

static std::size_t elements(const std::int64_t *shape, int ndim) {
  return static_cast<std::size_t>(std::accumulate(shape, shape + ndim, std::int64_t{1}, std::multiplies<>()));
}

static std::vector<float> read_floats(const char *path, std::size_t count) {
  std::vector<float> data(count);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char *>(data.data()), static_cast<std::streamsize>(count * sizeof(float)));
  if (!file) throw std::runtime_error(std::string(path) + " is too short");
  return data;
}

static int classify(const char *path, const char *input, const char *output) {
  Model model(dlc_open(path), dlc_close);
  require(model != nullptr, "dlc_open");
  const dlc_tensor *image = dlc_input(model.get(), 0, 0), *result = dlc_output(model.get(), 0, 0);
  require(image && result, "the model");

  const auto pixels = read_floats(input, elements(image->shape, image->ndim));
  Session session(dlc_session_new(model.get(), nullptr), dlc_session_free);
  require(session != nullptr, "dlc_session_new");
  require(dlc_set_input(session.get(), 0, pixels.data(), image->shape, image->ndim) == 0, "dlc_set_input");
  require(dlc_run(session.get(), 0) == 0, "dlc_run");

  const std::int64_t *shape = nullptr;
  const auto *scores = static_cast<const float *>(dlc_get_output(session.get(), 0, &shape));
  const auto count = elements(shape, result->ndim);
  const auto expected = read_floats(output, count);
  float error = 0;
  for (std::size_t i = 0; i < count; ++i) error = std::max(error, std::fabs(scores[i] - expected[i]));
  const auto best = std::max_element(scores, scores + count) - scores;
  std::printf("class %td, score %.6f, largest difference %g\n", best, scores[best], error);
  return error < 1e-5f ? 0 : 1;
}

int main(int argc, char **argv) {
  if (argc != 4) return std::cerr << "usage: " << argv[0] << " MODEL INPUT EXPECTED\n", 2;
  try {
    return classify(argv[1], argv[2], argv[3]);
  } catch (const std::exception &problem) {
    std::cerr << problem.what() << '\n';
    return 1;
  }
}
