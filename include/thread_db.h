/*
 * thread_db.h - look at the threads and locks of another process, or of its core file
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The interface of Solaris libc_db (libthread_db) for Linux x86-64 and glibc. Link with -lc_db, or load
 * the library as libthread_db.so.1.
 *
 * What you give: a process handle. A debugger passes its own and defines the ps_ routines of
 * <proc_service.h>; any other program takes a ready-made one from tg_attach_pid() or tg_open_core().
 * What you get: a session (td_ta_new), and through it handles of threads (td_ta_thr_iter) and of
 * synchronization objects (td_ta_sync_iter). Handles are small values, which you may copy.
 * What it does not do: stop, signal or write to the process in a call that only looks, unless the client
 * offers ps_pstop(), or the comment of the function says so. (To learn whether a debugger's process is
 * alive, the library once writes some of its bytes over themselves, which a core file refuses.)
 *
 * This file replaces the <thread_db.h> of glibc and uses its include guard, so including both is
 * harmless: the first one counts. Whatever glibc's header declares has the same name, number, layout and
 * signature here. The rest (synchronization objects) has the names and LP64 layouts of illumos.
 *
 * Return values that all functions of a kind share, not repeated below:
 *
 *   TD_OK       done. Also when a callback ended an iteration by returning non-zero (glibc: TD_DBERR).
 *   TD_BADTA    the session, or the session in the handle, is NULL or was not made by td_ta_new().
 *   TD_BADPH    the session was deleted, or its tg_ process handle released.
 *   TD_BADTH    (thread handles) NULL, or its th_unique is not a thread of the process.
 *   TD_BADSH    (sync handles) NULL, or its sh_unique is 0.
 *   TD_ERR      an output pointer, a callback or another required pointer is NULL; this is checked first.
 *               Also if the process's list of threads is corrupt and the call needs it.
 *   TD_DBERR    the process could not be read or written: a ps_ routine failed. Never a partial answer.
 *   TD_NOCAPAB  it cannot be done on this process: a core file, no permission, or traced by another.
 *   TD_MALLOC   out of memory.
 *
 * All functions may be called from several threads at once and from inside a callback. A callback may
 * throw a C++ exception, which passes through; no lock is held while a callback runs. The handle passed
 * to a callback is valid until the callback returns; copy it if you need it longer.
 */
#ifndef _THREAD_DB_H
#define _THREAD_DB_H 1

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/procfs.h>
#include <sys/types.h>

/* Defined only by this header: the sync and tg_ functions are declared. */
#define THREADGLASS_LIBC_DB 1

#ifdef __cplusplus
extern "C" {
#endif

/* ==== Types ========================================================================================= */

/* Result of a call. Values 21 to 23 are glibc's; illumos has TD_NOTLS 21 and TD_TLSDEFER 22. */
typedef enum {
    TD_OK = 0,           /* done */
    TD_ERR = 1,          /* failed; see the function */
    TD_NOTHR = 2,        /* no thread fits */
    TD_NOSV = 3,         /* no synchronization object fits (never returned) */
    TD_NOLWP = 4,        /* the thread has exited and has no LWP */
    TD_BADPH = 5,        /* process handle not valid, or no longer */
    TD_BADTH = 6,        /* thread handle not valid */
    TD_BADSH = 7,        /* synchronization object handle not valid */
    TD_BADTA = 8,        /* session not valid */
    TD_BADKEY = 9,       /* no such thread-specific data key */
    TD_NOMSG = 10,       /* no event is waiting */
    TD_NOFPREGS = 11,    /* no floating-point registers available */
    TD_NOLIBTHREAD = 12, /* the process has no glibc threads, or not yet */
    TD_NOEVENT = 13,     /* this event is never reported */
    TD_NOCAPAB = 14,     /* cannot be done on this process */
    TD_DBERR = 15,       /* a ps_ routine failed */
    TD_NOAPLIC = 16,     /* does not apply (never returned) */
    TD_NOTSD = 17,       /* the thread has no value for this key */
    TD_MALLOC = 18,      /* out of memory */
    TD_PARTIALREG = 19,  /* of a task without an LWP: only the registers that are saved, all others are 0 */
    TD_NOXREGS = 20,     /* no extra registers available */
    TD_TLSDEFER = 21,    /* the thread has not allocated this module's TLS yet */
    TD_NOTALLOC = 21,    /* old name of TD_TLSDEFER */
    TD_VERSION = 22,     /* the process has an unknown thread library (not in illumos) */
    TD_NOTLS = 23        /* no such module, or it has no TLS */
} td_err_e;

/* State of a thread; td_thr_get_info() says when each occurs. */
typedef enum {
    TD_THR_ANY_STATE = 0, /* only as a filter of td_ta_thr_iter() */
    TD_THR_UNKNOWN = 1,
    TD_THR_STOPPED = 2,
    TD_THR_RUN = 3,
    TD_THR_ACTIVE = 4,
    TD_THR_ZOMBIE = 5,
    TD_THR_SLEEP = 6,
    TD_THR_STOPPED_ASLEEP = 7
} td_thr_state_e;

/* Who made a thread. */
typedef enum {
    TD_THR_ANY_TYPE = 0, /* never reported */
    TD_THR_USER = 1,     /* the program */
    TD_THR_SYSTEM = 2    /* libc, the lock tracking agent of this library, or the runtime of tasks */
} td_thr_type_e;

/* A session: one process or core file under inspection. Opaque. Solaris calls it an agent. */
typedef struct td_thragent td_thragent_t;

/* A thread of that process. th_unique is the pthread_t; 0 only before the process has set up threads. */
typedef struct td_thrhandle {
    td_thragent_t *th_ta_p;
    psaddr_t th_unique;
} td_thrhandle_t;

/* A synchronization object of that process. sh_unique is its address there. Not in glibc. */
typedef struct td_synchandle {
    td_thragent_t *sh_ta_p;
    psaddr_t sh_unique;
} td_synchandle_t;

struct link_map;      /* of the dynamic linker */
struct ps_prochandle; /* of the client */

/* Solaris names of the POSIX types. A thread_t is a pthread_t of the target, not a small number. */
typedef pthread_t thread_t;
typedef pthread_key_t thread_key_t;

/* Nanoseconds. */
__extension__ typedef long long td_hrtime_t;

/*
 * Names that the Solaris pages use and Linux lacks. Define TD_NO_SOLARIS_TYPES before including this file if
 * the program has its own types with these names.
 */
#ifndef TD_NO_SOLARIS_TYPES
typedef td_hrtime_t hrtime_t;
typedef unsigned char uchar_t;
#endif

/* ---- Filters of td_ta_thr_iter() that select every thread ------------------------------------------ */

#define TD_THR_ANY_USER_FLAGS 0xffffffff
#define TD_THR_LOWEST_PRIORITY (-20) /* illumos: -128. Any value up to -20 means every priority. */
#define TD_SIGNO_MASK NULL

/* ---- Events ---------------------------------------------------------------------------------------- */

#define TD_EVENTSIZE 2
#define BT_UISHIFT 5                  /* log2 of the bits in a word of an event set */
#define BT_NBIPUI (1 << BT_UISHIFT)   /* bits in a word */
#define BT_UIMASK (BT_NBIPUI - 1)     /* selects the bit number within a word */

/* A set of events: event n (from 1) is bit n - 1, counted from the low bit of word 0. */
typedef struct td_thr_events {
    uint32_t event_bits[TD_EVENTSIZE];
} td_thr_events_t;

#define __td_eventword(n) (((unsigned int)(n) - 1u) >> BT_UISHIFT)
#define __td_eventmask(n) ((uint32_t)1 << (((unsigned int)(n) - 1u) & BT_UIMASK))

#define td_event_emptyset(setp) ((void)((setp)->event_bits[0] = (setp)->event_bits[1] = 0u))
#define td_event_fillset(setp) ((void)((setp)->event_bits[0] = (setp)->event_bits[1] = ~(uint32_t)0))
#define td_event_addset(setp, n) ((setp)->event_bits[__td_eventword(n)] |= __td_eventmask(n))
#define td_event_delset(setp, n) ((setp)->event_bits[__td_eventword(n)] &= ~__td_eventmask(n))
#define td_eventismember(setp, n) ((setp)->event_bits[__td_eventword(n)] & __td_eventmask(n))
#define td_eventisempty(setp) (((setp)->event_bits[0] | (setp)->event_bits[1]) == 0u)

/* Events. glibc programs report TD_CREATE and TD_DEATH; the others never happen on Linux. */
typedef enum {
    TD_ALL_EVENTS = 0,
    TD_EVENT_NONE = 0,
    TD_READY = 1,
    TD_SLEEP = 2,
    TD_SWITCHTO = 3,
    TD_SWITCHFROM = 4,
    TD_LOCK_TRY = 5,
    TD_CATCHSIG = 6,
    TD_IDLE = 7,
    TD_CREATE = 8, /* a thread was created */
    TD_DEATH = 9,  /* a thread is about to exit */
    TD_PREEMPT = 10,
    TD_PRI_INHERIT = 11,
    TD_REAP = 12,
    TD_CONCURRENCY = 13,
    TD_TIMEOUT = 14,
    TD_MIN_EVENT_NUM = 1,
    TD_MAX_EVENT_NUM = 14,
    TD_EVENTS_ENABLE = 31
} td_event_e;

/* How the process shows that an event happened. */
typedef enum {
    NOTIFY_BPT = 0,     /* it runs over u.bptaddr, where the client has set a breakpoint; always this here */
    NOTIFY_AUTOBPT = 1, /* it runs into a breakpoint of its own at u.bptaddr */
    NOTIFY_SYSCALL = 2  /* it makes system call u.syscallno */
} td_notify_e;

typedef struct td_notify {
    td_notify_e type;
    union {
        psaddr_t bptaddr;
        int syscallno;
    } u;
} td_notify_t;

/* An event that happened. */
typedef struct td_event_msg {
    td_event_e event;           /* which */
    const td_thrhandle_t *th_p; /* to which thread; see the function for how long it is valid */
    union {
        uintptr_t data;      /* TD_CREATE and TD_DEATH: pthread_t of the new or dying thread */
        td_synchandle_t *sh; /* in illumos' header only; never set */
    } msg;
} td_event_msg_t;

/* How glibc keeps the event of a thread inside the process. For completeness; no function uses it. */
typedef struct {
    td_thr_events_t eventmask;
    td_event_e eventnum;
    void *eventdata;
} td_eventbuf_t;

/* ---- Process statistics ---------------------------------------------------------------------------- */

/*
 * Filled by td_ta_get_stats(). The four averages are fractions over the time since the statistics were
 * enabled or reset (until they were disabled, or the process ended). They share one denominator, which is
 * never 0 (microseconds, or a multiple of them once these no longer fit an int), so their numerators can be
 * compared: a_concurrency_num <= nrunnable_num <= nlwps_num, nidle_num = nlwps_num - nrunnable_num. Where tasks are
 * shown (tg_show_tasks), nrunnable also counts tasks that could run and have no LWP, so nrunnable_num may be larger than
 * nlwps_num. Before
 * any time has passed, and if they were never enabled, they are 0/1. Time in which a debugger holds the
 * process stopped counts.
 */
typedef struct td_ta_stats {
    int nthreads;          /* threads now, as td_ta_get_nthreads(): always current */
    int r_concurrency;     /* what pthread_getconcurrency() says in the process, or how many tasks may run at one time
                              (GOMAXPROCS); 0 if unreadable: current */
    int nrunnable_num;     /* average number of threads running or waiting for a CPU */
    int nrunnable_den;
    int a_concurrency_num; /* average number of threads running; at most the one above */
    int a_concurrency_den;
    int nlwps_num;         /* average number of LWPs; every thread has one until it ends */
    int nlwps_den;
    int nidle_num;         /* average number of LWPs neither running nor waiting for a CPU: their thread sleeps */
    int nidle_den;
} td_ta_stats_t;

/* ---- Thread information ---------------------------------------------------------------------------- */

/*
 * Filled by td_thr_get_info(): glibc's layout (384 bytes), with every member filled; glibc's own library
 * leaves those marked + at 0. A member that is not known (for instance the signal mask when a debugger
 * looks at a core) is 0 or empty.
 */
typedef struct td_thrinfo {
    td_thragent_t *ti_ta_p;      /* the session of the handle */
    unsigned int ti_user_flags;  /* + 0x40 (THR_DETACHED) if detached, else 0 */
    thread_t ti_tid;             /* pthread_t of the thread, the same number as th_unique */
    __extension__ union {
        char *ti_tls;            /* address of the thread's table of thread-specific data, as glibc has it */
        void *ti_exitval;        /* illumos' name of this member; it is not the exit value here */
    };
    psaddr_t ti_startfunc;       /* function given to pthread_create(); 0 for the initial thread */
    psaddr_t ti_stkbase;         /* + HIGHEST address of the stack (its end), as illumos */
    long ti_stksize;             /* + its size: the stack is [ti_stkbase - ti_stksize, ti_stkbase) */
    psaddr_t ti_ro_area;         /* + address of libc's descriptor of the thread (struct pthread) */
    int ti_ro_size;              /* + size of that descriptor */
    td_thr_state_e ti_state;     /* state; glibc's library knows only ACTIVE, ZOMBIE and UNKNOWN */
    unsigned char ti_db_suspended; /* + non-zero while td_thr_dbsuspend() holds the thread */
    td_thr_type_e ti_type;       /* SYSTEM for threads of libc itself and of our agent, else USER */
    intptr_t ti_pc;              /* + program counter, if SLEEP, STOPPED or STOPPED_ASLEEP */
    intptr_t ti_sp;              /* + stack pointer, in the same states */
    short ti_flags;              /* + low bits of the descriptor's cancelhandling word */
    int ti_pri;                  /* scheduling priority: 0 time-sharing, 1 to 99 real-time */
    lwpid_t ti_lid;              /* kernel thread id; -1 for a thread that has exited, 0 for a task without an LWP */
    sigset_t ti_sigmask;         /* + blocked signals */
    unsigned char ti_traceme;    /* non-zero if td_thr_event_enable() is on */
    unsigned char ti_preemptflag; /* + non-zero if it last lost its CPU while it could still run */
    unsigned char ti_pirecflag;  /* + non-zero while priority inheritance lends it another priority */
    sigset_t ti_pending;         /* + signals pending for this thread, not those of the process */
    td_thr_events_t ti_events;   /* events enabled for this thread */
} td_thrinfo_t;

/* ---- Synchronization objects (layouts of illumos; not in glibc) ------------------------------------ */

/*
 * Barriers, spin locks, once controls, thread ends and other futex words have no type of their own: UNKNOWN.
 * Locks of other libraries (Rust's standard library, parking_lot, libc's own locks) have the type of the
 * corresponding pthread lock, but another si_size.
 */
typedef enum td_sync_type_e {
    TD_SYNC_UNKNOWN = 0, /* the type cannot be told */
    TD_SYNC_COND = 1,    /* pthread_cond_t */
    TD_SYNC_MUTEX = 2,   /* pthread_mutex_t */
    TD_SYNC_SEMA = 3,    /* sem_t */
    TD_SYNC_RWLOCK = 4   /* pthread_rwlock_t */
} td_sync_type_e;

#define TD_SV_MAX_FLAGS 4
typedef uint8_t td_sync_flags_t;

/* Filled by td_sync_get_info(). Members that do not apply to the type are 0. */
typedef struct td_syncinfo {
    td_thragent_t *si_ta_p;  /* the session of the handle */
    psaddr_t si_sv_addr;     /* address of the object in the process */
    td_sync_type_e si_type;  /* type of the object */
    uint32_t si_shared_type; /* 0 private, 1 process-shared */
    /* Robust mutexes, byte 0: 1 the owner died, 2 not recoverable. Everything else is 0. */
    td_sync_flags_t si_flags[TD_SV_MAX_FLAGS];
    pid_t si_ownerpid; /* process-shared and owned (mutex, write-held rwlock): process of the owner */
    union {
        int sem_count;    /* semaphores: the value */
        int sema_count;   /* the same member, as the manual page spells it */
        int nreaders;     /* rwlocks: readers holding it, or -1 if a writer does */
        int mutex_locked; /* mutexes: non-zero if locked */
    } si_state;
    int si_size;            /* pthread types: 40, 48, 32 or 56; others': smaller; 0 if the type is unknown */
    uint8_t si_has_waiters; /* a thread is blocked on it; if process-shared, also the object's own mark */
    __extension__ union {
        uint8_t si_is_wlock;   /* rwlocks: non-zero if a writer holds it */
        uint8_t si_is_wlocked; /* the same member, as the manual page spells it */
    };
    uint8_t si_rcount;       /* recursive mutexes: acquisitions beyond the first, at most 255 */
    uint8_t si_prioceiling;  /* PTHREAD_PRIO_PROTECT mutexes: the ceiling */
    td_thrhandle_t si_owner; /* holder of the mutex or write lock; all 0 if none, or not of this process */
    psaddr_t si_data;        /* semaphores: the value; rwlocks: the raw word of readers */
} td_syncinfo_t;

/*
 * Counters stop at 0xffffffff. Times are nanoseconds; holds that are not over are not in them. Hold times
 * are extrapolated from samples unless tracking was started in its exact mode.
 */
typedef struct td_mutex_stats {
    unsigned int mutex_lock;      /* acquisitions, by lock, try or after a condition wait; not re-entries */
    unsigned int mutex_sleep;     /* acquisitions that had to block */
    td_hrtime_t mutex_sleep_time; /* time blocked */
    td_hrtime_t mutex_hold_time;  /* time held */
    unsigned int mutex_try;       /* trylock calls */
    unsigned int mutex_try_fail;  /* those that failed */
    unsigned int mutex_internal;  /* always 0 */
} td_mutex_stats_t;

typedef struct td_cond_stats {
    unsigned int cond_wait;                /* untimed waits */
    unsigned int cond_timedwait;           /* timed waits */
    td_hrtime_t cond_wait_sleep_time;      /* time in untimed waits, taking the mutex again included */
    td_hrtime_t cond_timedwait_sleep_time; /* the same of timed waits */
    unsigned int cond_timedwait_timeout;   /* timed waits that timed out */
    unsigned int cond_signal;              /* signal calls, with or without waiters */
    unsigned int cond_broadcast;           /* broadcast calls, with or without waiters */
    unsigned int cond_internal;            /* always 0 */
} td_cond_stats_t;

/* Unlike illumos, the four sleep members are filled. */
typedef struct td_rwlock_stats {
    unsigned int rw_rdlock;           /* read locks taken, tries not counted */
    unsigned int rw_rdlock_sleep;     /* those that had to block */
    td_hrtime_t rw_rdlock_sleep_time; /* time blocked */
    unsigned int rw_rdlock_try;       /* tryrdlock calls */
    unsigned int rw_rdlock_try_fail;  /* those that failed */
    unsigned int rw_wrlock;           /* write locks taken, tries not counted */
    unsigned int rw_wrlock_sleep;     /* those that had to block */
    td_hrtime_t rw_wrlock_sleep_time; /* time blocked */
    td_hrtime_t rw_wrlock_hold_time;  /* time held by writers, after a try too */
    unsigned int rw_wrlock_try;       /* trywrlock calls */
    unsigned int rw_wrlock_try_fail;  /* those that failed */
} td_rwlock_stats_t;

typedef struct td_sema_stats {
    unsigned int sema_wait;           /* wait calls, timed or not */
    unsigned int sema_wait_sleep;     /* those that had to block */
    td_hrtime_t sema_wait_sleep_time; /* time blocked */
    unsigned int sema_trywait;        /* trywait calls */
    unsigned int sema_trywait_fail;   /* those that failed */
    unsigned int sema_post;           /* post calls */
    unsigned int sema_max_count;      /* largest value seen */
    unsigned int sema_min_count;      /* smallest value seen */
} td_sema_stats_t;

/* Filled by td_sync_get_stats(). */
typedef struct td_syncstats {
    td_syncinfo_t ss_info; /* as from td_sync_get_info(); its si_type says which member of ss_un counts */
    union {
        td_mutex_stats_t mutex;
        td_cond_stats_t cond;
        td_rwlock_stats_t rwlock;
        td_sema_stats_t sema;
        unsigned int pad[32];
    } ss_un;
} td_syncstats_t;

/* ---- Callbacks: return 0 to go on, anything else to end the iteration ------------------------------ */

typedef int td_thr_iter_f(const td_thrhandle_t *th_p, void *cbdata_p);
typedef int td_key_iter_f(thread_key_t key, void (*destructor)(void *), void *cbdata_p);
typedef int td_sync_iter_f(const td_synchandle_t *sh_p, void *cbdata_p); /* not in glibc */

/* ==== Library and sessions ========================================================================== */

/* Prepare the library. Always TD_OK; may be called often, or never. */
extern td_err_e td_init(void);

/* Does nothing. TD_OK. Returns void in illumos. */
extern td_err_e td_log(void);

/* Every symbol name the library may ask ps_pglobal_lookup() for, ended by NULL. Not in illumos. */
extern const char **td_symbol_list(void);

/*
 * Start a session for the process or core file of ph_p. On failure *ta_pp is NULL.
 * TD_BADPH: ph_p is NULL, or from tg_attach_pid() and its process has ended or executed another program.
 * TD_NOLIBTHREAD: no glibc there, or not yet, and no tasks (tg_show_tasks). TD_VERSION: an unknown thread library, or not x86-64.
 * Works with any glibc version (glibc's library needs its own). Does not switch tracking of synchronization
 * objects on (illumos may).
 */
extern td_err_e td_ta_new(struct ps_prochandle *ph_p, td_thragent_t **ta_pp);

/*
 * End a session. Threads that it suspended go on; lock tracking that it switched on ends, unless another session
 * or tool needs it. A second time: TD_BADPH.
 */
extern td_err_e td_ta_delete(td_thragent_t *ta_p);

/* The process handle that was given to td_ta_new(). */
extern td_err_e td_ta_get_ph(const td_thragent_t *ta_p, struct ps_prochandle **ph_pp);

/* Number of threads that td_ta_thr_iter() would report, including zombies (glibc: without). */
extern td_err_e td_ta_get_nthreads(const td_thragent_t *ta_p, int *nthread_p);

/* Ask for a number of LWPs. Does nothing, because each thread has its own: TD_OK (glibc: TD_NOCAPAB). */
extern td_err_e td_ta_setconcurrency(const td_thragent_t *ta_p, int level);

/*
 * Handle of the thread with this pthread_t, or on this LWP (tid == lwp on illumos, not here).
 * TD_NOTHR: there is none; this is checked (glibc accepts any number). TD_BADTH: th_p is NULL.
 * Under a debugger an LWP that libc did not make, and that shares the thread pointer of another thread, gives the handle
 * of that thread, as with glibc.
 * Before the process has set up threads, the LWP whose id is the pid gives a handle with th_unique 0, and
 * any other TD_ERR.
 */
extern td_err_e td_ta_map_id2thr(const td_thragent_t *ta_p, thread_t tid, td_thrhandle_t *th_p);
extern td_err_e td_ta_map_lwp2thr(const td_thragent_t *ta_p, lwpid_t lwpid, td_thrhandle_t *th_p);

/*
 * Handle of the synchronization object at an address. TD_ERR: addr is 0. TD_BADSH: sh_p is NULL, or addr is
 * not mapped, not writable or not aligned. Objects carry no type mark on Linux, so TD_OK does not promise
 * a lock: an object whose type cannot be told is TD_SYNC_UNKNOWN. Not in glibc.
 */
extern td_err_e td_ta_map_addr2sync(const td_thragent_t *ta_p, psaddr_t addr, td_synchandle_t *sh_p);

/* ==== Iteration ===================================================================================== */

/*
 * Call cb for each thread that passes all four filters: in this state; of priority ti_pri or higher; with
 * exactly this signal mask; with exactly these ti_user_flags. A thread whose priority is not known passes as one of
 * priority 0. TD_NOTHR: the process has no thread at
 * all. A state that does not exist: TD_OK, no callback. glibc applies only the priority.
 */
extern td_err_e td_ta_thr_iter(const td_thragent_t *ta_p, td_thr_iter_f *cb, void *cbdata_p,
                               td_thr_state_e state, int ti_pri, sigset_t *ti_sigmask_p,
                               unsigned int ti_user_flags);

/*
 * Call cb for each thread-specific data key in use, lowest first, with its destructor (an address in the
 * process, or NULL). Keys start at 0 (illumos: 1). glibc reports wrong keys on 64-bit systems.
 */
extern td_err_e td_ta_tsd_iter(const td_thragent_t *ta_p, td_key_iter_f *cb, void *cbdata_p);

/*
 * Call cb for each known synchronization object: those initialised or used while tracking was on, and, with
 * or without tracking (illumos: only with), those that threads are blocked on or that were found held. Only
 * objects of the four types are reported. Not in glibc.
 */
extern td_err_e td_ta_sync_iter(const td_thragent_t *ta_p, td_sync_iter_f *cb, void *cbdata_p);

/* ==== Threads ======================================================================================= */

/* Whether the handle is still a thread of the process. TD_NOTHR: no. TD_BADTH: also if th_ta_p is NULL. */
extern td_err_e td_thr_validate(const td_thrhandle_t *th_p);

/*
 * Fill *ti_p; see td_thrinfo_t. The state, from /proc or the registers:
 *   ACTIVE          running, or runnable and nothing shows that it gets no CPU
 *   RUN             runnable, but seen not to get a CPU
 *   SLEEP           asleep in any system call (illumos: only in a synchronization object)
 *   STOPPED         stopped by job control or td_thr_dbsuspend() while it was not asleep
 *   STOPPED_ASLEEP  the same, while it was asleep
 *   ZOMBIE          has exited and is not joined
 *   UNKNOWN         cannot be told: it is being started or torn down, or may not be looked at
 * A debugger's stop is looked through.
 */
extern td_err_e td_thr_get_info(const td_thrhandle_t *th_p, td_thrinfo_t *ti_p);

/*
 * Value the thread has for a key; *data_pp is NULL unless TD_OK. TD_BADKEY: the key is not in use.
 * TD_NOTSD: in use, but the thread has not set it. (illumos: TD_NOTSD and TD_OK with NULL, in this order.)
 */
extern td_err_e td_thr_tsd(const td_thrhandle_t *th_p, const thread_key_t key, void **data_pp);

/*
 * Address of a module's thread-local storage (module ids start at 1), or of a variable at offset in the
 * storage of the module whose link_map is at map_address. TD_NOTLS: no such module, or it has none.
 * TD_TLSDEFER: the thread has not touched it yet. The second function is glibc's.
 */
extern td_err_e td_thr_tlsbase(const td_thrhandle_t *th_p, unsigned long modid, psaddr_t *base);
extern td_err_e td_thr_tls_get_addr(const td_thrhandle_t *th_p, psaddr_t map_address, size_t offset,
                                    psaddr_t *address);

/*
 * Read and write registers: general, floating-point, extra (XSAVE area). TD_NOLWP: the thread has exited
 * (glibc: zeros). TD_NOFPREGS, TD_NOXREGS: these registers are not available. With a tg_attach_pid()
 * handle, only this thread is stopped, for the moment of the call. td_thr_setgregs() takes its registers
 * as const on illumos. glibc has no extra registers.
 */
extern td_err_e td_thr_getgregs(const td_thrhandle_t *th_p, prgregset_t gregs);
extern td_err_e td_thr_setgregs(const td_thrhandle_t *th_p, prgregset_t gregs);
extern td_err_e td_thr_getfpregs(const td_thrhandle_t *th_p, prfpregset_t *fpregs);
extern td_err_e td_thr_setfpregs(const td_thrhandle_t *th_p, const prfpregset_t *fpregs);
extern td_err_e td_thr_getxregsize(const td_thrhandle_t *th_p, int *xregsize);
extern td_err_e td_thr_getxregs(const td_thrhandle_t *th_p, void *xregs);
extern td_err_e td_thr_setxregs(const td_thrhandle_t *th_p, const void *xregs);

/*
 * Suspend one thread of a running process; let it go on. Suspending a suspended thread, or resuming one that
 * is not, changes nothing: TD_OK. Ends with the session or with the calling process. TD_NOLWP: it has exited.
 * glibc: TD_NOCAPAB.
 */
extern td_err_e td_thr_dbsuspend(const td_thrhandle_t *th_p);
extern td_err_e td_thr_dbresume(const td_thrhandle_t *th_p);

/*
 * Set the priority within the thread's scheduling policy. TD_ERR: the policy has no such priority.
 * TD_NOLWP: the thread has exited. illumos: TD_NOCAPAB; glibc: TD_OK and nothing done.
 */
extern td_err_e td_thr_setprio(const td_thrhandle_t *th_p, int prio);

/*
 * Replace the signal mask, as if the thread did so itself. The thread is stopped for a moment. TD_NOLWP:
 * it has exited. illumos takes the set by value and gives TD_NOCAPAB; glibc does nothing.
 */
extern td_err_e td_thr_sigsetmask(const td_thrhandle_t *th_p, const sigset_t *sigmask);

/*
 * Make the signals of the set pending for the thread. Only raising works on Linux: TD_NOCAPAB, and nothing
 * is done, if a signal that is pending now is not in the set. ti_pending_flag is ignored: the set is
 * enough. illumos takes the set by value and gives TD_NOCAPAB; glibc does nothing.
 */
extern td_err_e td_thr_setsigpending(const td_thrhandle_t *th_p, unsigned char ti_pending_flag,
                                     const sigset_t *sigpending);

/* Call cb for each known mutex and write-held rwlock that the thread holds (illumos: mutexes only). */
extern td_err_e td_thr_lockowner(const td_thrhandle_t *th_p, td_sync_iter_f *cb, void *cbdata_p);

/*
 * The object that the thread is blocked on, also one without a type (a barrier, the end of a thread, any word).
 * TD_ERR, and *sh_p zeroed: the thread is not blocked on one. Not in glibc.
 */
extern td_err_e td_thr_sleepinfo(const td_thrhandle_t *th_p, td_synchandle_t *sh_p);

/* ==== Events ======================================================================================== */

/* Address for the breakpoint of an event. TD_NOEVENT: not TD_CREATE or TD_DEATH (illumos: all 14). */
extern td_err_e td_ta_event_addr(const td_thragent_t *ta_p, td_event_e event, td_notify_t *notify_p);

/* Add to, or remove from, the events reported for all threads. Only create and death have an effect. */
extern td_err_e td_ta_set_event(const td_thragent_t *ta_p, td_thr_events_t *events);
extern td_err_e td_ta_clear_event(const td_thragent_t *ta_p, td_thr_events_t *events);

/* The same for one thread. */
extern td_err_e td_thr_set_event(const td_thrhandle_t *th_p, td_thr_events_t *events);
extern td_err_e td_thr_clear_event(const td_thrhandle_t *th_p, td_thr_events_t *events);

/* Switch event reporting of one thread on or off (glibc: TD_NOCAPAB, although it works). */
extern td_err_e td_thr_event_enable(const td_thrhandle_t *th_p, int on_off);

/*
 * Fetch and remove an event: of any thread, or of one. TD_NOMSG: none (illumos: TD_NOEVENT). msg->th_p is,
 * for the first, valid until the calling thread's next call of it; for the second, the caller's th_p.
 */
extern td_err_e td_ta_event_getmsg(const td_thragent_t *ta_p, td_event_msg_t *msg);
extern td_err_e td_thr_event_getmsg(const td_thrhandle_t *th_p, td_event_msg_t *msg);

/* ==== Process statistics ============================================================================ */

/*
 * Statistics are off at first. Switching them on, also again, resets them; switching them off keeps the averages
 * readable. While they are on, a thread of this library (not of the process) reads /proc; it never calls a ps_
 * routine. TD_NOCAPAB: a core file, or a debugger's process that cannot be proven alive. illumos: always
 * TD_NOCAPAB; glibc: TD_OK and nothing done.
 */
extern td_err_e td_ta_enable_stats(const td_thragent_t *ta_p, int on_off);
extern td_err_e td_ta_reset_stats(const td_thragent_t *ta_p); /* reset the averages */
extern td_err_e td_ta_get_stats(const td_thragent_t *ta_p, td_ta_stats_t *tstats);

/* ==== Synchronization objects (none of these is in glibc) =========================================== */

/*
 * Switch the tracking of synchronization objects on or off; on injects the lock tracking agent into the process
 * if none is there. On again resets the statistics; off keeps them readable (illumos loses them). In effect
 * when the call returns. TD_NOCAPAB: static program, no glibc, core file, one thread only, not permitted, or
 * traced by another.
 */
extern td_err_e td_ta_sync_tracking_enable(const td_thragent_t *ta_p, int on_off);

/* Fill *si_p. An object of unknown type is TD_OK with si_type TD_SYNC_UNKNOWN (illumos: TD_BADSH). */
extern td_err_e td_sync_get_info(const td_synchandle_t *sh_p, td_syncinfo_t *si_p);

/*
 * The same plus statistics. Never tracked: TD_OK, statistics 0. TD_BADSH: tracking is on, but has not seen
 * this object; ss_info is filled nevertheless.
 */
extern td_err_e td_sync_get_stats(const td_synchandle_t *sh_p, td_syncstats_t *ss_p);

/*
 * Change the state and wake the waiters (illumos wakes nobody). Mutex: 0 unlocked, else locked. Semaphore: the
 * value. Rwlock: 0 unlocked, positive read-locked by that many, negative write-locked. TD_ERR: a condition
 * variable, a negative semaphore, or an object that is being handed over. TD_NOCAPAB, and nothing is written:
 * priority-inheritance or robust mutex, waiters that cannot be woken, a type that is only inferred, or another
 * library's lock. TD_BADSH: type unknown. TD_DBERR: a core file. Threads that a debugger has stopped notice
 * the change when it lets them go on.
 */
extern td_err_e td_sync_setstate(const td_synchandle_t *sh_p, int value);

/* Call cb for each thread blocked on the object. */
extern td_err_e td_sync_waiters(const td_synchandle_t *sh_p, td_thr_iter_f *cb, void *cbdata_p);

/* ==== Ready-made process handles (this library's own) =============================================== */

/*
 * A handle for a running process, or for a core file and its executable (NULL: find it from the core's notes).
 * Only for td_ta_new() and tg_release(); needs no ps_ routine. The process is neither attached to nor stopped.
 * On failure *out is NULL and tg_last_error() says why. TD_ERR: an argument is bad; no such process or file;
 * not permitted; not a core file. TD_NOCAPAB: not x86-64.
 */
extern td_err_e tg_attach_pid(pid_t pid, struct ps_prochandle **out);
extern td_err_e tg_open_core(const char *core, const char *exe, struct ps_prochandle **out);

/* Release a handle; NULL is allowed. Its sessions give TD_BADPH from then on. */
extern void tg_release(struct ps_prochandle *ph);

/*
 * What the threads of a session are where the program runs tasks of its own on LWPs (goroutines of Go, tasks of tokio):
 * those tasks (on is not 0), or the threads of libc (0). At first a session of a tg_ handle shows tasks if the process has
 * goroutines, and threads if not; a session of a debugger's own handle shows threads.
 *
 * A task as a thread: th_unique and ti_tid are the number that its runtime has for it (the goroutine id).
 * ti_state is ACTIVE on an LWP, RUN if it could run and has none, SLEEP if it waits; ti_lid is the LWP that carries
 * the task, or 0. ti_pc, ti_sp and the stack are those of the task; ti_ro_area is where its runtime keeps it. What
 * only threads have (priority, signals, flags, thread-specific data) is 0 or empty. Functions about such things give
 * TD_NOCAPAB. td_thr_getgregs() gives the registers of the LWP, or those that are saved of a task without one: program
 * counter, stack pointer and frame pointer, all others 0, with TD_PARTIALREG. A runtime that saves none: TD_NOCAPAB.
 * The owner of a lock, and what td_thr_lockowner() reports, may be inferred from the code of the tasks: locks of Go do not
 * record who has them. What is told of tasks may come from a look that is up to 50 ms old.
 *
 * TD_NOCAPAB: the process has no runtime with tasks that is known. TD_NOLIBTHREAD: it has no threads of libc, so
 * that tasks are all there is. Not in glibc or illumos.
 */
extern td_err_e tg_show_tasks(const td_thragent_t *ta_p, int on);

/*
 * One line about the last tg_ call of this thread that failed, with the next step; "" if none has failed.
 * Valid until this thread's next tg_ call.
 */
extern const char *tg_last_error(void);

#ifdef __cplusplus
}
#endif

#endif /* _THREAD_DB_H */
