/* The header of a module, which is a model that is linked for its address. */
#ifndef SESSION_MODULE
#include <stdint.h>

#define SESSION_MODULE 0x4d434c44u

struct session_module {
    uint32_t magic;
    uint32_t arguments;
    const uint32_t *sizes;         /* bytes of the arguments */
    int (*call)(uint8_t **args);   /* 0, or the error of the model */
};
#endif
