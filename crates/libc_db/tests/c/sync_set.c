/*
 * Changes the state of objects that threads hang on, and sees the threads go on. The process is our fork, so
 * its objects are where ours are. With -DDEBUGGER it is stopped by us meanwhile; with -DWITH_LSTOP too we
 * have routines that stop single threads.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <proc_service.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#ifdef DEBUGGER
#include "debugger.h"
#endif

enum { LEFT, RIGHT, TAKER, READER, WRITER, HEIR, BOOSTED, WAITER, PARTIES };

static struct shared {
    _Atomic pid_t lwp[PARTIES];
    _Atomic int holds[2], done[PARTIES];
} *shared;

static pthread_mutex_t left = PTHREAD_MUTEX_INITIALIZER, right = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t robust, inherit, of_cond = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER, read_held = PTHREAD_RWLOCK_INITIALIZER;
static sem_t taken;

static void cross(int me, pthread_mutex_t *first, pthread_mutex_t *second)
{
    pthread_mutex_lock(first);
    shared->holds[me] = 1;
    while (!shared->holds[!me])
        sched_yield();
    pthread_mutex_lock(second);
    shared->done[me] = 1;
    pthread_mutex_unlock(second);
    pthread_mutex_unlock(first);
}

static void *party(void *arg)
{
    int me = (int)(size_t)arg;
    shared->lwp[me] = gettid();
    switch (me) {
    case LEFT:
        cross(me, &left, &right);
        break;
    case RIGHT:
        cross(me, &right, &left);
        break;
    case TAKER:
        sem_wait(&taken);
        break;
    case READER:
        pthread_rwlock_rdlock(&written);
        break;
    case WRITER:
        pthread_rwlock_wrlock(&read_held);
        break;
    case HEIR:
        pthread_mutex_lock(&robust);
        break;
    case BOOSTED:
        pthread_mutex_lock(&inherit);
        break;
    case WAITER:
        pthread_mutex_lock(&of_cond);
        pthread_cond_wait(&cond, &of_cond);
        break;
    }
    shared->done[me] = 1;
    for (;;)
        pause();
    return NULL;
}

static void run(void)
{
    pthread_mutexattr_t attr;
    pthread_t id;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &attr);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&inherit, &attr);
    sem_init(&taken, 0, 0);
    pthread_mutex_lock(&robust);
    pthread_mutex_lock(&inherit);
    pthread_rwlock_wrlock(&written);
    pthread_rwlock_rdlock(&read_held);
    for (size_t i = 0; i < PARTIES; i++)
        pthread_create(&id, NULL, party, (void *)i);
    for (;;)
        pause();
}

static int is_in_futex(pid_t pid, pid_t lwp)
{
    char path[64], text[16] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", pid, lwp);
    int fd = open(path, O_RDONLY);
    ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    return got > 4 && !strncmp(text, "202 ", 4);
}

static td_thragent_t *ta;

static td_synchandle_t object(void *address)
{
    td_synchandle_t sh;
    GIVES(TD_OK, td_ta_map_addr2sync(ta, address, &sh));
    return sh;
}

static td_syncinfo_t info(void *address)
{
    td_synchandle_t sh = object(address);
    td_syncinfo_t si;
    GIVES(TD_OK, td_sync_get_info(&sh, &si));
    return si;
}

#define SET(wanted, object_, value)                                                                          \
    do {                                                                                                     \
        td_synchandle_t sh_ = object(object_);                                                               \
        GIVES(wanted, td_sync_setstate(&sh_, value));                                                        \
    } while (0)

/* What must not be done is refused, and nothing is written. */
static void refusals(void)
{
    td_syncinfo_t before[3] = { info(&cond), info(&robust), info(&inherit) };
    SET(TD_ERR, &cond, 0);
    SET(TD_NOCAPAB, &robust, 0);
    SET(TD_NOCAPAB, &inherit, 0);
    SET(TD_ERR, &taken, -1);
    SET(TD_BADSH, shared, 0);
    SET(TD_BADSH, (char *)&left + 8, 0);
    td_syncinfo_t after[3] = { info(&cond), info(&robust), info(&inherit) };
    CHECK(!memcmp(before, after, sizeof before), "a refused change changed something");
    CHECK(before[1].si_state.mutex_locked && before[2].si_state.mutex_locked, "locked");
    CHECK(before[0].si_type == TD_SYNC_COND && before[0].si_has_waiters, "type %d", before[0].si_type);
}

int main(void)
{
    struct ps_prochandle *ph;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run();
    }
    for (int i = 0; i < PARTIES; i++)
        EVENTUALLY(shared->lwp[i] && is_in_futex(pid, shared->lwp[i]));
#ifdef DEBUGGER
    ph = debug(pid, 0);
#else
    GIVES(TD_OK, tg_attach_pid(pid, &ph));
#endif
    GIVES(TD_OK, td_ta_new(ph, &ta));
    refusals();
    td_syncinfo_t si = info(&left);
    CHECK(si.si_type == TD_SYNC_MUTEX && si.si_state.mutex_locked && si.si_has_waiters, "left: %d", si.si_type);
    SET(TD_OK, &left, 0);
    SET(TD_OK, &taken, 3);
    SET(TD_OK, &written, 0);
    SET(TD_OK, &read_held, 0);
#if defined DEBUGGER && !defined WITH_LSTOP
    for (int i = 0; i < PARTIES; i++)
        CHECK(!shared->done[i], "%d went on while it was stopped", i);
    CHECK(!info(&left).si_state.mutex_locked && info(&taken).si_state.sem_count == 3, "written");
    let_go();
#endif
    for (int i = LEFT; i <= WRITER; i++)
        EVENTUALLY(shared->done[i]);
    for (int i = HEIR; i < PARTIES; i++)
        CHECK(!shared->done[i], "%d went on by itself", i);
#ifdef WITH_LSTOP
    CHECK(lwps_stopped == lwps_continued && lwps_stopped >= 4, "%d stopped, %d continued", lwps_stopped, lwps_continued);
#endif
#if !defined DEBUGGER
    GIVES(TD_OK, td_ta_delete(ta));
    tg_release(ph);
#endif
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return failures != 0;
}
