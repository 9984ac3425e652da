/*
 * Checks for test programs: a failed one is printed, and makes the program fail in the end.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thread_db.h>
#include <time.h>
#include <unistd.h>

static int failures;

__attribute__((unused)) static const char *td_name(int error)
{
    static const char *const names[] = {
        "TD_OK",      "TD_ERR",    "TD_NOTHR",  "TD_NOSV",     "TD_NOLWP",       "TD_BADPH",   "TD_BADTH",    "TD_BADSH",
        "TD_BADTA",   "TD_BADKEY", "TD_NOMSG",  "TD_NOFPREGS", "TD_NOLIBTHREAD", "TD_NOEVENT", "TD_NOCAPAB",  "TD_DBERR",
        "TD_NOAPLIC", "TD_NOTSD",  "TD_MALLOC", "TD_PARTIALREG", "TD_NOXREGS",   "TD_TLSDEFER", "TD_VERSION", "TD_NOTLS",
    };
    return error >= 0 && (size_t)error < sizeof names / sizeof *names ? names[error] : "not a td_err_e";
}

#define CHECK(condition, ...)                                                                                \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            failures++;                                                                                      \
            printf("%s:%d: not %s: ", __FILE__, __LINE__, #condition);                                       \
            printf(__VA_ARGS__);                                                                             \
            printf("\n");                                                                                    \
            fflush(stdout);                                                                                  \
        }                                                                                                    \
    } while (0)

/* Checks what a td_ function returns. */
#define GIVES(wanted, call)                                                                                  \
    do {                                                                                                     \
        int got_ = (call);                                                                                   \
        if (got_ != (int)(wanted)) {                                                                           \
            failures++;                                                                                      \
            printf("%s:%d: %s gives %s, not %s\n", __FILE__, __LINE__, #call, td_name(got_),                 \
                   td_name(wanted));                                                                         \
            fflush(stdout);                                                                                  \
        }                                                                                                    \
    } while (0)

/* Waits for something that comes true by itself; a minute is more than the busiest machine needs. */
#define EVENTUALLY(condition)                                                                                \
    do {                                                                                                     \
        struct timespec nap_ = { 0, 1000000 };                                                               \
        int left_ = 60000;                                                                                   \
        while (!(condition) && --left_)                                                                      \
            nanosleep(&nap_, NULL);                                                                          \
        CHECK(left_, "not within a minute");                                                                 \
    } while (0)

#endif
