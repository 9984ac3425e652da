/* The goroutines of a Go program, as threads. Checks what must be true of any such program, and prints the rest.
 *
 *   tasks pid PID
 *   tasks core CORE EXE
 *   tasks busy PID NUMBER      statistics of a program with that many goroutines that could always run, one at a time
 *
 * Prints lines: `task ID STATE LWP TYPE START`, `waits ID ADDRESS`, `sync ADDRESS TYPE STATE OWNER: WAITERS`,
 * `holds ID ADDRESS`.
 */
#include "check.h"
#include <proc_service.h>
#include <signal.h>
#include <thread_db.h>

#define ALL TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, TD_SIGNO_MASK, TD_THR_ANY_USER_FLAGS

static td_thragent_t *ta;
static int is_core, seen, saved, carried;

static int count(const td_thrhandle_t *th, void *data) {
    (void)th;
    ++*(int *)data;
    return 0;
}

static int count_sync(const td_synchandle_t *sh, void *data) {
    (void)sh;
    ++*(int *)data;
    return 0;
}

static int counted(td_thr_state_e state, int priority, sigset_t *mask, unsigned int flags) {
    int number = 0;
    GIVES(TD_OK, td_ta_thr_iter(ta, count, &number, state, priority, mask, flags));
    return number;
}

/* What means nothing for a task. */
static void refuses(const td_thrhandle_t *th, prgregset_t registers) {
    prfpregset_t floats;
    sigset_t set;
    td_thr_events_t events;
    td_event_msg_t message;
    td_notify_t notify;
    psaddr_t address;
    void *value;
    memset(&floats, 0, sizeof floats);
    sigemptyset(&set);
    td_event_emptyset(&events);
    GIVES(TD_NOCAPAB, td_thr_setgregs(th, registers));
    GIVES(TD_NOCAPAB, td_thr_setfpregs(th, &floats));
    GIVES(TD_NOCAPAB, td_thr_dbsuspend(th));
    GIVES(TD_NOCAPAB, td_thr_dbresume(th));
    GIVES(TD_NOCAPAB, td_thr_setprio(th, 0));
    GIVES(TD_NOCAPAB, td_thr_sigsetmask(th, &set));
    GIVES(TD_NOCAPAB, td_thr_setsigpending(th, 1, &set));
    GIVES(TD_NOCAPAB, td_thr_tsd(th, 0, &value));
    GIVES(TD_NOCAPAB, td_thr_tlsbase(th, 1, &address));
    GIVES(TD_NOCAPAB, td_thr_event_enable(th, 1));
    GIVES(TD_NOCAPAB, td_thr_set_event(th, &events));
    GIVES(TD_NOCAPAB, td_thr_clear_event(th, &events));
    GIVES(TD_NOCAPAB, td_thr_event_getmsg(th, &message));
    GIVES(TD_NOCAPAB, td_ta_event_addr(ta, TD_CREATE, &notify));
    GIVES(TD_NOCAPAB, td_ta_event_getmsg(ta, &message));
}

static int is_waiter(const td_thrhandle_t *th, void *data) {
    td_thrhandle_t *wanted = data;
    if (th->th_unique == wanted->th_unique)
        wanted->th_ta_p = NULL;
    return 0;
}

static int print_held(const td_synchandle_t *sh, void *data) {
    printf("holds %lu %p\n", *(unsigned long *)data, sh->sh_unique);
    return 0;
}

static int check(const td_thrhandle_t *th, void *data) {
    td_thrinfo_t info;
    td_thrhandle_t same, wanted;
    td_synchandle_t sync;
    td_syncinfo_t object;
    prgregset_t registers;
    prfpregset_t floats;
    int size;
    (void)data;
    GIVES(TD_OK, td_thr_get_info(th, &info));
    seen++;
    CHECK(info.ti_ta_p == ta, "%lu", info.ti_tid);
    CHECK(info.ti_tid == (thread_t)th->th_unique, "%lu", info.ti_tid);
    CHECK(info.ti_lid >= 0, "%lu: %d", info.ti_tid, info.ti_lid);
    CHECK(info.ti_startfunc && info.ti_ro_area, "%lu", info.ti_tid);
    CHECK(info.ti_pri == 0 && info.ti_user_flags == 0 && !info.ti_tls && !info.ti_traceme && !info.ti_db_suspended,
          "%lu: what only threads have", info.ti_tid);
    GIVES(TD_OK, td_thr_validate(th));
    GIVES(TD_OK, td_ta_map_id2thr(ta, info.ti_tid, &same));
    CHECK(same.th_ta_p == ta && same.th_unique == th->th_unique, "%lu", info.ti_tid);
    printf("task %lu %d %d %d %p\n", info.ti_tid, info.ti_state, info.ti_lid, info.ti_type, info.ti_startfunc);
    memset(registers, 0xff, sizeof registers);
    if (info.ti_lid == 0 && info.ti_state == TD_THR_SLEEP) {
        uintptr_t top = (uintptr_t)info.ti_stkbase, sp = (uintptr_t)info.ti_sp;
        saved++;
        GIVES(TD_PARTIALREG, td_thr_getgregs(th, registers));
        CHECK((intptr_t)registers[16] == info.ti_pc && (intptr_t)registers[19] == info.ti_sp, "%lu", info.ti_tid);
        CHECK(registers[10] == 0 && registers[21] == 0, "%lu: what is not saved", info.ti_tid);
        CHECK(sp < top && sp >= top - info.ti_stksize, "%lu: sp %#lx", info.ti_tid, sp);
        /* A frame pointer leads up the stack, to one above it. */
        CHECK(registers[4] > sp && registers[4] < top, "%lu: rbp %#llx", info.ti_tid, (unsigned long long)registers[4]);
        GIVES(TD_NOFPREGS, td_thr_getfpregs(th, &floats));
        GIVES(TD_NOCAPAB, td_thr_getxregsize(th, &size));
        refuses(th, registers);
    }
    if (info.ti_lid > 0 && info.ti_state == TD_THR_SLEEP) {
        carried++;
        GIVES(TD_OK, td_ta_map_lwp2thr(ta, info.ti_lid, &same));
        CHECK(same.th_unique == th->th_unique, "%lu on %d", info.ti_tid, info.ti_lid);
        GIVES(TD_OK, td_thr_getgregs(th, registers));
        CHECK(registers[19] != 0 && registers[16] != 0, "%lu", info.ti_tid);
        GIVES(TD_OK, td_thr_getfpregs(th, &floats));
    }
    if (td_thr_sleepinfo(th, &sync) == TD_OK) {
        printf("waits %lu %p\n", info.ti_tid, sync.sh_unique);
        GIVES(TD_OK, td_sync_get_info(&sync, &object));
        CHECK(object.si_has_waiters, "%lu: %p", info.ti_tid, sync.sh_unique);
        CHECK(object.si_sv_addr == sync.sh_unique, "%p", sync.sh_unique);
        wanted = *th;
        GIVES(TD_OK, td_sync_waiters(&sync, is_waiter, &wanted));
        CHECK(!wanted.th_ta_p, "%lu does not wait for %p", info.ti_tid, sync.sh_unique);
    }
    GIVES(TD_OK, td_thr_lockowner(th, print_held, &info.ti_tid));
    return 0;
}

static int print_waiter(const td_thrhandle_t *th, void *data) {
    (void)data;
    printf(" %lu", (unsigned long)th->th_unique);
    return 0;
}

static int print_sync(const td_synchandle_t *sh, void *data) {
    td_syncinfo_t info;
    td_syncstats_t stats;
    td_synchandle_t same;
    (void)data;
    GIVES(TD_OK, td_sync_get_info(sh, &info));
    GIVES(TD_OK, td_ta_map_addr2sync(ta, sh->sh_unique, &same));
    GIVES(TD_OK, td_sync_get_stats(sh, &stats));
    printf("sync %p %d %d %lu:", sh->sh_unique, info.si_type, info.si_state.mutex_locked,
           (unsigned long)info.si_owner.th_unique);
    GIVES(TD_OK, td_sync_waiters(sh, print_waiter, NULL));
    printf("\n");
    /* Locks of Go are not set by force. */
    if (!is_core)
        CHECK(td_sync_setstate(sh, 0) != TD_OK, "%p", sh->sh_unique);
    return 0;
}

static double average(int numerator, int denominator) {
    return (double)numerator / denominator;
}

/* Whether statistics tell of `number` goroutines that can run, of which one does. */
static int tell_of(int number) {
    td_ta_stats_t stats;
    GIVES(TD_OK, td_ta_get_stats(ta, &stats));
    CHECK(stats.r_concurrency == 1, "%d", stats.r_concurrency);
    CHECK(stats.nthreads > number, "%d", stats.nthreads);
    double runnable = average(stats.nrunnable_num, stats.nrunnable_den);
    double running = average(stats.a_concurrency_num, stats.a_concurrency_den);
    double idle = average(stats.nidle_num, stats.nidle_den), lwps = average(stats.nlwps_num, stats.nlwps_den);
    CHECK(running <= runnable && idle <= lwps, "%g of %g, %g of %g", running, runnable, idle, lwps);
    return runnable > number - 1.5 && runnable < number + 2.5 && running > 0 && running < 3;
}

static int statistics(int pid, int number) {
    struct ps_prochandle *ph;
    GIVES(TD_OK, tg_attach_pid(pid, &ph));
    GIVES(TD_OK, td_ta_new(ph, &ta));
    GIVES(TD_OK, td_ta_enable_stats(ta, 1));
    EVENTUALLY(tell_of(number));
    GIVES(TD_OK, td_ta_enable_stats(ta, 0));
    CHECK(tell_of(number), "the averages stay");
    GIVES(TD_OK, td_ta_delete(ta));
    tg_release(ph);
    return failures != 0;
}

int main(int argc, char **argv) {
    struct ps_prochandle *ph;
    td_thrhandle_t bad;
    td_thrinfo_t info;
    td_ta_stats_t stats;
    sigset_t none, full;
    int all, by_state = 0, objects = 0;
    if (argc == 4 && !strcmp(argv[1], "busy"))
        return statistics(atoi(argv[2]), atoi(argv[3]));
    is_core = argc == 4 && !strcmp(argv[1], "core");
    if (is_core)
        GIVES(TD_OK, tg_open_core(argv[2], argv[3], &ph));
    else if (argc == 3 && !strcmp(argv[1], "pid"))
        GIVES(TD_OK, tg_attach_pid(atoi(argv[2]), &ph));
    else
        return 2;
    GIVES(TD_OK, td_ta_new(ph, &ta));
    if (failures)
        return 1;
    /* Goroutines of the runtime may come and go. */
    EVENTUALLY((td_ta_get_nthreads(ta, &all) == TD_OK) && all == counted(ALL));
    CHECK(all > 4, "%d", all);
    for (int state = TD_THR_UNKNOWN; state <= TD_THR_STOPPED_ASLEEP; state++)
        by_state += counted(state, TD_THR_LOWEST_PRIORITY, TD_SIGNO_MASK, TD_THR_ANY_USER_FLAGS);
    CHECK(by_state == all, "%d of %d", by_state, all);
    CHECK(counted(TD_THR_SLEEP, TD_THR_LOWEST_PRIORITY, TD_SIGNO_MASK, TD_THR_ANY_USER_FLAGS) > 4, "asleep");
    CHECK(counted(99, TD_THR_LOWEST_PRIORITY, TD_SIGNO_MASK, TD_THR_ANY_USER_FLAGS) == 0, "no such state");
    CHECK(counted(TD_THR_ANY_STATE, 0, TD_SIGNO_MASK, TD_THR_ANY_USER_FLAGS) == all, "priority 0");
    CHECK(counted(TD_THR_ANY_STATE, 1, TD_SIGNO_MASK, TD_THR_ANY_USER_FLAGS) == 0, "priority 1");
    sigemptyset(&none), sigfillset(&full);
    CHECK(counted(TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, &none, TD_THR_ANY_USER_FLAGS) == all, "no signals");
    CHECK(counted(TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, &full, TD_THR_ANY_USER_FLAGS) == 0, "all signals");
    CHECK(counted(TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, TD_SIGNO_MASK, 0) == all, "no flags");
    CHECK(counted(TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, TD_SIGNO_MASK, 0x40) == 0, "a flag");

    GIVES(TD_OK, td_ta_thr_iter(ta, check, NULL, ALL));
    CHECK(seen == all, "%d of %d", seen, all);
    CHECK(saved > 4, "%d", saved);
    printf("carried %d\n", carried);
    GIVES(TD_OK, td_ta_sync_iter(ta, print_sync, NULL));
    GIVES(TD_OK, td_ta_sync_iter(ta, count_sync, &objects));
    CHECK(objects > 0, "%d", objects);

    GIVES(TD_NOTHR, td_ta_map_id2thr(ta, 123456789, &bad));
    GIVES(TD_NOTHR, td_ta_map_id2thr(ta, ~0ul, &bad));
    GIVES(TD_NOTHR, td_ta_map_lwp2thr(ta, 1, &bad));
    bad.th_ta_p = ta, bad.th_unique = (psaddr_t)123456789;
    GIVES(TD_BADTH, td_thr_get_info(&bad, &info));
    GIVES(TD_NOTHR, td_thr_validate(&bad));
    GIVES(TD_BADTH, td_thr_dbsuspend(&bad));
    bad.th_unique = 0;
    GIVES(TD_BADTH, td_thr_get_info(&bad, &info));
    GIVES(TD_BADTH, td_thr_validate(&bad));

    if (!is_core) {
        GIVES(TD_OK, td_ta_get_stats(ta, &stats));
        CHECK(stats.nthreads == all, "%d, not %d", stats.nthreads, all);
        printf("concurrency %d\n", stats.r_concurrency);
    }
    /* Threads of libc, if there are any. */
    td_err_e threads = tg_show_tasks(ta, 0);
    printf("threads %s\n", td_name(threads));
    if (threads == TD_OK) {
        int lwps = counted(ALL);
        CHECK(lwps > 0 && lwps < all, "%d threads, %d tasks", lwps, all);
        printf("lwps %d\n", lwps);
        GIVES(TD_OK, tg_show_tasks(ta, 1));
        CHECK(counted(ALL) == all, "%d, not %d", counted(ALL), all);
    } else {
        CHECK(strstr(tg_last_error(), "go on with its tasks") != NULL, "'%s'", tg_last_error());
    }
    GIVES(TD_BADTA, tg_show_tasks(NULL, 1));
    GIVES(TD_OK, td_ta_delete(ta));
    GIVES(TD_BADPH, tg_show_tasks(ta, 1));
    tg_release(ph);
    return failures != 0;
}
