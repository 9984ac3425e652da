/*
 * Every field of td_thrinfo_t, the iterations and the maps from ids to handles, compared with what the
 * threads say of themselves. Needs no ps_ routine.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "target.h"

#include "check.h"

static td_thragent_t *ta;

static td_thrhandle_t handle_of(enum role role)
{
    td_thrhandle_t th = { ta, (psaddr_t)shared->of[role].id };
    return th;
}

static void check_info(enum role role)
{
    const struct truth *truth = &shared->of[role];
    td_thrhandle_t th = handle_of(role);
    td_thrinfo_t ti;
    memset(&ti, 0x55, sizeof ti);
    GIVES(TD_OK, td_thr_get_info(&th, &ti));
    CHECK(ti.ti_ta_p == ta, "role %d", role);
    CHECK(ti.ti_tid == truth->id && ti.ti_ro_area == (psaddr_t)truth->id, "role %d: %#lx %p", role, ti.ti_tid,
          ti.ti_ro_area);
    CHECK(ti.ti_ro_size > 1000 && ti.ti_ro_size < 10000, "role %d: %d", role, ti.ti_ro_size);
    CHECK(ti.ti_lid == (role == ZOMBIE ? -1 : truth->lwp), "role %d: %d", role, ti.ti_lid);
    CHECK(ti.ti_startfunc == truth->start, "role %d: %p", role, ti.ti_startfunc);
    CHECK(ti.ti_user_flags == (truth->detached ? 0x40u : 0u), "role %d: %#x", role, ti.ti_user_flags);
    CHECK(ti.ti_type == TD_THR_USER, "role %d: %d", role, ti.ti_type);
    CHECK(ti.ti_db_suspended == 0 && ti.ti_traceme == 0 && ti.ti_pirecflag == 0, "role %d", role);
    CHECK(ti.ti_events.event_bits[0] == 0 && ti.ti_events.event_bits[1] == 0, "role %d", role);
    CHECK((char *)ti.ti_stkbase == truth->stack + truth->stack_size, "role %d: %p, not %p", role, ti.ti_stkbase,
          (void *)(truth->stack + truth->stack_size));
    /* The main thread's stack grows; its low end is what the limit allows. */
    CHECK(ti.ti_stksize == (long)truth->stack_size, "role %d: %ld, not %zu", role, ti.ti_stksize,
          truth->stack_size);
    /* The table of values: its first pointer leads into the descriptor. */
    CHECK(ti.ti_tls > (char *)truth->id && ti.ti_tls < (char *)truth->id + ti.ti_ro_size, "role %d: %p", role,
          (void *)ti.ti_tls);
    CHECK(ti.ti_exitval == (void *)ti.ti_tls, "role %d", role);
    if (role == ZOMBIE) {
        sigset_t none;
        sigemptyset(&none);
        CHECK(ti.ti_state == TD_THR_ZOMBIE, "state %d", ti.ti_state);
        CHECK(ti.ti_pc == 0 && ti.ti_sp == 0, "%#lx %#lx", (long)ti.ti_pc, (long)ti.ti_sp);
        CHECK(!memcmp(&ti.ti_sigmask, &none, 8) && !memcmp(&ti.ti_pending, &none, 8), "a dead thread's signals");
        CHECK(ti.ti_flags & 0x10, "the exit bit: %#x", ti.ti_flags);
        return;
    }
    CHECK(ti.ti_pri == truth->priority, "role %d: %d, not %d", role, ti.ti_pri, truth->priority);
    CHECK(!memcmp(&ti.ti_sigmask, &truth->mask, sizeof(sigset_t)), "role %d: mask %#lx, not %#lx", role,
          *(long *)&ti.ti_sigmask, *(long *)&truth->mask);
    CHECK(!memcmp(&ti.ti_pending, &truth->pending, sizeof(sigset_t)), "role %d: pending %#lx, not %#lx", role,
          *(long *)&ti.ti_pending, *(long *)&truth->pending);
    if (role == SPINNER) {
        CHECK(ti.ti_state == TD_THR_ACTIVE || ti.ti_state == TD_THR_RUN, "state %d", ti.ti_state);
    } else if (role != MAIN && role != NAPPER) { /* which wake now and then */
        unsigned long sp = 0, pc = 0;
        CHECK(ti.ti_state == TD_THR_SLEEP, "role %d: state %d", role, ti.ti_state);
        CHECK(call_of(truth->lwp, &sp, &pc) >= 0, "role %d", role);
        CHECK((unsigned long)ti.ti_pc == pc && (unsigned long)ti.ti_sp == sp, "role %d: %#lx %#lx", role,
              (long)ti.ti_pc, (long)ti.ti_sp);
        CHECK((char *)ti.ti_sp >= truth->stack && (char *)ti.ti_sp < truth->stack + truth->stack_size, "role %d",
              role);
        CHECK(ti.ti_preemptflag == 0, "role %d", role);
    }
}

/* ---- iterations ---- */

struct seen {
    int calls, of[ROLES], others, stop_after;
};

static int note(const td_thrhandle_t *th, void *arg)
{
    struct seen *seen = arg;
    seen->calls++;
    CHECK(th->th_ta_p == ta, "a handle of another agent");
    int found = 0;
    for (int role = 0; role < ROLES; role++)
        if (role != GONE && (psaddr_t)shared->of[role].id == th->th_unique)
            seen->of[role]++, found = 1;
    seen->others += !found;
    return seen->stop_after && seen->calls == seen->stop_after ? 17 : 0;
}

static struct seen iterate(td_thr_state_e state, int priority, sigset_t *mask, unsigned flags)
{
    struct seen seen = { 0 };
    GIVES(TD_OK, td_ta_thr_iter(ta, note, &seen, state, priority, mask, flags));
    CHECK(seen.others == 0, "%d strangers", seen.others);
    for (int role = 0; role < ROLES; role++)
        CHECK(seen.of[role] <= 1, "role %d seen %d times", role, seen.of[role]);
    return seen;
}

#define ANY_STATE TD_THR_ANY_STATE
#define ANY_PRIORITY TD_THR_LOWEST_PRIORITY
#define ANY_MASK TD_SIGNO_MASK
#define ANY_FLAGS TD_THR_ANY_USER_FLAGS

static void check_filters(void)
{
    struct seen seen = iterate(ANY_STATE, ANY_PRIORITY, ANY_MASK, ANY_FLAGS);
    CHECK(seen.calls == LIVING, "%d threads", seen.calls);
    seen = iterate(ANY_STATE, -100, ANY_MASK, ANY_FLAGS);
    CHECK(seen.calls == LIVING, "%d threads", seen.calls);

    /* States. */
    seen = iterate(TD_THR_ZOMBIE, ANY_PRIORITY, ANY_MASK, ANY_FLAGS);
    CHECK(seen.calls == 1 && seen.of[ZOMBIE], "%d zombies", seen.calls);
    seen = iterate(TD_THR_SLEEP, ANY_PRIORITY, ANY_MASK, ANY_FLAGS);
    CHECK(seen.of[FUTEX] && seen.of[DETACHED] && seen.of[MASKED] && seen.of[REALTIME] && seen.of[OWN_STACK],
          "a sleeper is missing");
    CHECK(!seen.of[SPINNER] && !seen.of[ZOMBIE], "somebody sleeps who does not");
    int busy = iterate(TD_THR_ACTIVE, ANY_PRIORITY, ANY_MASK, ANY_FLAGS).of[SPINNER];
    busy += iterate(TD_THR_RUN, ANY_PRIORITY, ANY_MASK, ANY_FLAGS).of[SPINNER];
    for (int i = 0; i < 20 && !busy; i++) { /* it may change between the two looks */
        busy += iterate(TD_THR_ACTIVE, ANY_PRIORITY, ANY_MASK, ANY_FLAGS).of[SPINNER];
        busy += iterate(TD_THR_RUN, ANY_PRIORITY, ANY_MASK, ANY_FLAGS).of[SPINNER];
    }
    CHECK(busy, "the spinner neither runs nor could run");
    CHECK(iterate(TD_THR_STOPPED, ANY_PRIORITY, ANY_MASK, ANY_FLAGS).calls == 0, "nobody is stopped");
    CHECK(iterate(TD_THR_STOPPED_ASLEEP, ANY_PRIORITY, ANY_MASK, ANY_FLAGS).calls == 0, "nobody is stopped");
    CHECK(iterate((td_thr_state_e)8, ANY_PRIORITY, ANY_MASK, ANY_FLAGS).calls == 0, "no such state");
    CHECK(iterate((td_thr_state_e)-1, ANY_PRIORITY, ANY_MASK, ANY_FLAGS).calls == 0, "no such state");
    CHECK(iterate((td_thr_state_e)0x7fffffff, ANY_PRIORITY, ANY_MASK, ANY_FLAGS).calls == 0, "no such state");

    /* Priorities: at least. */
    int realtime = shared->of[REALTIME].priority;
    seen = iterate(ANY_STATE, 1, ANY_MASK, ANY_FLAGS);
    CHECK(seen.calls == (realtime > 0) && seen.of[REALTIME] == (realtime > 0), "%d above 0", seen.calls);
    CHECK(iterate(ANY_STATE, 0, ANY_MASK, ANY_FLAGS).calls == LIVING, "all have 0 or more");
    if (realtime > 0) {
        CHECK(iterate(ANY_STATE, realtime, ANY_MASK, ANY_FLAGS).calls == 1, "its own priority");
        CHECK(iterate(ANY_STATE, realtime + 1, ANY_MASK, ANY_FLAGS).calls == 0, "above it");
    }

    /* Signal masks: exactly. */
    sigset_t set = shared->of[MASKED].mask;
    seen = iterate(ANY_STATE, ANY_PRIORITY, &set, ANY_FLAGS);
    CHECK(seen.calls == 1 && seen.of[MASKED], "%d with that mask", seen.calls);
    sigdelset(&set, SIGUSR1);
    CHECK(iterate(ANY_STATE, ANY_PRIORITY, &set, ANY_FLAGS).calls == 0, "nobody has that mask");
    sigemptyset(&set);
    seen = iterate(ANY_STATE, ANY_PRIORITY, &set, ANY_FLAGS);
    CHECK(seen.calls == LIVING - 1 && !seen.of[MASKED], "%d with an empty mask", seen.calls);

    /* Flags: exactly. */
    seen = iterate(ANY_STATE, ANY_PRIORITY, ANY_MASK, 0x40);
    CHECK(seen.calls == 1 && seen.of[DETACHED], "%d detached", seen.calls);
    seen = iterate(ANY_STATE, ANY_PRIORITY, ANY_MASK, 0);
    CHECK(seen.calls == LIVING - 1 && !seen.of[DETACHED], "%d not detached", seen.calls);
    CHECK(iterate(ANY_STATE, ANY_PRIORITY, ANY_MASK, 0x41).calls == 0, "nobody has those flags");

    /* All of them at once. */
    sigemptyset(&set);
    seen = iterate(TD_THR_SLEEP, 0, &set, 0x40);
    CHECK(seen.calls == 1 && seen.of[DETACHED], "%d fit", seen.calls);
    CHECK(iterate(TD_THR_ZOMBIE, 0, &set, 0x40).calls == 0, "nobody fits");

    /* The callback ends it. */
    struct seen two = { .stop_after = 2 };
    GIVES(TD_OK, td_ta_thr_iter(ta, note, &two, ANY_STATE, ANY_PRIORITY, ANY_MASK, ANY_FLAGS));
    CHECK(two.calls == 2, "%d calls", two.calls);
}

static void check_maps(void)
{
    for (int role = 0; role < LIVING; role++) {
        td_thrhandle_t wanted = handle_of(role), th;
        memset(&th, 0x17, sizeof th);
        GIVES(TD_OK, td_ta_map_id2thr(ta, shared->of[role].id, &th));
        CHECK(!memcmp(&th, &wanted, sizeof th), "role %d", role);
        GIVES(TD_OK, td_thr_validate(&wanted));
        memset(&th, 0x17, sizeof th);
        if (role == ZOMBIE) {
            GIVES(TD_NOTHR, td_ta_map_lwp2thr(ta, shared->of[role].lwp, &th));
        } else {
            GIVES(TD_OK, td_ta_map_lwp2thr(ta, shared->of[role].lwp, &th));
            CHECK(!memcmp(&th, &wanted, sizeof th), "role %d", role);
        }
    }
    int count = -1;
    GIVES(TD_OK, td_ta_get_nthreads(ta, &count));
    CHECK(count == LIVING, "%d threads", count);
}

int main(void)
{
    struct ps_prochandle *ph, *same = NULL;
    pid_t pid = start_target(NULL);
    GIVES(TD_OK, td_init());
    GIVES(TD_OK, tg_attach_pid(pid, &ph));
    GIVES(TD_OK, td_ta_new(ph, &ta));
    GIVES(TD_OK, td_ta_get_ph(ta, &same));
    CHECK(same == ph, "another handle");
    GIVES(TD_OK, td_ta_setconcurrency(ta, 4));
    for (int role = 0; role < LIVING; role++)
        check_info(role);
    check_filters();
    check_maps();
    /* Job control. */
    kill(pid, SIGSTOP);
    EVENTUALLY(letter_of(shared->of[FUTEX].lwp) == 'T' && letter_of(shared->of[SPINNER].lwp) == 'T');
    td_thrinfo_t ti;
    td_thrhandle_t th = handle_of(FUTEX);
    GIVES(TD_OK, td_thr_get_info(&th, &ti));
    CHECK(ti.ti_state == TD_THR_STOPPED_ASLEEP && ti.ti_db_suspended == 0, "state %d", ti.ti_state);
    th = handle_of(SPINNER);
    GIVES(TD_OK, td_thr_get_info(&th, &ti));
    CHECK(ti.ti_state == TD_THR_STOPPED && ti.ti_pc != 0 && ti.ti_sp != 0, "state %d pc %#lx", ti.ti_state,
          (long)ti.ti_pc);
    kill(pid, SIGCONT);
    GIVES(TD_OK, td_ta_delete(ta));
    tg_release(ph);
    end_target();
    return failures != 0;
}
