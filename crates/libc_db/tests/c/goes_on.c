/*
 * A process that goes on without its main thread, as seen by an agent from before; and one that goes on as another
 * program.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "check.h"
#include "target.h"

#include <proc_service.h>

static int count(const td_thrhandle_t *th, void *arg)
{
    (void)th;
    ++*(int *)arg;
    return 0;
}

static void without_main(void)
{
    struct ps_prochandle *ph;
    td_thragent_t *ta;
    td_thrinfo_t ti;
    td_thr_events_t events;
    td_synchandle_t sh;
    int threads = 0;

    start_target(NULL);
    GIVES(TD_OK, tg_attach_pid(shared->pid, &ph));
    GIVES(TD_OK, td_ta_new(ph, &ta));
    tell_target(LEAVE);
    EVENTUALLY(letter_of(shared->pid) == 'Z');
    GIVES(TD_OK, td_ta_thr_iter(ta, count, &threads, TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, TD_SIGNO_MASK,
                                TD_THR_ANY_USER_FLAGS));
    CHECK(threads == LIVING, "%d threads", threads);
    td_thrhandle_t main_thread = { ta, (psaddr_t)shared->of[MAIN].id }, th = { ta, (psaddr_t)shared->of[FUTEX].id };
    GIVES(TD_OK, td_thr_get_info(&main_thread, &ti));
    CHECK(ti.ti_state == TD_THR_ZOMBIE && ti.ti_lid == -1, "state %d, LWP %d", ti.ti_state, ti.ti_lid);
    GIVES(TD_OK, td_thr_get_info(&th, &ti));
    CHECK(ti.ti_state == TD_THR_SLEEP && ti.ti_lid == shared->of[FUTEX].lwp, "state %d", ti.ti_state);
    GIVES(TD_OK, td_thr_sleepinfo(&th, &sh));
    /* Written, too. */
    td_event_emptyset(&events);
    td_event_addset(&events, TD_DEATH);
    GIVES(TD_OK, td_thr_set_event(&th, &events));
    GIVES(TD_OK, td_thr_get_info(&th, &ti));
    CHECK(td_eventismember(&ti.ti_events, TD_DEATH), "the event was not set");
    GIVES(TD_OK, td_ta_delete(ta));
    tg_release(ph);
    end_target();
}

static int is_sleep(void)
{
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", shared->pid);
    FILE *file = fopen(path, "r");
    if (file && !fgets(name, sizeof name, file))
        *name = 0;
    if (file)
        fclose(file);
    return !strcmp(name, "sleep\n");
}

static void as_another_program(void)
{
    struct ps_prochandle *ph;
    td_thragent_t *ta, *other;
    int threads;

    start_target(NULL);
    GIVES(TD_OK, tg_attach_pid(shared->pid, &ph));
    GIVES(TD_OK, td_ta_new(ph, &ta));
    shared->command = STAY;
    EVENTUALLY(is_sleep());
    GIVES(TD_DBERR, td_ta_get_nthreads(ta, &threads));
    /* The handle is that of the program that was. */
    GIVES(TD_BADPH, td_ta_new(ph, &other));
    GIVES(TD_OK, td_ta_delete(ta));
    tg_release(ph);
    end_target();
}

int main(void)
{
    without_main();
    as_another_program();
    return failures != 0;
}
