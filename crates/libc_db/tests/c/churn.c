/*
 * Looks at a process whose threads come and go without pause, through a ready-made handle and through
 * ps_ routines: every look succeeds, and every pair of pthread and LWP holds together.
 * Usage: churn ROUNDS
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "target.h"

#include "check.h"
#include "service.h"

#define MAKERS 3

static struct ps_prochandle process;
static _Atomic int makers_ready;

static void *short_life(void *arg)
{
    return arg;
}

static void *maker(void *arg)
{
    makers_ready++;
    for (;;) {
        pthread_t ids[4];
        for (int i = 0; i < 4; i++)
            if (pthread_create(&ids[i], NULL, short_life, NULL))
                _exit(1);
        for (int i = 0; i < 4; i++)
            pthread_join(ids[i], NULL);
    }
    return arg;
}

struct seen {
    int threads, lasting, infos, gone;
};

static int on_thread(const td_thrhandle_t *th, void *arg)
{
    struct seen *seen = arg;
    td_thrinfo_t ti;
    seen->threads++;
    for (int i = 0; i <= MAKERS; i++)
        seen->lasting += th->th_unique == (psaddr_t)shared->of[i].id;
    td_err_e rc = td_thr_get_info(th, &ti);
    /* It may have gone meanwhile, memory and all. */
    CHECK(rc == TD_OK || rc == TD_BADTH || rc == TD_DBERR, "%s", td_name(rc));
    seen->infos += rc == TD_OK;
    seen->gone += rc != TD_OK;
    if (rc == TD_OK)
        for (int i = 0; i <= MAKERS; i++)
            CHECK((ti.ti_lid == shared->of[i].lwp) == (ti.ti_tid == shared->of[i].id), "%#lx with lwp %d", ti.ti_tid,
                  ti.ti_lid);
    return 0;
}

static void *lasting_maker(void *arg)
{
    int i = (int)(size_t)arg;
    shared->of[i].id = pthread_self();
    shared->of[i].lwp = gettid();
    return maker(arg);
}

static void run_churn(void)
{
    pthread_t id;
    shared->of[0].id = pthread_self();
    shared->of[0].lwp = gettid();
    for (size_t i = 1; i <= MAKERS; i++)
        pthread_create(&id, NULL, lasting_maker, (void *)i);
    while (makers_ready < MAKERS)
        usleep(200);
    shared->ready = 1;
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    struct ps_prochandle *ready_made;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    process.pid = process.claimed = fork();
    if (process.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run_churn();
    }
    shared->pid = process.pid;
    while (!shared->ready)
        usleep(200);
    GIVES(TD_OK, tg_attach_pid(process.pid, &ready_made));
    struct ps_prochandle *const handles[] = { ready_made, &process };
    for (int which = 0; which < 2; which++) {
        td_thragent_t *ta;
        int failed = 0, most = 0;
        GIVES(TD_OK, td_ta_new(handles[which], &ta));
        for (int round = 0; round < rounds; round++) {
            struct seen seen = { 0 };
            int count;
            td_err_e rc = td_ta_thr_iter(ta, on_thread, &seen, TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, NULL, ~0u);
            if (rc != TD_OK) {
                failed++;
                continue;
            }
            CHECK(seen.lasting == MAKERS + 1, "%d of the lasting threads", seen.lasting);
            most = seen.threads > most ? seen.threads : most;
            rc = td_ta_get_nthreads(ta, &count);
            failed += rc != TD_OK;
        }
        CHECK(failed == 0, "%d of %d looks failed", failed, rounds);
        CHECK(most > MAKERS + 1, "nothing moved");
        GIVES(TD_OK, td_ta_delete(ta));
    }
    tg_release(ready_made);
    end_target();
    return failures != 0;
}
