/* The same process twice: live, and as a core that was made of it. What a core keeps must be the same.
 *
 *   core PID CORE
 */
#include "check.h"
#include <proc_service.h>
#include <thread_db.h>

static td_thragent_t *live, *dead;
static int threads, asleep;
/* The thread being compared, for messages. */
static int was_lwp;

static td_thragent_t *agent(struct ps_prochandle *ph) {
    td_thragent_t *ta;
    GIVES(TD_OK, td_ta_new(ph, &ta));
    return ta;
}

static int same_key(thread_key_t key, void (*destructor)(void *), void *data) {
    const td_thrhandle_t *both = data;
    void *there = NULL, *here = NULL;
    (void)destructor;
    td_err_e expected = td_thr_tsd(&both[0], key, &there);
    GIVES(expected, td_thr_tsd(&both[1], key, &here));
    CHECK(here == there, "lwp %d", was_lwp);
    return 0;
}

static int count(const td_thrhandle_t *th, void *data) {
    (void)th;
    ++*(int *)data;
    return 0;
}

static int same(const td_thrhandle_t *th, void *data) {
    td_thrinfo_t was, is;
    td_thrhandle_t both[2] = {*th};
    prgregset_t registers;
    prfpregset_t floats;
    psaddr_t there, here;
    int size;
    (void)data;
    GIVES(TD_OK, td_thr_get_info(th, &was));
    GIVES(TD_OK, td_ta_map_id2thr(dead, was.ti_tid, &both[1]));
    GIVES(TD_OK, td_thr_get_info(&both[1], &is));
    threads++;
    was_lwp = was.ti_lid;
    CHECK(is.ti_tid == was.ti_tid, "lwp %d", was_lwp);
    CHECK(is.ti_lid == was.ti_lid, "lwp %d", was_lwp);
    CHECK(is.ti_startfunc == was.ti_startfunc, "lwp %d", was_lwp);
    CHECK(is.ti_stkbase == was.ti_stkbase, "lwp %d", was_lwp);
    /* That of the main thread is as mapped: a core has no limit. */
    CHECK(is.ti_stksize > 0 && is.ti_stksize <= was.ti_stksize, "lwp %d: %ld", was_lwp, is.ti_stksize);
    CHECK(is.ti_pri == was.ti_pri, "lwp %d: %d, not %d", was_lwp, is.ti_pri, was.ti_pri);
    CHECK(is.ti_user_flags == was.ti_user_flags, "lwp %d", was_lwp);
    CHECK(is.ti_ro_area == was.ti_ro_area && is.ti_ro_size == was.ti_ro_size, "lwp %d", was_lwp);
    CHECK(is.ti_type == was.ti_type, "lwp %d", was_lwp);
    CHECK(is.ti_flags == was.ti_flags, "lwp %d", was_lwp);
    CHECK(is.ti_tls == was.ti_tls, "lwp %d", was_lwp);
    GIVES(TD_OK, td_ta_tsd_iter(live, same_key, both));
    GIVES(td_thr_tlsbase(&both[0], 1, &there), td_thr_tlsbase(&both[1], 1, &here));
    CHECK(there == here, "lwp %d", was_lwp);
    /* A thread that runs has moved between the two looks. */
    if (was.ti_state == TD_THR_SLEEP) {
        asleep++;
        CHECK(is.ti_state == TD_THR_SLEEP, "%d", is.ti_state);
        CHECK(is.ti_pc == was.ti_pc && is.ti_sp == was.ti_sp, "lwp %d", was_lwp);
        GIVES(TD_OK, td_thr_getgregs(&both[1], registers));
        CHECK((intptr_t)registers[16] == is.ti_pc && (intptr_t)registers[19] == is.ti_sp, "lwp %d", was_lwp);
        GIVES(TD_OK, td_thr_getfpregs(&both[1], &floats));
        GIVES(TD_OK, td_thr_getxregsize(&both[1], &size));
        GIVES(TD_DBERR, td_thr_setgregs(&both[1], registers));
        GIVES(TD_DBERR, td_thr_event_enable(&both[1], 1));
        GIVES(TD_NOCAPAB, td_thr_dbsuspend(&both[1]));
        GIVES(TD_NOCAPAB, td_thr_setprio(&both[1], 0));
    } else {
        CHECK(is.ti_state == was.ti_state || (was.ti_state == TD_THR_RUN && is.ti_state == TD_THR_ACTIVE), "lwp %d", was_lwp);
    }
    return 0;
}

int main(int argc, char **argv) {
    struct ps_prochandle *ph, *core;
    int told, kept, at_zero = 0;
    if (argc != 3)
        return 2;
    GIVES(TD_OK, tg_attach_pid(atoi(argv[1]), &ph));
    GIVES(TD_OK, tg_open_core(argv[2], NULL, &core));
    live = agent(ph), dead = agent(core);
    GIVES(TD_OK, td_ta_thr_iter(live, same, NULL, TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, TD_SIGNO_MASK,
                         TD_THR_ANY_USER_FLAGS));
    GIVES(TD_OK, td_ta_get_nthreads(live, &told));
    GIVES(TD_OK, td_ta_get_nthreads(dead, &kept));
    CHECK(kept == told, "%d, %d", kept, told);
    CHECK(threads == told, "%d, %d", threads, told);
    GIVES(TD_OK, td_ta_thr_iter(dead, count, &at_zero, TD_THR_ANY_STATE, 0, TD_SIGNO_MASK, TD_THR_ANY_USER_FLAGS));
    CHECK(at_zero == told, "%d, %d", at_zero, told);
    CHECK(asleep > 0, "lwp %d", was_lwp);
    GIVES(TD_NOCAPAB, td_ta_sync_tracking_enable(dead, 1));
    tg_release(core);
    GIVES(TD_BADPH, td_ta_get_nthreads(dead, &kept));
    GIVES(TD_ERR, tg_open_core("/nonexistent", NULL, &core));
    CHECK(core == NULL && strlen(tg_last_error()) > 0, "lwp %d", was_lwp);
    GIVES(TD_ERR, tg_open_core(NULL, NULL, &core));
    return failures != 0;
}
