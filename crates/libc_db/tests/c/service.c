/*
 * A client with its own ps_ routines: right answers when they work, an error or a right answer when the
 * k-th of them fails, for every k and every function.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "target.h"

#include "check.h"
#include "service.h"

#include <link.h>

static struct ps_prochandle process;

/* What a case found out, to be compared with what it finds out when nothing fails. */
struct outcome {
    size_t length;
    unsigned char bytes[16384];
};

static void add(struct outcome *outcome, const void *bytes, size_t length)
{
    if (outcome->length + length <= sizeof outcome->bytes) {
        memcpy(outcome->bytes + outcome->length, bytes, length);
        outcome->length += length;
    }
}

static td_thrhandle_t handle(td_thragent_t *ta, enum role role)
{
    td_thrhandle_t th = { ta, (psaddr_t)shared->of[role].id };
    return th;
}

/* The fields that are read through the client; the others may be missing, but not wrong. */
static void add_info(struct outcome *outcome, const td_thrinfo_t *ti, enum role role)
{
    const struct truth *truth = &shared->of[role];
    add(outcome, &ti->ti_user_flags, sizeof ti->ti_user_flags);
    add(outcome, &ti->ti_tid, sizeof ti->ti_tid);
    add(outcome, &ti->ti_tls, sizeof ti->ti_tls);
    add(outcome, &ti->ti_startfunc, sizeof ti->ti_startfunc);
    add(outcome, &ti->ti_ro_area, sizeof ti->ti_ro_area);
    add(outcome, &ti->ti_ro_size, sizeof ti->ti_ro_size);
    add(outcome, &ti->ti_flags, sizeof ti->ti_flags);
    add(outcome, &ti->ti_lid, sizeof ti->ti_lid);
    add(outcome, &ti->ti_traceme, sizeof ti->ti_traceme);
    add(outcome, &ti->ti_events, sizeof ti->ti_events);
    if (role != MAIN) {
        add(outcome, &ti->ti_stkbase, sizeof ti->ti_stkbase);
        add(outcome, &ti->ti_stksize, sizeof ti->ti_stksize);
    }
    /* From the kernel: right or empty. */
    long mask = *(const long *)&ti->ti_sigmask, pending = *(const long *)&ti->ti_pending;
    if (role != ZOMBIE) {
        CHECK(mask == 0 || mask == *(const long *)&truth->mask, "mask %#lx", mask);
        CHECK(pending == 0 || pending == *(const long *)&truth->pending, "pending %#lx", pending);
        CHECK(ti->ti_pri == 0 || ti->ti_pri == truth->priority, "priority %d", ti->ti_pri);
    }
    /* Who was stopped a moment ago to read its registers may be on its way back to sleep. */
    if (role == FUTEX || role == MASKED)
        CHECK(ti->ti_state == TD_THR_SLEEP || ti->ti_state == TD_THR_ACTIVE || ti->ti_state == TD_THR_RUN ||
                  ti->ti_state == TD_THR_UNKNOWN,
              "state %d", ti->ti_state);
}

static td_err_e info_of(td_thragent_t *ta, enum role role, struct outcome *outcome)
{
    td_thrhandle_t th = handle(ta, role);
    td_thrinfo_t ti;
    td_err_e rc = td_thr_get_info(&th, &ti);
    if (rc == TD_OK)
        add_info(outcome, &ti, role);
    return rc;
}

static td_err_e do_info_futex(td_thragent_t *ta, struct outcome *o) { return info_of(ta, FUTEX, o); }
static td_err_e do_info_main(td_thragent_t *ta, struct outcome *o) { return info_of(ta, MAIN, o); }
static td_err_e do_info_zombie(td_thragent_t *ta, struct outcome *o) { return info_of(ta, ZOMBIE, o); }
static td_err_e do_info_masked(td_thragent_t *ta, struct outcome *o) { return info_of(ta, MASKED, o); }

static td_err_e do_ph(td_thragent_t *ta, struct outcome *o)
{
    struct ps_prochandle *ph = NULL;
    td_err_e rc = td_ta_get_ph(ta, &ph);
    add(o, &ph, sizeof ph);
    return rc;
}

static td_err_e do_nthreads(td_thragent_t *ta, struct outcome *o)
{
    int count = -1;
    td_err_e rc = td_ta_get_nthreads(ta, &count);
    add(o, &count, sizeof count);
    return rc;
}

static td_err_e do_id2thr(td_thragent_t *ta, struct outcome *o)
{
    td_thrhandle_t th = { 0 };
    td_err_e rc = td_ta_map_id2thr(ta, shared->of[ZOMBIE].id, &th);
    add(o, &th.th_unique, sizeof th.th_unique);
    return rc;
}

static td_err_e do_lwp2thr(td_thragent_t *ta, struct outcome *o)
{
    td_thrhandle_t th = { 0 };
    td_err_e rc = td_ta_map_lwp2thr(ta, shared->of[MASKED].lwp, &th);
    add(o, &th.th_unique, sizeof th.th_unique);
    return rc;
}

static td_err_e do_validate(td_thragent_t *ta, struct outcome *o)
{
    td_thrhandle_t th = handle(ta, OWN_STACK);
    (void)o;
    return td_thr_validate(&th);
}

static int add_thread(const td_thrhandle_t *th, void *arg)
{
    add(arg, &th->th_unique, sizeof th->th_unique);
    return 0;
}

static td_err_e do_thr_iter(td_thragent_t *ta, struct outcome *o)
{
    return td_ta_thr_iter(ta, add_thread, o, TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, NULL,
                          TD_THR_ANY_USER_FLAGS);
}

static td_err_e do_thr_iter_detached(td_thragent_t *ta, struct outcome *o)
{
    return td_ta_thr_iter(ta, add_thread, o, TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, NULL, 0x40);
}

static td_err_e do_thr_iter_zombies(td_thragent_t *ta, struct outcome *o)
{
    return td_ta_thr_iter(ta, add_thread, o, TD_THR_ZOMBIE, TD_THR_LOWEST_PRIORITY, NULL, TD_THR_ANY_USER_FLAGS);
}

static int add_key(thread_key_t key, void (*destructor)(void *), void *arg)
{
    add(arg, &key, sizeof key);
    add(arg, &destructor, sizeof destructor);
    return 0;
}

static td_err_e do_tsd_iter(td_thragent_t *ta, struct outcome *o) { return td_ta_tsd_iter(ta, add_key, o); }

static td_err_e do_tsd(td_thragent_t *ta, struct outcome *o)
{
    td_thrhandle_t th = handle(ta, FUTEX);
    void *value = NULL;
    td_err_e rc = td_thr_tsd(&th, shared->keys[36], &value); /* in the second block */
    add(o, &value, sizeof value);
    return rc;
}

static td_err_e do_tlsbase(td_thragent_t *ta, struct outcome *o)
{
    td_thrhandle_t th = handle(ta, FUTEX);
    psaddr_t base = NULL;
    td_err_e rc = td_thr_tlsbase(&th, 1, &base);
    add(o, &base, sizeof base);
    return rc;
}

static td_err_e do_tls_get_addr(td_thragent_t *ta, struct outcome *o)
{
    td_thrhandle_t th = handle(ta, MAIN);
    Dl_info info;
    struct link_map *map = NULL;
    psaddr_t address = NULL;
    dladdr1((void *)do_tls_get_addr, &info, (void **)&map, RTLD_DL_LINKMAP);
    td_err_e rc = td_thr_tls_get_addr(&th, map, 8, &address);
    add(o, &address, sizeof address);
    return rc;
}

static td_err_e do_gregs(td_thragent_t *ta, struct outcome *o)
{
    td_thrhandle_t th = handle(ta, FUTEX);
    prgregset_t regs = { 0 };
    td_err_e rc = td_thr_getgregs(&th, regs);
    add(o, &regs[16], 8); /* the program counter */
    return rc == TD_OK ? td_thr_setgregs(&th, regs) : rc;
}

static td_err_e do_fpregs(td_thragent_t *ta, struct outcome *o)
{
    td_thrhandle_t th = handle(ta, FUTEX);
    prfpregset_t regs;
    memset(&regs, 0, sizeof regs);
    td_err_e rc = td_thr_getfpregs(&th, &regs);
    add(o, &regs.mxcsr, sizeof regs.mxcsr);
    return rc == TD_OK ? td_thr_setfpregs(&th, &regs) : rc;
}

static td_err_e do_xregs(td_thragent_t *ta, struct outcome *o)
{
    td_thrhandle_t th = handle(ta, FUTEX);
    char regs[64] = "";
    int size = 0;
    td_err_e rc = td_thr_getxregsize(&th, &size);
    add(o, &size, sizeof size);
    if (rc == TD_OK)
        rc = td_thr_getxregs(&th, regs);
    add(o, regs, sizeof regs);
    return rc == TD_OK ? td_thr_setxregs(&th, regs) : rc;
}

static td_err_e do_suspend(td_thragent_t *ta, struct outcome *o)
{
    td_thrhandle_t th = handle(ta, NAPPER);
    (void)o;
    td_err_e rc = td_thr_dbsuspend(&th);
    td_err_e resumed = td_thr_dbresume(&th);
    return rc != TD_OK ? rc : resumed;
}

static td_err_e do_setprio(td_thragent_t *ta, struct outcome *o)
{
    td_thrhandle_t th = handle(ta, FUTEX);
    (void)o;
    return td_thr_setprio(&th, 0);
}

static td_err_e do_sigsetmask(td_thragent_t *ta, struct outcome *o)
{
    td_thrhandle_t th = handle(ta, MASKED);
    (void)o;
    return td_thr_sigsetmask(&th, &shared->of[MASKED].mask);
}

static td_err_e do_setsigpending(td_thragent_t *ta, struct outcome *o)
{
    td_thrhandle_t th = handle(ta, MASKED);
    (void)o;
    return td_thr_setsigpending(&th, 1, &shared->of[MASKED].pending);
}

static td_err_e do_events(td_thragent_t *ta, struct outcome *o)
{
    td_thrhandle_t th = handle(ta, FUTEX);
    td_thr_events_t set;
    td_notify_t notify = { 0 };
    td_event_emptyset(&set);
    td_event_addset(&set, TD_DEATH);
    td_err_e rc = td_ta_event_addr(ta, TD_CREATE, &notify);
    add(o, &notify.u.bptaddr, sizeof notify.u.bptaddr);
    if (rc == TD_OK)
        rc = td_ta_set_event(ta, &set);
    if (rc == TD_OK)
        rc = td_ta_clear_event(ta, &set);
    if (rc == TD_OK)
        rc = td_thr_set_event(&th, &set);
    if (rc == TD_OK)
        rc = td_thr_clear_event(&th, &set);
    if (rc == TD_OK)
        rc = td_thr_event_enable(&th, 0);
    return rc;
}

static td_err_e do_getmsg(td_thragent_t *ta, struct outcome *o)
{
    td_thrhandle_t th = handle(ta, FUTEX);
    td_event_msg_t message;
    (void)o;
    td_err_e rc = td_ta_event_getmsg(ta, &message);
    return rc == TD_NOMSG ? td_thr_event_getmsg(&th, &message) : rc;
}

#ifdef WITH_XREGS
#define XREGS TD_OK
#else
#define XREGS TD_NOXREGS
#endif

static const struct test {
    const char *name;
    td_err_e (*run)(td_thragent_t *ta, struct outcome *outcome);
    td_err_e wanted;
} tests[] = {
    { "get_info of a sleeper", do_info_futex, TD_OK },
    { "get_info of main", do_info_main, TD_OK },
    { "get_info of a zombie", do_info_zombie, TD_OK },
    { "get_info of a masked thread", do_info_masked, TD_OK },
    { "get_ph", do_ph, TD_OK },
    { "get_nthreads", do_nthreads, TD_OK },
    { "map_id2thr", do_id2thr, TD_OK },
    { "map_lwp2thr", do_lwp2thr, TD_OK },
    { "validate", do_validate, TD_OK },
    { "thr_iter", do_thr_iter, TD_OK },
    { "thr_iter, detached", do_thr_iter_detached, TD_OK },
    { "thr_iter, zombies", do_thr_iter_zombies, TD_OK },
    { "tsd_iter", do_tsd_iter, TD_OK },
    { "tsd", do_tsd, TD_OK },
    { "tlsbase", do_tlsbase, TD_OK },
    { "tls_get_addr", do_tls_get_addr, TD_OK },
    { "gregs", do_gregs, TD_OK },
    { "fpregs", do_fpregs, TD_OK },
    { "xregs", do_xregs, XREGS },
    { "dbsuspend", do_suspend, TD_OK },
    { "setprio", do_setprio, TD_OK },
    { "sigsetmask", do_sigsetmask, TD_OK },
    { "setsigpending", do_setsigpending, TD_OK },
    { "events", do_events, TD_OK },
    { "getmsg", do_getmsg, TD_NOMSG },
};
#define TESTS (sizeof tests / sizeof *tests)

static struct outcome reference[TESTS];

static void check_balance(const char *name, long k)
{
    CHECK(service.stopped == service.continued && !service.bad_order, "%s, call %ld: %d stops, %d continues", name,
          k, service.stopped, service.continued);
}

static int is_error_of_client(td_err_e rc)
{
    return rc == TD_DBERR || rc == TD_NOCAPAB;
}

static td_thragent_t *agent(void)
{
    td_thragent_t *ta = NULL;
    GIVES(TD_OK, td_ta_new(&process, &ta));
    return ta;
}

static void without_failures(void)
{
    td_thragent_t *ta = agent();
    for (size_t i = 0; i < TESTS; i++) {
        int got = tests[i].run(ta, &reference[i]);
        CHECK(got == (int)tests[i].wanted, "%s gives %s", tests[i].name, td_name(got));
        check_balance(tests[i].name, 0);
    }
    /* The numbers themselves, once. */
    int count;
    memcpy(&count, reference[5].bytes, sizeof count);
    CHECK(count == LIVING, "%d threads", count);
    CHECK(reference[9].length == LIVING * sizeof(psaddr_t), "%zu bytes", reference[9].length);
    td_thrinfo_t ti;
    td_thrhandle_t th = handle(ta, MASKED);
    GIVES(TD_OK, td_thr_get_info(&th, &ti));
    CHECK(!memcmp(&ti.ti_sigmask, &shared->of[MASKED].mask, 8), "the kernel's facts are known too");
    CHECK(ti.ti_lid == shared->of[MASKED].lwp && ti.ti_tid == shared->of[MASKED].id, "%d", ti.ti_lid);
    CHECK((char *)ti.ti_stkbase == shared->of[MASKED].stack + shared->of[MASKED].stack_size, "%p", ti.ti_stkbase);
    GIVES(TD_OK, td_ta_delete(ta));
}

static void failing_calls(int fail_on)
{
    static struct outcome outcome;
    for (size_t i = 0; i < TESTS; i++) {
        for (long k = 1;; k++) {
            td_thragent_t *ta = agent();
            outcome.length = 0;
            reset_service(k, fail_on);
            td_err_e rc = tests[i].run(ta, &outcome);
            int failed = service.calls >= k;
            const char *who = service.failed;
            reset_service(0, 0);
            check_balance(tests[i].name, k);
            if (rc == tests[i].wanted)
                CHECK(outcome.length == reference[i].length &&
                          !memcmp(outcome.bytes, reference[i].bytes, outcome.length),
                      "%s, call %ld (%s) fails%s: %s with another answer (%zu bytes, not %zu)", tests[i].name, k, who,
                      fail_on ? " and all later" : "", td_name(rc), outcome.length, reference[i].length);
            else
                CHECK(is_error_of_client(rc), "%s, call %ld (%s) fails%s: %s", tests[i].name, k, who,
                      fail_on ? " and all later" : "", td_name(rc));
            GIVES(TD_OK, td_ta_delete(ta));
            if (!failed)
                break;
            CHECK(k < 2000, "no end");
        }
    }
}

static void failing_while_made(int fail_on)
{
    static struct outcome outcome;
    for (long k = 1;; k++) {
        td_thragent_t *ta = (td_thragent_t *)0x55;
        reset_service(k, fail_on);
        td_err_e rc = td_ta_new(&process, &ta);
        int failed = service.calls >= k;
        const char *who = service.failed;
        reset_service(0, 0);
        check_balance("td_ta_new", k);
        if (rc != TD_OK) {
            CHECK(ta == NULL, "td_ta_new, call %ld: %p", k, (void *)ta);
            CHECK(rc == TD_DBERR || rc == TD_NOLIBTHREAD || rc == TD_ERR, "td_ta_new, call %ld (%s) fails: %s", k, who,
                  td_name(rc));
        } else {
            /* An agent that was made must know everything. */
            for (size_t i = 0; i < TESTS; i++) {
                outcome.length = 0;
                int got = tests[i].run(ta, &outcome);
                CHECK(got == (int)tests[i].wanted && outcome.length == reference[i].length &&
                          !memcmp(outcome.bytes, reference[i].bytes, outcome.length),
                      "td_ta_new, call %ld (%s) failed%s: then %s gives %s, or another answer", k, who,
                      fail_on ? " and all later" : "", tests[i].name, td_name(got));
            }
            GIVES(TD_OK, td_ta_delete(ta));
        }
        if (!failed)
            break;
        CHECK(k < 2000, "no end");
    }
}

#ifdef WITH_STOP
static int nested_calls;

static int nested(const td_thrhandle_t *th, void *arg)
{
    td_thrinfo_t ti;
    (void)arg;
    nested_calls++;
    CHECK(service.stopped - service.continued == 1, "stopped %d times", service.stopped - service.continued);
    GIVES(TD_OK, td_thr_get_info(th, &ti));
    CHECK(service.stopped - service.continued == 1, "stopped %d times", service.stopped - service.continued);
    return nested_calls == 3;
}

static void stops_nest(void)
{
    td_thragent_t *ta = agent(), *none;
    service.stopped = service.continued = 0;
    GIVES(TD_OK, td_ta_thr_iter(ta, nested, NULL, TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, NULL,
                                TD_THR_ANY_USER_FLAGS));
    CHECK(nested_calls == 3 && service.stopped == 4, "%d stops", service.stopped);
    check_balance("nested", 0);
    /* What cannot be stopped tells nothing. */
    td_thrinfo_t ti;
    td_thrhandle_t th = handle(ta, FUTEX);
    reset_service(1, 0);
    GIVES(TD_DBERR, td_ta_new(&process, &none));
    reset_service(1, 1);
    GIVES(TD_DBERR, td_thr_get_info(&th, &ti));
    check_balance("failing stop", 0);
    reset_service(0, 0);
    /* Threads that the client's own routine holds. */
    td_thrhandle_t other = handle(ta, NAPPER);
    service.lwps_stopped = service.lwps_continued = 0;
    GIVES(TD_OK, td_thr_dbsuspend(&th));
    GIVES(TD_OK, td_thr_dbsuspend(&th));
    GIVES(TD_OK, td_thr_dbsuspend(&other));
    CHECK(service.lwps_stopped == 2, "%d", service.lwps_stopped);
    GIVES(TD_OK, td_thr_get_info(&th, &ti));
    /* It may be on its way back to its sleep from having its registers read. */
    CHECK(ti.ti_db_suspended && (ti.ti_state == TD_THR_STOPPED_ASLEEP || ti.ti_state == TD_THR_STOPPED), "state %d",
          ti.ti_state);
    GIVES(TD_OK, td_thr_dbresume(&th));
    GIVES(TD_OK, td_thr_dbresume(&th));
    CHECK(service.lwps_continued == 1, "%d", service.lwps_continued);
    GIVES(TD_OK, td_thr_get_info(&th, &ti));
    CHECK(!ti.ti_db_suspended, "resumed");
    GIVES(TD_OK, td_ta_delete(ta));
    CHECK(service.lwps_continued == 2, "td_ta_delete resumes: %d", service.lwps_continued);
}
#endif

static void without_thread_area(void)
{
    td_thragent_t *ta = agent();
    td_thrhandle_t th, wanted = handle(ta, FUTEX);
    service.no_thread_area = 1;
    GIVES(TD_OK, td_ta_map_lwp2thr(ta, shared->of[FUTEX].lwp, &th));
    CHECK(!memcmp(&th, &wanted, sizeof th), "%p", th.th_unique);
    service.no_thread_area = 0;
    GIVES(TD_OK, td_ta_delete(ta));
}

/* Once threads are set up, address 0 is no thread. */
static void nobody(void)
{
    td_thragent_t *ta = agent();
    td_thrhandle_t th = { ta, NULL };
    td_thrinfo_t ti;
    psaddr_t base;
    GIVES(TD_BADTH, td_thr_get_info(&th, &ti));
    GIVES(TD_BADTH, td_thr_tlsbase(&th, 1, &base));
    CHECK(base == NULL, "%p", base);
    GIVES(TD_BADTH, td_thr_tls_get_addr(&th, NULL, 0, &base));
    GIVES(TD_OK, td_ta_delete(ta));
}

int main(void)
{
    process.pid = process.claimed = start_target(NULL);
    without_failures();
    without_thread_area();
    nobody();
    failing_calls(0);
    failing_calls(1);
    failing_while_made(0);
    failing_while_made(1);
#ifdef WITH_STOP
    stops_nest();
#endif
    end_target();
    return failures != 0;
}
