/*
 * A lock that changes hands between any two questions: no answer may be older than the question. The process
 * is our fork, so its objects are where ours are.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <proc_service.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { HOLDER, WAITER, ACTORS };

static struct shared {
    _Atomic pid_t lwp[ACTORS];
    pthread_t id[ACTORS];
    _Atomic int done[ACTORS];
} *shared;

static int orders[ACTORS][2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct ps_prochandle *ph;
static td_thragent_t *ta;
static pid_t pid;

/* Obeys: 'l' locks, 'u' unlocks. Waits for orders in read(2). */
static void *actor(void *arg)
{
    int me = (int)(size_t)arg;
    char order;
    shared->id[me] = pthread_self();
    shared->lwp[me] = gettid();
    while (read(orders[me][0], &order, 1) == 1) {
        if (order == 'l')
            pthread_mutex_lock(&mutex);
        else
            pthread_mutex_unlock(&mutex);
        shared->done[me]++;
    }
    return NULL;
}

/* What a thread is blocked in. */
static int call_of(int who)
{
    char path[64], text[64] = "";
    int number = -1;
    snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", pid, shared->lwp[who]);
    int fd = open(path, O_RDONLY);
    ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = 0;
    return sscanf(text, "%d", &number) == 1 ? number : -1;
}

static void tell(int who, char order)
{
    CHECK(write(orders[who][1], &order, 1) == 1, "order");
}

/* Until it has done what it was told, and sleeps for the next order. */
static void is_done(int who, int count)
{
    EVENTUALLY(shared->done[who] == count && call_of(who) == 0);
}

static int count(const td_thrhandle_t *th, void *arg)
{
    CHECK(th->th_unique == (psaddr_t)shared->id[WAITER], "another waiter");
    return ++*(int *)arg, 0;
}

static int is_mutex(const td_synchandle_t *sh, void *arg)
{
    return *(int *)arg |= sh->sh_unique == &mutex, 0;
}

/* `owner` is -1 for nobody. */
static void expect(int round, const char *when, int owner, int is_waited)
{
    td_synchandle_t sh = { ta, &mutex }, slept;
    td_thrhandle_t th = { ta, (psaddr_t)shared->id[WAITER] };
    td_syncinfo_t si;
    int waiters = 0;
    GIVES(TD_OK, td_sync_get_info(&sh, &si));
    psaddr_t wanted = owner < 0 ? NULL : (psaddr_t)shared->id[owner];
    CHECK(si.si_owner.th_unique == wanted, "round %d, %s: owner %p, not %p", round, when, si.si_owner.th_unique, wanted);
    CHECK(si.si_state.mutex_locked == (owner >= 0), "round %d, %s: locked %d", round, when, si.si_state.mutex_locked);
    CHECK(si.si_has_waiters == is_waited, "round %d, %s: waiters %d", round, when, si.si_has_waiters);
    CHECK(owner < 0 || si.si_type == TD_SYNC_MUTEX, "round %d, %s: type %d", round, when, si.si_type);
    GIVES(TD_OK, td_sync_waiters(&sh, count, &waiters));
    CHECK(waiters == is_waited, "round %d, %s: %d waiters", round, when, waiters);
    td_err_e rc = td_thr_sleepinfo(&th, &slept);
    CHECK(rc == (is_waited ? TD_OK : TD_ERR), "round %d, %s: sleepinfo gives %s", round, when, td_name(rc));
    CHECK(slept.sh_unique == (is_waited ? (psaddr_t)&mutex : NULL), "round %d, %s: %p", round, when, slept.sh_unique);
    for (int who = 0; who < ACTORS; who++) {
        td_thrhandle_t holder = { ta, (psaddr_t)shared->id[who] };
        int holds = 0;
        GIVES(TD_OK, td_thr_lockowner(&holder, is_mutex, &holds));
        /* One that nobody waits for may not be found. */
        CHECK(holds == (who == owner) || (!holds && !is_waited), "round %d, %s: %d holds it: %d", round, when, who, holds);
    }
}

int main(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < ACTORS; i++)
        CHECK(!pipe(orders[i]), "pipe");
    pid = fork();
    if (pid == 0) {
        pthread_t id;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (size_t i = 0; i < ACTORS; i++)
            pthread_create(&id, NULL, actor, (void *)i);
        for (;;)
            pause();
    }
    for (int i = 0; i < ACTORS; i++)
        EVENTUALLY(shared->lwp[i] && call_of(i) == 0);
    GIVES(TD_OK, tg_attach_pid(pid, &ph));
    GIVES(TD_OK, td_ta_new(ph, &ta));
    for (int round = 0; round < 60; round++) {
        int before = 2 * round;
        expect(round, "free", -1, 0);
        tell(HOLDER, 'l');
        is_done(HOLDER, before + 1);
        expect(round, "held", HOLDER, 0);
        tell(WAITER, 'l');
        EVENTUALLY(call_of(WAITER) == 202);
        expect(round, "waited for", HOLDER, 1);
        tell(HOLDER, 'u');
        is_done(HOLDER, before + 2);
        is_done(WAITER, before + 1);
        expect(round, "taken over", WAITER, 0);
        tell(WAITER, 'u');
        is_done(WAITER, before + 2);
    }
    GIVES(TD_OK, td_ta_delete(ta));
    tg_release(ph);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return failures != 0;
}
