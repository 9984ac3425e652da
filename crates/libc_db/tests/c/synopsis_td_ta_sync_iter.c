/*
 * The td_ta_sync_iter page in C: counts synchronization objects, threads and thread-specific data keys.
 * Usage: synopsis_td_ta_sync_iter PID
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <proc_service.h>
#include <thread_db.h>

#include <stdio.h>
#include <stdlib.h>

/* The page's own declarations of the callback types; saying them again is allowed. */
typedef int td_sync_iter_f(const td_synchandle_t *sh_p, void *cbdata_p);
typedef int td_thr_iter_f(const td_thrhandle_t *th_p, void *cbdata_p);

static int on_sync(const td_synchandle_t *sh_p, void *cbdata_p)
{
    ++*(int *)cbdata_p;
    printf("object %p\n", sh_p->sh_unique);
    return 0;
}

static int on_thread(const td_thrhandle_t *th_p, void *cbdata_p)
{
    ++*(int *)cbdata_p;
    printf("thread %p\n", th_p->th_unique);
    return 0;
}

/* The destructor without a prototype, as on the page. */
static int on_key(thread_key_t key, void (*destructor)(), void *cbdata_p)
{
    ++*(int *)cbdata_p;
    printf("key %u destructor %#lx\n", key, (unsigned long)(uintptr_t)destructor);
    return 0;
}

int main(int argc, char **argv)
{
    struct ps_prochandle *ph;
    td_thragent_t *ta_p;
    td_err_e err;
    int objects = 0, threads = 0, sleepers = 0, keys = 0;
    td_thr_state_e state = TD_THR_SLEEP;
    int ti_pri = TD_THR_LOWEST_PRIORITY;
    sigset_t *ti_sigmask_p = TD_SIGNO_MASK;
    unsigned ti_user_flags = TD_THR_ANY_USER_FLAGS;

    if (argc != 2 || tg_attach_pid((pid_t)atoi(argv[1]), &ph) != TD_OK) {
        fprintf(stderr, "%s\n", argc == 2 ? tg_last_error() : "usage: synopsis_td_ta_sync_iter PID");
        return 2;
    }
    err = td_ta_new(ph, &ta_p);
    if (err == TD_OK) {
        err = td_ta_thr_iter(ta_p, on_thread, &threads, TD_THR_ANY_STATE, ti_pri, ti_sigmask_p,
                             ti_user_flags);
        if (err == TD_OK)
            err = td_ta_thr_iter(ta_p, on_thread, &sleepers, state, ti_pri, ti_sigmask_p, ti_user_flags);
        if (err == TD_OK)
            err = td_ta_tsd_iter(ta_p, on_key, &keys);
        if (err == TD_OK)
            err = td_ta_sync_iter(ta_p, on_sync, &objects);
        td_ta_delete(ta_p);
    }
    tg_release(ph);
    if (err != TD_OK) {
        fprintf(stderr, "td_err_e %d\n", err);
        return 1;
    }
    printf("%d threads, %d of them asleep, %d keys, %d objects\n", threads, sleepers, keys, objects);
    return 0;
}
