/* Opens damaged copies of a .dlc file, and reads damaged descriptions: runtime_fuzz FILE COPY COUNT
   It includes the runtime, to repair checksums after a change and to reach functions that are not exported.
 */
#include "dlc_runtime.c"

static uint64_t state = 1;

static uint64_t draw(uint64_t limit) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return limit ? (state >> 33) % limit : 0;
}

static const char *const WORDS[] = {"-1",
                                    "9223372036854775807",
                                    "99999999999999999999",
                                    "4096",
                                    "null",
                                    "[[",
                                    "{}",
                                    "\"\\u0000",
                                    "\"\\ud800\\udc00",
                                    "1e9",
                                    "\"library\"",
                                    "\"weights\"",
                                    "true",
                                    "\\",
                                    "\"expr\":-5"};

static void damage_text(uint8_t *text, size_t size) {
  uint64_t times = 1 + draw(4);
  while (times-- && size) {
    const char *word = WORDS[draw(sizeof WORDS / sizeof *WORDS)];
    size_t at = (size_t)draw(size), length = strlen(word);
    if (draw(2) && length <= size - at)
      memcpy(text + at, word, length);
    else
      text[at] = (uint8_t)(draw(2) ? "0123456789[]{},:\"-"[draw(18)] : (char)draw(256));
  }
}

static void write_copy(const char *path, const uint8_t *data, size_t size) {
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(data, 1, size, file) != size || fclose(file)) exit(3);
}

int main(int argc, char **argv) {
  static uint8_t base[1 << 22], data[1 << 22];
  int opened = 0, refused = 0, described = 0, i, count = argc == 4 ? atoi(argv[3]) : 0;
  FILE *file = argc == 4 ? fopen(argv[1], "rb") : NULL;
  size_t size = file ? fread(base, 1, sizeof base, file) : 0;
  dlc_model *good = size ? dlc_open(argv[1]) : NULL;
  if (!good) return 2;
  fclose(file);
  for (i = 0; i < count; i++) {
    size_t length = size, header = (size_t)little_endian(base + 12, 4);
    dlc_model *model;
    memcpy(data, base, size);
    switch (draw(5)) {
      case 0: data[draw(size)] ^= (uint8_t)(1 + draw(255)); break;
      case 1: length = (size_t)draw(size); break;
      case 2: data[draw(PREFIX)] = (uint8_t)draw(256); break;
      default:
        damage_text(data + PREFIX, header);
        if (draw(4) == 0) length -= (size_t)draw(PAGE);
        sha_of(data + PREFIX, header, data + 16);
    }
    write_copy(argv[2], data, length);
    model = dlc_open(argv[2]);
    if (model) {
      dlc_session_free(dlc_session_new(model, NULL));
      opened++;
    } else {
      refused += dlc_error()[0] != 0;
    }
    dlc_close(model);
  }
  for (i = 0; i < count; i++) {
    struct row row = good->table->rows[0];
    function made;
    char *text = strdup(row.description);
    memset(&made, 0, sizeof made);
    damage_text((uint8_t *)text, strlen(text));
    row.description = text;
    described += read_function(&row, &made) == 0;
    free_function(&made);
    free(text);
  }
  printf("%d opened, %d refused, %d described\n", opened, refused, described);
  dlc_close(good);
  return opened + refused == count ? 0 : 1;
}
