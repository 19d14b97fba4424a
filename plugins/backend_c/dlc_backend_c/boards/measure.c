/* A firmware that runs a model once, counts its cycles, and writes them with the outputs to the standard output.
   It uses the semihosting calls of the emulator, without the C library's streams.  measure.py describes the answer. */
#include "measure.h"

#define TICK ((volatile uint32_t *)0xE000E010u)
#define TICKS 0x01000000u
#define CAUSE ((volatile uint32_t *)0xE000ED28u)
#define ADDRESS ((volatile uint32_t *)0xE000ED38u)
enum { SYS_OPEN = 0x01, SYS_WRITE = 0x05, SYS_EXIT_EXTENDED = 0x20, WRITE_BINARY = 5 };
enum { EXITED = 0x20026, FAILED = 1, FAULT = 70, TOO_LONG = 71 };
enum { ANSWER = 0x4d454153 };

void fault(void);
void tick(void);
int main(void);

static volatile uint32_t wraps;

static int32_t host(int32_t operation, const void *argument)
{
    register int32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static void stop(uint32_t status)
{
    const uint32_t words[2] = {EXITED, status};
    host(SYS_EXIT_EXTENDED, words);
    for (;;)
        ;
}

static void send(const void *bytes, uint32_t size)
{
    static const char name[] = ":tt";
    const uint32_t opened[3] = {(uint32_t)(uintptr_t)name, WRITE_BINARY, sizeof name - 1};
    static int32_t handle;
    uint32_t words[3];
    if (handle == 0)
        handle = host(SYS_OPEN, opened);
    words[0] = (uint32_t)handle;
    words[1] = (uint32_t)(uintptr_t)bytes;
    words[2] = size;
    if (host(SYS_WRITE, words) != 0)
        stop(FAILED);
}

/* The handler of all faults: it sends the registers that the processor has saved, the program counter among them. */
__attribute__((used)) static void report(const uint32_t *frame)
{
    const uint32_t words[4] = {FAULT, frame[6], *CAUSE, *ADDRESS};
    send(words, sizeof words);
    stop(FAULT);
}

__attribute__((naked)) void fault(void)
{
    __asm__ volatile("mrs r0, msp\n\tldr r1, =report\n\tbx r1");
}

/* The interrupt handler of SysTick.  It ends a program that runs too long, if nobody else does. */
void tick(void)
{
    if (++wraps > measure_plan.wraps)
        stop(TOO_LONG);
}

static uint64_t ticks(void)
{
    uint32_t before, now;
    do {
        before = wraps;
        now = TICK[2];
    } while (before != wraps);
    return (uint64_t)before * TICKS + (TICKS - 1 - now);
}

int main(void)
{
    uint64_t begin, empty, end;
    uint32_t words[4] = {ANSWER};
    TICK[1] = TICKS - 1;
    TICK[2] = 0;
    TICK[0] = 7;
    while (TICK[2] == 0)
        ; /* the counter is reloaded at the first tick */
    begin = ticks();
    empty = ticks() - begin;
    begin = ticks();
    words[1] = (uint32_t)measure_plan.call();
    end = ticks() - begin;
    end = end > empty ? end - empty : 0;
    words[2] = (uint32_t)end;
    words[3] = (uint32_t)(end >> 32);
    send(words, sizeof words);
    send(measure_plan.outputs, measure_plan.output_bytes);
    stop(0);
    return 0;
}
