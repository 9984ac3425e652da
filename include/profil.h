/*
 * profil.h - where a process spends its CPU time, as a histogram over its code
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * profil() and pcsample() as on Solaris, for every thread of the calling process, also those created later.
 * Link with -lprofil, before the C library, which has its own profil().
 *
 * There are 100 ticks per second of CPU time; PROFIL_HZ (1 to 10000) in the environment sets another rate.
 * Ticks come from perf events: in user mode only, without signals or timers, and with no descriptor in the
 * program's table. Where perf events are denied, each thread gets a CPU-time timer and the highest free
 * real-time signal. PROFIL_CLOCK (perf or timers) in the environment selects one of the two. See profil(3).
 *
 * Do not call any of the functions from a signal handler.
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
 * Counts ticks in the cells of buf, which is bufsiz bytes long. The cell of a program counter is
 * (pc - offset) * scale / 65536 / 2, rounded down; ticks without a cell are not counted. A cell covers 2 bytes
 * of code if scale is 0x10000, 8 if 0x4000, 65536 if 2. A call replaces a running profile, also of pcsample().
 *
 *   off           a scale of 0 or 1, or buf NULL
 *   no effect     bufsiz 0 (off as well)
 *   ends          with the tick that would exceed 32767 in a cell (it is not counted), and with one whose cell
 *                 cannot be read and written
 *   fork          goes on in parent and child, each with its own copy of buf
 *   exec          ends
 *
 * Returns 0, or -1 with errno if no clock or no thread is available.
 */
extern int profil(unsigned short *buf, size_t bufsiz, size_t offset, unsigned int scale) PROFIL_THROW;

/*
 * Stores the program counter of every tick in samples until there are nsamples; nsamples 0 turns sampling off.
 * Returns the number stored since the last call: 0 the first time, and after profil(). Returns -1 with errno
 * on failure: EINVAL if nsamples is negative.
 */
extern long pcsample(uintptr_t samples[], long nsamples) PROFIL_THROW;

/*
 * Starts a profile whose histogram the library keeps: of the code from low up to high, or of the whole program
 * if both are NULL. Counts have 32 bits. Replaces a running profile. Returns -1 with EINVAL if high is not above
 * low, or more than 256 GiB above it.
 */
extern int profil_start(const void *low, const void *high) PROFIL_THROW;

/* Ends the profile, whichever call started it. The histogram of profil_start() is kept. */
extern int profil_stop(void) PROFIL_THROW;

/* Pauses the profile (mode 0) or resumes it, like moncontrol(). Returns -1 with EINVAL if there is none. */
extern int profil_control(int mode) PROFIL_THROW;

/* Writes the histogram of profil_start() to path (NULL: gmon.out) for gprof -p. */
extern int profil_write_gmon(const char *path) PROFIL_THROW;

/* state */
#define PROFIL_OFF 0
#define PROFIL_ON 1
#define PROFIL_PAUSED 2
#define PROFIL_SATURATED 3 /* ended: a count would have exceeded its limit */
#define PROFIL_FAULT 4     /* ended: the buffer could not be read and written */
#define PROFIL_FULL 5      /* ended: pcsample() has stored nsamples */
#define PROFIL_FAILED 6    /* ended: no clock in the child of a fork */

/* clock */
#define PROFIL_PERF 1
#define PROFIL_TIMERS 2

struct profil_info {
    int state;
    int clock; /* 0 if there was no profile */
    unsigned int rate;
    unsigned int reserved;
    double achieved_rate; /* samples per second of CPU time; timers reach the kernel's HZ at most */
    double cpu_seconds;   /* CPU time that could have ticks: user mode only with perf */
    uint64_t ticks;       /* counted or stored */
    uint64_t outside;     /* outside the region */
    uint64_t lost;        /* found no room */
    uint64_t throttled;   /* times that the kernel slowed the clock down */
};

/* Describes the latest profile; all ticks so far have been counted. Returns -1 with EINVAL if info is NULL. */
extern int profil_get_info(struct profil_info *info) PROFIL_THROW;

#ifdef __cplusplus
}
#endif

#endif
