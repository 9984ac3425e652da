/*
 * A shared library with thread-local variables, linked to debugged.c or loaded by it while it runs.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <stddef.h>

#ifndef NAME
#define NAME library
#endif
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

__thread char JOIN(NAME, _room)[3000] = "so that it does not fit into spare static storage";
__thread int JOIN(NAME, _value) = 5;

int JOIN(NAME, _add)(int n);
int *JOIN(NAME, _touch)(void);

int JOIN(NAME, _add)(int n)
{
    JOIN(NAME, _value) += n;
    return JOIN(NAME, _value);
}

int *JOIN(NAME, _touch)(void)
{
    JOIN(NAME, _room)[1]++;
    return &JOIN(NAME, _value);
}
