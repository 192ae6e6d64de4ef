/*
 * In place of libunwind in programs for routers, which have no tables to unwind by (scripts/chips): 18 kB of an AArch64
 * program, 5 of an ARMv7 one. What the standard library asks when a panic is to show where it came from finds the end of the
 * stack at once; the panic's own message says where it was.
 */
#include <stdint.h>

enum { FAILURE = 9, END_OF_STACK = 5 };

int _Unwind_Backtrace(int (*step)(void *, void *), void *argument)
{
    (void)step;
    (void)argument;
    return END_OF_STACK;
}

uintptr_t _Unwind_GetIP(void *context)
{
    (void)context;
    return 0;
}

#if defined(__arm__)
int _Unwind_VRS_Get(void *context, int class, uint32_t number, int representation, void *value)
{
    (void)context;
    (void)class;
    (void)number;
    (void)representation;
    *(uint32_t *)value = 0;
    return 0;
}

/* Named in tables of the C library's own. */
int __aeabi_unwind_cpp_pr0(int state, void *block, void *context)
{
    (void)state;
    (void)block;
    (void)context;
    return FAILURE;
}

int __aeabi_unwind_cpp_pr1(int state, void *block, void *context)
{
    return __aeabi_unwind_cpp_pr0(state, block, context);
}
#endif
