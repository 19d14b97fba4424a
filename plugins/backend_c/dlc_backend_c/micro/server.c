/* The board's side of a session: a loop that answers frames from the serial port.  protocol.py describes the
   protocol.  This file only depends on the five functions of the board's port. */
#include <stdint.h>
#include <string.h>

#include "session_module.h"
#include "session_model.h"

/* The board's port. */
void port_start(void);
uint8_t port_get(void);
void port_put(uint8_t byte);
uint64_t port_cycles(void);
void port_end(void);

enum { HELLO = 1, ALLOC, FREE, WRITE, READ, CALL, CLEAR, END, INVOKE };
enum { OK = 0, BAD_CHECKSUM, BAD_COMMAND, BAD_ADDRESS, NO_MEMORY, MODEL_FAILED };

#define MAGIC 0x444cu
#define VERSION 2u
#define GRAIN 64u

static union {
    double align;
    uint8_t bytes[SESSION_MEMORY];
} pool;
static uint8_t taken[SESSION_MEMORY / GRAIN];
/* of each grain: 0 free; 1 the first of a block; 2 another one of a block */
static uint8_t payload[SESSION_FRAME];
static uint32_t sum;

static uint32_t table[256];

static void make_table(void)
{
    for (uint32_t n = 0; n < 256u; ++n) {
        uint32_t c = n;
        for (int k = 0; k < 8; ++k)
            c = c & 1u ? 0xedb88320u ^ (c >> 1) : c >> 1;
        table[n] = c;
    }
}

static void count(uint8_t byte)
{
    sum = table[(sum ^ byte) & 0xffu] ^ (sum >> 8);
}

static uint8_t get(void)
{
    const uint8_t byte = port_get();
    count(byte);
    return byte;
}

static void put(uint8_t byte)
{
    count(byte);
    port_put(byte);
}

/* Read up to the magic bytes, and ignore all bytes before them as noise of the line. */
static void find_frame(void)
{
    uint8_t byte = port_get();
    for (;;) {
        while (byte != (MAGIC & 0xffu))
            byte = port_get();
        byte = port_get();
        if (byte == MAGIC >> 8)
            break;
    }
    sum = 0xffffffffu;
    count((uint8_t)(MAGIC & 0xffu));
    count((uint8_t)(MAGIC >> 8));
}

static uint32_t get_word(void)
{
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i)
        word |= (uint32_t)get() << 8 * i;
    return word;
}

static void put_word(uint32_t word)
{
    for (int i = 0; i < 4; ++i)
        put((uint8_t)(word >> 8 * i));
}

static uint32_t word_at(uint32_t place)
{
    uint32_t word;
    memcpy(&word, payload + place, sizeof word);
    return word;
}

static void answer(uint8_t sequence, uint8_t status, const void *data, uint32_t size)
{
    const uint8_t *bytes = data;
    sum = 0xffffffffu;
    put((uint8_t)(MAGIC & 0xffu));
    put((uint8_t)(MAGIC >> 8));
    put(sequence);
    put(status);
    put_word(size);
    for (uint32_t i = 0; i < size; ++i)
        put(bytes[i]);
    put_word(sum ^ 0xffffffffu);
}

/* Allocate by first fit over grains.  Returns an offset in the pool, or the pool's size if there is no space. */
static uint32_t allocate(uint32_t size)
{
    const uint32_t wanted = size / GRAIN + (size % GRAIN != 0) + (size == 0), all = SESSION_MEMORY / GRAIN;
    uint32_t run = 0;
    for (uint32_t i = 0; i < all; ++i) {
        run = taken[i] ? 0 : run + 1;
        if (run == wanted) {
            const uint32_t first = i + 1 - wanted;
            taken[first] = 1;
            for (uint32_t k = first + 1; k <= i; ++k)
                taken[k] = 2;
            return first * GRAIN;
        }
    }
    return SESSION_MEMORY;
}

static int release(uint32_t offset)
{
    uint32_t i = offset / GRAIN;
    if (offset % GRAIN != 0 || offset >= SESSION_MEMORY || taken[i] != 1)
        return 0;
    taken[i++] = 0;
    while (i < SESSION_MEMORY / GRAIN && taken[i] == 2)
        taken[i++] = 0;
    return 1;
}

static int inside(uint32_t offset, uint32_t size)
{
    return offset <= SESSION_MEMORY && size <= SESSION_MEMORY - offset;
}

/* Run a module on the arguments whose offsets are in the payload from this position on. */
static void call(uint8_t sequence, const struct session_module *module, uint32_t place, uint32_t size)
{
    static uint8_t *args[SESSION_FRAME / 4];
    uint32_t result[3];
    uint64_t cycles;
    if (module->arguments == 0 || (size - place) / 4 != module->arguments || size % 4 != 0) {
        answer(sequence, BAD_COMMAND, NULL, 0);
        return;
    }
    for (uint32_t i = 0; i < module->arguments; ++i) {
        const uint32_t offset = word_at(place + 4 * i);
        if (!inside(offset, module->sizes[i])) {
            answer(sequence, BAD_ADDRESS, NULL, 0);
            return;
        }
        args[i] = pool.bytes + offset;
    }
    cycles = port_cycles();
    result[0] = (uint32_t)module->call(args);
    cycles = port_cycles() - cycles;
    result[1] = (uint32_t)cycles;
    result[2] = (uint32_t)(cycles >> 32);
    answer(sequence, result[0] == 0 ? OK : MODEL_FAILED, result, sizeof result);
}

/* Run a module that was written to the pool, after checking that there is one at the offset. */
static void invoke(uint8_t sequence, uint32_t size)
{
    const uint32_t offset = size >= 4 ? word_at(0) : SESSION_MEMORY;
    const struct session_module *module = (const void *)(pool.bytes + offset % SESSION_MEMORY);
    if (offset % GRAIN != 0 || !inside(offset, sizeof *module) || module->magic != SESSION_MODULE) {
        answer(sequence, BAD_ADDRESS, NULL, 0);
        return;
    }
#ifdef __arm__
    __asm__ volatile("dsb\n\tisb" ::: "memory"); /* discard prefetched instructions */
#endif
    call(sequence, module, 4, size);
}

static void serve(uint8_t sequence, uint8_t command, uint32_t size)
{
    uint32_t words[5];
    switch (command) {
    case HELLO:
        words[0] = VERSION;
        words[1] = SESSION_MEMORY;
        words[2] = SESSION_FRAME;
        words[3] = session_model.arguments;
        words[4] = (uint32_t)(uintptr_t)pool.bytes;
        answer(sequence, OK, words, sizeof words);
        return;
    case ALLOC:
        words[0] = size == 4 ? allocate(word_at(0)) : SESSION_MEMORY;
        answer(sequence, words[0] < SESSION_MEMORY ? OK : NO_MEMORY, words, 4);
        return;
    case FREE:
        answer(sequence, size == 4 && release(word_at(0)) ? OK : BAD_ADDRESS, NULL, 0);
        return;
    case WRITE:
        if (size < 4 || !inside(word_at(0), size - 4)) {
            answer(sequence, BAD_ADDRESS, NULL, 0);
            return;
        }
        memcpy(pool.bytes + word_at(0), payload + 4, size - 4);
        answer(sequence, OK, NULL, 0);
        return;
    case READ:
        if (size != 8 || !inside(word_at(0), word_at(4)))
            answer(sequence, BAD_ADDRESS, NULL, 0);
        else
            answer(sequence, OK, pool.bytes + word_at(0), word_at(4));
        return;
    case CALL:
        call(sequence, &session_model, 0, size);
        return;
    case INVOKE:
        invoke(sequence, size);
        return;
    case CLEAR:
        memset(taken, 0, sizeof taken);
        answer(sequence, OK, NULL, 0);
        return;
    default:
        answer(sequence, BAD_COMMAND, NULL, 0);
    }
}

int main(void)
{
    port_start();
    make_table();
    for (;;) {
        uint8_t sequence, command;
        uint32_t size, wanted;
        find_frame();
        sequence = get();
        command = get();
        size = get_word();
        if (size > SESSION_FRAME) {
            answer(sequence, BAD_COMMAND, NULL, 0);
            continue;
        }
        for (uint32_t i = 0; i < size; ++i)
            payload[i] = get();
        wanted = sum ^ 0xffffffffu;
        if (get_word() != wanted)
            answer(sequence, BAD_CHECKSUM, NULL, 0);
        else if (command == END) {
            answer(sequence, OK, NULL, 0);
            port_end();
        } else
            serve(sequence, command, size);
    }
}
