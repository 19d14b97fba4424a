/* What the firmware that measures (measure.c) needs from the model that it runs. */
#include <stdint.h>

struct measure_plan {
    int (*call)(void);
    const void *outputs;
    uint32_t output_bytes;
    uint32_t wraps; /* wraps of the counter after which the program ends */
};

extern const struct measure_plan measure_plan;
