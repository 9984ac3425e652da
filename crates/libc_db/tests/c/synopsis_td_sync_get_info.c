/*
 * The td_sync_get_info page in C: prints one synchronization object of a process, its statistics and its
 * waiters; sets its state if a value is given.
 * Usage: synopsis_td_sync_get_info PID ADDRESS [VALUE]
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <proc_service.h>
#include <thread_db.h>

#include <stdio.h>
#include <stdlib.h>

/* The page declares the callback's type itself; saying it again is allowed. */
typedef int td_thr_iter_f(const td_thrhandle_t *th_p, void *cb_data_p);

static int print_waiter(const td_thrhandle_t *th_p, void *cb_data_p)
{
    printf("  waiter %d: thread %p\n", ++*(int *)cb_data_p, th_p->th_unique);
    return 0;
}

static void print_info(const td_syncinfo_t *si_p)
{
    td_thragent_t *ta_p = si_p->si_ta_p;
    psaddr_t sv_addr = si_p->si_sv_addr;
    td_sync_type_e type = si_p->si_type;
    int shared_type = (int)si_p->si_shared_type;
    const td_sync_flags_t *flags = si_p->si_flags;
    int size = si_p->si_size;
    uint8_t has_waiters = si_p->si_has_waiters;
    td_thrhandle_t owner = si_p->si_owner;
    pid_t ownerpid = si_p->si_ownerpid;

    printf("%p: type %d size %d shared %d flags %d waiters %d owner %p pid %d%s\n", sv_addr, (int)type, size,
           shared_type, flags[0], has_waiters, owner.th_unique, (int)ownerpid, ta_p ? "" : " no agent");
    switch (type) {
    case TD_SYNC_SEMA:
        /* As the page spells it, and as illumos' header does. */
        printf("  value %d %d\n", si_p->si_state.sema_count, si_p->si_state.sem_count);
        break;
    case TD_SYNC_RWLOCK:
        printf("  readers %d writer %d %d\n", si_p->si_state.nreaders, si_p->si_is_wlocked,
               si_p->si_is_wlock);
        break;
    case TD_SYNC_MUTEX:
        printf("  locked %d recursion %d ceiling %d\n", si_p->si_state.mutex_locked, si_p->si_rcount,
               si_p->si_prioceiling);
        break;
    case TD_SYNC_COND:
    case TD_SYNC_UNKNOWN:
        break;
    }
}

static void print_stats(const td_syncstats_t *ss_p)
{
    hrtime_t slept = 0;
    unsigned used = 0;

    switch (ss_p->ss_info.si_type) {
    case TD_SYNC_MUTEX:
        used = ss_p->ss_un.mutex.mutex_lock;
        slept = ss_p->ss_un.mutex.mutex_sleep_time;
        break;
    case TD_SYNC_COND:
        used = ss_p->ss_un.cond.cond_wait + ss_p->ss_un.cond.cond_timedwait;
        slept = ss_p->ss_un.cond.cond_wait_sleep_time + ss_p->ss_un.cond.cond_timedwait_sleep_time;
        break;
    case TD_SYNC_RWLOCK:
        used = ss_p->ss_un.rwlock.rw_rdlock + ss_p->ss_un.rwlock.rw_wrlock;
        slept = ss_p->ss_un.rwlock.rw_rdlock_sleep_time + ss_p->ss_un.rwlock.rw_wrlock_sleep_time;
        break;
    case TD_SYNC_SEMA:
        used = ss_p->ss_un.sema.sema_wait;
        slept = ss_p->ss_un.sema.sema_wait_sleep_time;
        break;
    case TD_SYNC_UNKNOWN:
        break;
    }
    printf("  used %u times, %lld ns asleep\n", used, slept);
}

int main(int argc, char **argv)
{
    struct ps_prochandle *ph;
    td_thragent_t *ta_p;
    td_synchandle_t sh;
    const td_synchandle_t *sh_p = &sh;
    td_syncinfo_t si;
    td_syncstats_t ss;
    td_err_e err;
    int on_off = 1, count = 0;

    if (argc < 3 || tg_attach_pid((pid_t)atoi(argv[1]), &ph) != TD_OK) {
        fprintf(stderr, "%s\n",
                argc < 3 ? "usage: synopsis_td_sync_get_info PID ADDRESS [VALUE]" : tg_last_error());
        return 2;
    }
    err = td_ta_new(ph, &ta_p);
    if (err == TD_OK) {
        (void)td_ta_sync_tracking_enable(ta_p, on_off);
        err = td_ta_map_addr2sync(ta_p, (psaddr_t)strtoul(argv[2], NULL, 0), &sh);
        if (err == TD_OK && (err = td_sync_get_info(sh_p, &si)) == TD_OK)
            print_info(&si);
        if (err == TD_OK && td_sync_get_stats(sh_p, &ss) == TD_OK)
            print_stats(&ss);
        if (err == TD_OK)
            err = td_sync_waiters(sh_p, print_waiter, &count);
        if (err == TD_OK && argc > 3)
            err = td_sync_setstate(sh_p, atoi(argv[3]));
        (void)td_ta_sync_tracking_enable(ta_p, 0);
        td_ta_delete(ta_p);
    }
    tg_release(ph);
    if (err != TD_OK)
        fprintf(stderr, "td_err_e %d\n", err);
    return err != TD_OK;
}
