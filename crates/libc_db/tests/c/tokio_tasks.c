/* The tasks of a program of tokio: threads are shown unless tasks are asked for.
 *
 *   tokio_tasks pid PID
 *   tokio_tasks core CORE EXE
 *
 * Prints lines: `task ID STATE LWP`, `waits ID ADDRESS`, `holds ID ADDRESS`, `sync ADDRESS TYPE STATE OWNER`.
 */
#include "check.h"
#include <proc_service.h>
#include <signal.h>
#include <thread_db.h>

#define ALL TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, TD_SIGNO_MASK, TD_THR_ANY_USER_FLAGS

static td_thragent_t *ta;
static int is_core, idle;

static int count(const td_thrhandle_t *th, void *data) {
    (void)th;
    ++*(int *)data;
    return 0;
}

static int counted(void) {
    int number = 0;
    GIVES(TD_OK, td_ta_thr_iter(ta, count, &number, ALL));
    return number;
}

static int print_held(const td_synchandle_t *sh, void *data) {
    printf("holds %lu %p\n", *(unsigned long *)data, sh->sh_unique);
    return 0;
}

static int check(const td_thrhandle_t *th, void *data) {
    td_thrinfo_t info;
    td_synchandle_t sync;
    td_syncinfo_t object;
    prgregset_t registers;
    prfpregset_t floats;
    (void)data;
    memset(registers, 0, sizeof registers);
    memset(&floats, 0, sizeof floats);
    GIVES(TD_OK, td_thr_get_info(th, &info));
    GIVES(TD_OK, td_thr_validate(th));
    CHECK(info.ti_startfunc && info.ti_ro_area, "%lu", info.ti_tid);
    printf("task %lu %d %d\n", info.ti_tid, info.ti_state, info.ti_lid);
    if (info.ti_lid == 0) {
        /* A future has no registers and no stack. */
        idle++;
        CHECK(!info.ti_pc && !info.ti_sp && !info.ti_stkbase && !info.ti_stksize, "%lu", info.ti_tid);
        GIVES(TD_NOCAPAB, td_thr_getgregs(th, registers));
        GIVES(TD_NOCAPAB, td_thr_getfpregs(th, &floats));
        GIVES(TD_NOCAPAB, td_thr_setgregs(th, registers));
        GIVES(TD_NOCAPAB, td_thr_dbsuspend(th));
    }
    if (td_thr_sleepinfo(th, &sync) == TD_OK) {
        printf("waits %lu %p\n", info.ti_tid, sync.sh_unique);
        GIVES(TD_OK, td_sync_get_info(&sync, &object));
        CHECK(object.si_has_waiters, "%lu: %p", info.ti_tid, sync.sh_unique);
    }
    GIVES(TD_OK, td_thr_lockowner(th, print_held, &info.ti_tid));
    return 0;
}

static int print_sync(const td_synchandle_t *sh, void *data) {
    td_syncinfo_t info;
    (void)data;
    GIVES(TD_OK, td_sync_get_info(sh, &info));
    printf("sync %p %d %d %lu\n", sh->sh_unique, info.si_type, info.si_state.mutex_locked,
           (unsigned long)info.si_owner.th_unique);
    /* Locks of tokio are not set by force. */
    if (!is_core)
        CHECK(td_sync_setstate(sh, 0) != TD_OK, "%p", sh->sh_unique);
    return 0;
}

int main(int argc, char **argv) {
    struct ps_prochandle *ph;
    td_ta_stats_t stats;
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
    printf("threads %d\n", counted());
    GIVES(TD_OK, tg_show_tasks(ta, 1));
    printf("tasks %d\n", counted());
    GIVES(TD_OK, td_ta_thr_iter(ta, check, NULL, ALL));
    CHECK(idle > 0, "%d", idle);
    GIVES(TD_OK, td_ta_sync_iter(ta, print_sync, NULL));
    if (!is_core) {
        GIVES(TD_OK, td_ta_get_stats(ta, &stats));
        printf("concurrency %d\n", stats.r_concurrency);
    }
    GIVES(TD_OK, tg_show_tasks(ta, 0));
    printf("threads_again %d\n", counted());
    GIVES(TD_OK, td_ta_delete(ta));
    tg_release(ph);
    return failures != 0;
}
