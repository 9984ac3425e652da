/*
 * Bad arguments, callbacks that stop and call, and a client whose k-th routine fails, for every k: an error
 * or the right answer.
 * Usage: sync_service PID ADDRESS.. (objects that threads wait for)
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "check.h"

#include "debugger.h"

static td_thragent_t *ta;
static char **addresses;

/* What a case found out. */
struct outcome {
    size_t length;
    unsigned char bytes[65536];
};

static void add(struct outcome *outcome, const void *bytes, size_t length)
{
    if (outcome->length + length <= sizeof outcome->bytes) {
        memcpy(outcome->bytes + outcome->length, bytes, length);
        outcome->length += length;
    }
}

static int add_object(const td_synchandle_t *sh, void *arg)
{
    add(arg, &sh->sh_unique, sizeof sh->sh_unique);
    return 0;
}

static int add_thread(const td_thrhandle_t *th, void *arg)
{
    add(arg, &th->th_unique, sizeof th->th_unique);
    return 0;
}

static td_synchandle_t object(const char *address)
{
    td_synchandle_t sh = { ta, (psaddr_t)strtoul(address, NULL, 0) };
    return sh;
}

static td_err_e do_map(struct outcome *o)
{
    td_synchandle_t sh = { 0 };
    td_err_e rc = td_ta_map_addr2sync(ta, object(addresses[0]).sh_unique, &sh);
    add(o, &sh.sh_unique, sizeof sh.sh_unique);
    /* A failed read means that nothing is there. */
    return rc == TD_BADSH ? TD_DBERR : rc;
}

static td_err_e do_iter(struct outcome *o)
{
    return td_ta_sync_iter(ta, add_object, o);
}

static td_err_e do_infos(struct outcome *o)
{
    for (char **address = addresses; *address; address++) {
        td_synchandle_t sh = object(*address);
        td_syncinfo_t si;
        td_err_e rc = td_sync_get_info(&sh, &si);
        if (rc != TD_OK)
            return rc;
        si.si_ta_p = si.si_owner.th_ta_p = NULL;
        add(o, &si, sizeof si);
    }
    return TD_OK;
}

static td_err_e do_stats(struct outcome *o)
{
    td_synchandle_t sh = object(addresses[0]);
    td_syncstats_t ss;
    td_err_e rc = td_sync_get_stats(&sh, &ss);
    add(o, &ss.ss_info.si_type, sizeof ss.ss_info.si_type);
    add(o, &ss.ss_un, sizeof ss.ss_un);
    return rc;
}

static td_err_e do_waiters(struct outcome *o)
{
    td_synchandle_t sh = object(addresses[0]);
    return td_sync_waiters(&sh, add_thread, o);
}

static struct threads {
    td_thrhandle_t of[512];
    int count;
} threads;

static int keep(const td_thrhandle_t *th, void *arg)
{
    struct threads *list = arg;
    if (list->count < 512)
        list->of[list->count++] = *th;
    return 0;
}

static td_err_e do_sleepers(struct outcome *o)
{
    for (int i = 0; i < threads.count; i++) {
        td_thrhandle_t th = { ta, threads.of[i].th_unique };
        td_synchandle_t sh;
        td_err_e rc = td_thr_sleepinfo(&th, &sh);
        /* TD_ERR: it does not sleep on anything. */
        if (rc != TD_OK && rc != TD_ERR)
            return rc;
        add(o, &sh.sh_unique, sizeof sh.sh_unique);
    }
    return TD_OK;
}

static td_err_e do_owners(struct outcome *o)
{
    for (int i = 0; i < threads.count; i++) {
        td_thrhandle_t th = { ta, threads.of[i].th_unique };
        td_err_e rc = td_thr_lockowner(&th, add_object, o);
        if (rc != TD_OK)
            return rc;
    }
    return TD_OK;
}

static const struct test {
    const char *name;
    td_err_e (*run)(struct outcome *);
} tests[] = {
    { "map_addr2sync", do_map }, { "sync_iter", do_iter },   { "get_info", do_infos },  { "get_stats", do_stats },
    { "waiters", do_waiters },   { "sleepinfo", do_sleepers }, { "lockowner", do_owners },
};
#define TESTS (sizeof tests / sizeof *tests)

static struct outcome reference[2][TESTS]; /* with what the kernel knows, and without */

static void with_agent(struct ps_prochandle *ph)
{
    GIVES(TD_OK, td_ta_new(ph, &ta));
}

static int same(const struct outcome *left, const struct outcome *right)
{
    return left->length == right->length && !memcmp(left->bytes, right->bytes, left->length);
}

static void references(struct ps_prochandle *ph)
{
    for (int blind = 0; blind < 2; blind++) {
        ph->blind = blind;
        with_agent(ph);
        for (size_t i = 0; i < TESTS; i++) {
            GIVES(TD_OK, tests[i].run(&reference[blind][i]));
            CHECK(reference[blind][i].length > 0, "%s says nothing", tests[i].name);
        }
        GIVES(TD_OK, td_ta_delete(ta));
    }
    ph->blind = 0;
}

static void failing(struct ps_prochandle *ph, int on)
{
    static struct outcome outcome;
    for (size_t i = 0; i < TESTS; i++) {
        /* Every call at first; then some, of the many that read stacks and tables. */
        for (long k = 1;; k += 1 + k / 8) {
            with_agent(ph);
            outcome.length = calls = 0;
            fail_at = k;
            fail_on = on;
            td_err_e rc = tests[i].run(&outcome);
            int reached = calls >= k;
            fail_at = 0;
            if (rc == TD_OK)
                CHECK(same(&outcome, &reference[0][i]) || same(&outcome, &reference[1][i]),
                      "%s, call %ld fails%s: another answer", tests[i].name, k, on ? " and all later" : "");
            else
                CHECK(rc == TD_DBERR, "%s, call %ld fails%s: %s", tests[i].name, k, on ? " and all later" : "",
                      td_name(rc));
            GIVES(TD_OK, td_ta_delete(ta));
            if (!reached)
                break;
        }
    }
}

static int once(const td_synchandle_t *sh, void *arg)
{
    (void)sh;
    return ++*(int *)arg;
}

static int once_thread(const td_thrhandle_t *th, void *arg)
{
    (void)th;
    return ++*(int *)arg;
}

static int inside(const td_synchandle_t *sh, void *arg)
{
    int count = 0;
    td_syncinfo_t si;
    struct outcome *outcome = arg;
    GIVES(TD_OK, td_sync_get_info(sh, &si));
    GIVES(TD_OK, td_ta_sync_iter(ta, once, &count));
    CHECK(count == 1, "%d calls", count);
    return add_object(sh, outcome);
}

static int deletes(const td_synchandle_t *sh, void *arg)
{
    td_syncinfo_t si;
    if (!(*(int *)arg)++)
        GIVES(TD_OK, td_ta_delete(ta));
    GIVES(TD_BADPH, td_sync_get_info(sh, &si));
    return 0;
}

static void callbacks(struct ps_prochandle *ph)
{
    static struct outcome outcome;
    int count = 0;
    with_agent(ph);
    GIVES(TD_OK, td_ta_sync_iter(ta, once, &count));
    CHECK(count == 1, "%d calls", count);
    td_synchandle_t sh = object(addresses[0]);
    count = 0;
    GIVES(TD_OK, td_sync_waiters(&sh, once_thread, &count));
    CHECK(count == 1, "%d calls", count);
    GIVES(TD_OK, td_ta_sync_iter(ta, inside, &outcome));
    CHECK(same(&outcome, &reference[0][1]), "calls from inside change the answer");
    count = 0;
    GIVES(TD_OK, td_ta_sync_iter(ta, deletes, &count));
    CHECK(count > 1, "%d calls", count);
    GIVES(TD_BADPH, td_ta_sync_iter(ta, once, &count));
}

/* A thread that was stopped when its call was done sleeps no longer: all functions say so, with what the kernel
 * knows and without. */
static void done_call(struct ps_prochandle *ph)
{
    struct user_regs_struct asleep, done;
    td_synchandle_t sh;
    td_thrinfo_t ti;
    for (int blind = 0; blind < 2; blind++) {
        ph->blind = blind;
        with_agent(ph);
        td_thrhandle_t th = { ta, threads.of[threads.count - 1].th_unique };
        GIVES(TD_OK, td_thr_sleepinfo(&th, &sh));
        GIVES(TD_OK, td_thr_get_info(&th, &ti));
        CHECK(ti.ti_state == TD_THR_SLEEP, "state %d", ti.ti_state);
        CHECK(!ptrace(PTRACE_GETREGS, ti.ti_lid, NULL, &asleep), "registers: %s", strerror(errno));
        done = asleep;
        done.rax = 0;
        CHECK(!ptrace(PTRACE_SETREGS, ti.ti_lid, NULL, &done), "registers: %s", strerror(errno));
        GIVES(TD_ERR, td_thr_sleepinfo(&th, &sh));
        GIVES(TD_OK, td_thr_get_info(&th, &ti));
        CHECK(ti.ti_state == TD_THR_ACTIVE, "blind %d: state %d", blind, ti.ti_state);
        CHECK(!ptrace(PTRACE_SETREGS, ti.ti_lid, NULL, &asleep), "registers: %s", strerror(errno));
        GIVES(TD_OK, td_ta_delete(ta));
    }
    ph->blind = 0;
}

static int told;

/* Called when tracking is refused. It may call back, as anything of ours may: nothing is held meanwhile. */
void ps_plog(const char *format, ...)
{
    td_synchandle_t sh = object(addresses[0]);
    td_syncstats_t ss;
    CHECK(!strcmp(format, "%s"), "format %s", format);
    GIVES(TD_OK, td_sync_get_stats(&sh, &ss));
    told++;
}

static void bad_addresses(struct ps_prochandle *ph)
{
    td_synchandle_t sh;
    td_syncinfo_t si, zero;
    int count = 0;
    memset(&zero, 0, sizeof zero);
    with_agent(ph);
    GIVES(TD_ERR, td_ta_map_addr2sync(ta, NULL, &sh));
    GIVES(TD_BADSH, td_ta_map_addr2sync(ta, (psaddr_t)0x1000, NULL));
    char *known = object(addresses[0]).sh_unique;
    const psaddr_t none[] = { (psaddr_t)0x10, (psaddr_t)0x1000, (psaddr_t)-8l, (psaddr_t)0x7ffffffffffff000,
                              known + 1, known + 2, ph->theirs /* the first page of libc */ };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        td_err_e rc = td_ta_map_addr2sync(ta, none[i], &sh);
        CHECK(rc == TD_BADSH, "%p gives %s", none[i], td_name(rc));
    }
    for (size_t i = 0; i < 4; i++) {
        sh = (td_synchandle_t){ ta, none[i] };
        memset(&si, 0xff, sizeof si);
        GIVES(TD_DBERR, td_sync_get_info(&sh, &si));
        CHECK(!memcmp(&si, &zero, sizeof si), "info of nothing is not zero");
        GIVES(TD_DBERR, td_sync_waiters(&sh, once_thread, &count));
        td_err_e rc = td_sync_setstate(&sh, 0);
        CHECK(rc == TD_DBERR || rc == TD_BADSH, "setstate gives %s", td_name(rc));
    }
    /* In the middle of an object, and where none is: readable, and of no type. */
    const psaddr_t other[] = { known + 4, known + 8, known + 16, ph->theirs + 64 };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        sh = (td_synchandle_t){ ta, other[i] };
        GIVES(TD_OK, td_sync_get_info(&sh, &si));
        CHECK(si.si_type == TD_SYNC_UNKNOWN && si.si_sv_addr == other[i] && !si.si_size, "type %d", si.si_type);
        GIVES(TD_OK, td_sync_waiters(&sh, once_thread, &count));
        GIVES(TD_BADSH, td_sync_setstate(&sh, 0));
    }
    CHECK(count == 0, "%d waiters of nothing", count);
    GIVES(TD_NOCAPAB, td_ta_sync_tracking_enable(ta, 1));
    CHECK(told == 1, "told %d times why", told);
    GIVES(TD_OK, td_ta_delete(ta));
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    addresses = argv + 2;
    struct ps_prochandle *ph = debug(atoi(argv[1]), 0);
    with_agent(ph);
    GIVES(TD_OK, td_ta_thr_iter(ta, keep, &threads, TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, NULL,
                                TD_THR_ANY_USER_FLAGS));
    GIVES(TD_OK, td_ta_delete(ta));
    references(ph);
    done_call(ph);
    callbacks(ph);
    bad_addresses(ph);
    failing(ph, 0);
    failing(ph, 1);
    let_go();
    return failures != 0;
}
