/* The port of a session to the MPS2 and MPS3 boards: the first UART, whose address is SESSION_UART, and the SysTick
   counter for cycles. */
#include <stdint.h>
#include <stdlib.h>

#ifndef SESSION_UART
#define SESSION_UART 0x40004000u
#endif
#define UART ((volatile uint32_t *)SESSION_UART)
enum { DATA = 0, STATE = 1, CONTROL = 2, BAUD = 4 };
#define TICK ((volatile uint32_t *)0xE000E010u)
#define TICKS 0x01000000u

void port_start(void);
uint8_t port_get(void);
void port_put(uint8_t byte);
uint64_t port_cycles(void);
void port_end(void);
void tick(void);

static volatile uint32_t wraps;

/* The interrupt handler of SysTick. */
void tick(void)
{
    ++wraps;
}

void port_start(void)
{
    UART[BAUD] = 16;
    UART[CONTROL] = 3;
    TICK[1] = TICKS - 1;
    TICK[2] = 0;
    TICK[0] = 7;
}

uint8_t port_get(void)
{
    while ((UART[STATE] & 2u) == 0)
        ;
    return (uint8_t)UART[DATA];
}

void port_put(uint8_t byte)
{
    while ((UART[STATE] & 1u) != 0)
        ;
    UART[DATA] = byte;
}

uint64_t port_cycles(void)
{
    uint32_t before, now;
    do {
        before = wraps;
        now = TICK[2];
    } while (before != wraps);
    return (uint64_t)before * TICKS + (TICKS - 1 - now);
}

void port_end(void)
{
    exit(0);
}
