/* The start-up code of a firmware on a Cortex-M board.  It initialises memory, enables the floating-point unit, and
   calls main. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern uint32_t __stack[], __data_load[], __data_start[], __data_end[], __bss_start__[], __bss_end__[];

int main(void);
void initialise_monitor_handles(void);
void reset(void);
void tick(void);
void fault(void);
void _init(void);
void _fini(void);

/* The C library calls these before and after main. */
void _init(void)
{
}

void _fini(void)
{
}

void reset(void)
{
#ifdef __ARM_FP
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20;
    __asm volatile("dsb\n\tisb");
#endif
    memcpy(__data_start, __data_load, (size_t)((char *)__data_end - (char *)__data_start));
    memset(__bss_start__, 0, (size_t)((char *)__bss_end__ - (char *)__bss_start__));
    initialise_monitor_handles();
    exit(main());
}

/* The handler of faults, which a program may define. */
__attribute__((weak)) void fault(void)
{
    abort();
}

/* The interrupt handler of SysTick, which a program may define. */
__attribute__((weak)) void tick(void)
{
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
    (void (*)(void))__stack, reset, fault, fault, fault, fault, fault, fault,
    NULL, NULL, NULL, fault, fault, NULL, fault, tick,
};
