/*
 * profil.h - where a process spends its CPU time, as a histogram over its code
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * profil() and pcsample() as on Solaris, for every thread of the calling process, those created later too.
 * Link with -lprofil, before the C library, which has a profil() of its own.
 *
 * Ticks come at 100 per second of CPU time, or PROFIL_HZ (1 to 10000) in the environment, from perf events:
 * in user mode only, without signals or timers, and with no descriptor in the program's table. Where these
 * are denied, each thread gets a CPU-time timer and the highest real-time signal that is free; PROFIL_CLOCK
 * (perf or timers) in the environment asks for one of the two. See profil(3).
 *
 * None of the functions may be called from a signal handler.
 */
#ifndef PROFIL_H
#define PROFIL_H 1

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* <unistd.h> declares profil() too, and says that it does not throw. */
#ifdef __THROW
#define PROFIL_THROW __THROW
#else
#define PROFIL_THROW
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Counts ticks in the cells of buf, bufsiz bytes long: the cell of a program counter is
 * (pc - offset) * scale / 65536 / 2, rounded down; others are not counted. 0x10000 is 2 bytes of code to a
 * cell, 0x4000 is 8, 2 is 65536. A call replaces the profile there is, also one by pcsample().
 *
 *   off           a scale of 0 or 1, or buf NULL
 *   no effect     bufsiz 0 (off as well)
 *   ends          with the tick that would exceed 32767 in a cell (it is not counted), and with one whose cell
 *                 cannot be read and written
 *   fork          goes on in both, each with its own copy of buf
 *   exec          ends
 *
 * 0, or -1 with errno where there is no clock or no thread to be had.
 */
extern int profil(unsigned short *buf, size_t bufsiz, size_t offset, unsigned int scale) PROFIL_THROW;

/*
 * Stores the program counter of every tick in samples until there are nsamples; 0 turns it off. Gives the
 * number stored since the last call: 0 the first time, and after profil(). -1 with errno, EINVAL if nsamples
 * is negative.
 */
extern long pcsample(uintptr_t samples[], long nsamples) PROFIL_THROW;

/*
 * A profile whose histogram the library keeps: for the code from low up to high, or for all of the program when
 * both are NULL. Counts have 32 bits. It replaces the profile there is. -1 with EINVAL if high is not above low,
 * or more than 256 GiB above it.
 */
extern int profil_start(const void *low, const void *high) PROFIL_THROW;

/* Ends the profile, by whichever call it was started. The histogram of profil_start() is kept. */
extern int profil_stop(void) PROFIL_THROW;

/* Lets the profile stand still (mode 0) or go on, like moncontrol(). -1 with EINVAL if there is none. */
extern int profil_control(int mode) PROFIL_THROW;

/* Writes the histogram of profil_start() to path (NULL: gmon.out) for gprof -p. */
extern int profil_write_gmon(const char *path) PROFIL_THROW;

/* state */
#define PROFIL_OFF 0
#define PROFIL_ON 1
#define PROFIL_PAUSED 2
#define PROFIL_SATURATED 3 /* ended: a count would have exceeded its limit */
#define PROFIL_FAULT 4     /* ended: the buffer could not be read and written */
#define PROFIL_FULL 5      /* ended: pcsample() has stored all it was asked for */
#define PROFIL_FAILED 6    /* ended: no clock in the child of a fork */

/* clock */
#define PROFIL_PERF 1
#define PROFIL_TIMERS 2

struct profil_info {
    int state;
    int clock; /* 0 if there was no profile */
    unsigned int rate;
    unsigned int reserved;
    double achieved_rate; /* samples per second of CPU time, as it was; timers reach the kernel's HZ at most */
    double cpu_seconds;   /* CPU time that could have ticks: user mode only with perf */
    uint64_t ticks;       /* counted or stored */
    uint64_t outside;     /* outside the region */
    uint64_t lost;        /* found no room */
    uint64_t throttled;   /* times the kernel slowed the clock down */
};

/* How the latest profile goes or went; what is on its way has been counted. -1 with EINVAL if info is NULL. */
extern int profil_get_info(struct profil_info *info) PROFIL_THROW;

#ifdef __cplusplus
}
#endif

#endif
