/*
 * A client that names another process than the one it reads: nothing of what the kernel says about that process may
 * appear as a fact about the threads, or be acted upon. One that cannot write may look, and not act.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "target.h"

#include "check.h"
#include "service.h"

#include <sys/resource.h>

static struct ps_prochandle process;

static pid_t start_stranger(void)
{
    int ends[2];
    char byte;
    if (pipe2(ends, O_CLOEXEC))
        exit(2);
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t set;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigemptyset(&set);
        sigaddset(&set, SIGHUP);
        sigprocmask(SIG_SETMASK, &set, NULL);
        execlp("sleep", "sleep", "1000", (char *)NULL);
        _exit(1);
    }
    close(ends[1]);
    /* The pipe closes when sleep has taken over. */
    CHECK(read(ends[0], &byte, 1) == 0, "the stranger started");
    close(ends[0]);
    return pid;
}

static void nothing_of_the_kernel(const char *what, td_err_e action)
{
    td_thragent_t *ta;
    td_thrinfo_t ti;
    int count = 0;
    GIVES(TD_OK, td_ta_new(&process, &ta));
    for (int role = 0; role < LIVING; role++) {
        static const sigset_t none;
        td_thrhandle_t th = { ta, (psaddr_t)shared->of[role].id };
        GIVES(TD_OK, td_thr_get_info(&th, &ti));
        CHECK(!memcmp(&ti.ti_sigmask, &none, 8) && !memcmp(&ti.ti_pending, &none, 8), "%s, role %d: %#lx %#lx", what,
              role, *(long *)&ti.ti_sigmask, *(long *)&ti.ti_pending);
        /* As libc has recorded it: each of them has asked. */
        CHECK(ti.ti_pri == (role == ZOMBIE ? 0 : shared->of[role].priority), "%s, role %d: %d", what, role, ti.ti_pri);
        CHECK(ti.ti_lid == (role == ZOMBIE ? -1 : shared->of[role].lwp), "%s, role %d: %d", what, role, ti.ti_lid);
        CHECK(ti.ti_tid == shared->of[role].id && ti.ti_startfunc == shared->of[role].start, "%s, role %d", what,
              role);
        char *top = shared->of[role].stack + shared->of[role].stack_size;
        CHECK(ti.ti_stkbase == top, "%s, role %d: %p", what, role, ti.ti_stkbase);
        /* The limit of the main thread's stack is the kernel's business, and what is mapped of it is not. */
        const long size = shared->of[role].stack_size;
        CHECK(ti.ti_stksize == size || (role == MAIN && ti.ti_stksize > 0 && ti.ti_stksize < size),
              "%s, role %d: %ld", what, role, ti.ti_stksize);
        /* Registers tell a sleeper, and they are the client's. */
        if (role == FUTEX || role == MASKED || role == DETACHED) {
            /* It may be on its way back to sleep from the stop before this one. */
            EVENTUALLY(td_thr_get_info(&th, &ti) != TD_OK || ti.ti_state != TD_THR_ACTIVE);
            CHECK(ti.ti_state == TD_THR_SLEEP, "%s, role %d: state %d", what, role, ti.ti_state);
        }
        if (role == SPINNER)
            CHECK(ti.ti_state == TD_THR_ACTIVE, "%s: state %d", what, ti.ti_state);
        if (role == ZOMBIE)
            CHECK(ti.ti_state == TD_THR_ZOMBIE, "%s: state %d", what, ti.ti_state);
    }
    GIVES(TD_OK, td_ta_get_nthreads(ta, &count));
    CHECK(count == LIVING, "%s: %d threads", what, count);
    /* What acts on the process needs the process. */
    td_thrhandle_t th = { ta, (psaddr_t)shared->of[FUTEX].id };
    sigset_t set;
    sigemptyset(&set);
    GIVES(action, td_thr_dbsuspend(&th));
    GIVES(TD_OK, td_thr_dbresume(&th)); /* nothing is held */
    GIVES(action, td_thr_setprio(&th, 0));
    GIVES(action, td_thr_sigsetmask(&th, &set));
    GIVES(action, td_thr_setsigpending(&th, 0, &set));
    GIVES(TD_OK, td_ta_delete(ta));
}

int main(void)
{
    pid_t stranger = start_stranger();
    process.pid = process.claimed = start_target(NULL);

    process.claimed = stranger;
    nothing_of_the_kernel("a stranger", TD_NOCAPAB);
    process.claimed = 1;
    nothing_of_the_kernel("process 1", TD_NOCAPAB);
    process.claimed = 0x7fffffff;
    nothing_of_the_kernel("nobody", TD_NOCAPAB);
    process.claimed = -1;
    nothing_of_the_kernel("no pid", TD_NOCAPAB);
    process.claimed = process.pid;
    /* A child has the random bytes of its parent, and not its threads. */
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    process.claimed = child;
    nothing_of_the_kernel("a relative", TD_NOCAPAB);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    process.claimed = process.pid;

    /* And with the truth, all of it. What cannot be written may be a core in which nothing has moved since. */
    td_thragent_t *ta;
    td_thrinfo_t ti;
    GIVES(TD_OK, td_ta_new(&process, &ta));
    td_thrhandle_t th = { ta, (psaddr_t)shared->of[MASKED].id };
    for (service.refuse_writes = 1; service.refuse_writes >= 0; service.refuse_writes--) {
        GIVES(TD_OK, td_thr_get_info(&th, &ti));
        CHECK(!memcmp(&ti.ti_sigmask, &shared->of[MASKED].mask, 8), "%#lx", *(long *)&ti.ti_sigmask);
        GIVES(service.refuse_writes ? TD_NOCAPAB : TD_OK, td_thr_setprio(&th, 0));
        GIVES(service.refuse_writes ? TD_NOCAPAB : TD_OK, td_thr_dbsuspend(&th));
        GIVES(TD_OK, td_thr_dbresume(&th));
    }
    service.refuse_writes = 0;
    CHECK(kill(stranger, 0) == 0, "the stranger lives");
    /* Forked from us as the process was, it has its thread at the same address: still that is none of the process. */
    pid_t twin = fork();
    if (twin == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    GIVES(TD_OK, td_ta_map_lwp2thr(ta, shared->of[MAIN].lwp, &th));
    GIVES(TD_NOTHR, td_ta_map_lwp2thr(ta, twin, &th));
    kill(twin, SIGKILL);
    waitpid(twin, NULL, 0);
    GIVES(TD_OK, td_ta_delete(ta));
    kill(stranger, SIGKILL);
    waitpid(stranger, NULL, 0);
    end_target();
    return failures != 0;
}
