/*
 * Bad arguments, dead processes and corrupt thread lists: an error code, never a crash or a hang.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "target.h"

#include <dirent.h>

#include "check.h"

static int on_thread(const td_thrhandle_t *th, void *arg)
{
    (void)th;
    ++*(int *)arg;
    return 0;
}

static int on_key(thread_key_t key, void (*destructor)(void *), void *arg)
{
    (void)key, (void)destructor;
    ++*(int *)arg;
    return 0;
}

static int on_sync(const td_synchandle_t *sh, void *arg)
{
    (void)sh;
    ++*(int *)arg;
    return 0;
}

static struct {
    int number;
    td_thrhandle_t th;
    td_synchandle_t sh;
    td_thrinfo_t ti;
    td_syncinfo_t si;
    td_syncstats_t ss;
    td_ta_stats_t stats;
    td_notify_t notify;
    td_event_msg_t message;
    td_thr_events_t events;
    prgregset_t gregs;
    prfpregset_t fpregs;
    sigset_t set;
    char xregs[16384];
    psaddr_t address;
    void *pointer;
    struct ps_prochandle *ph;
} out;

#define ITERATE(ta, cb) td_ta_thr_iter(ta, cb, &out.number, TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, NULL, ~0u)

/* Every function of an agent, with everything else in order. */
static void every_agent_function(td_thragent_t *ta, td_err_e wanted)
{
    GIVES(wanted, td_ta_get_ph(ta, &out.ph));
    GIVES(wanted, td_ta_get_nthreads(ta, &out.number));
    GIVES(wanted, td_ta_setconcurrency(ta, 1));
    GIVES(wanted, td_ta_map_id2thr(ta, shared->of[FUTEX].id, &out.th));
    GIVES(wanted, td_ta_map_lwp2thr(ta, shared->of[FUTEX].lwp, &out.th));
    GIVES(wanted, td_ta_map_addr2sync(ta, &out, &out.sh));
    GIVES(wanted, ITERATE(ta, on_thread));
    GIVES(wanted, td_ta_tsd_iter(ta, on_key, &out.number));
    GIVES(wanted, td_ta_sync_iter(ta, on_sync, &out.number));
    GIVES(wanted, td_ta_event_addr(ta, TD_CREATE, &out.notify));
    GIVES(wanted, td_ta_set_event(ta, &out.events));
    GIVES(wanted, td_ta_clear_event(ta, &out.events));
    GIVES(wanted, td_ta_event_getmsg(ta, &out.message));
    GIVES(wanted, td_ta_enable_stats(ta, 1));
    GIVES(wanted, td_ta_reset_stats(ta));
    GIVES(wanted, td_ta_get_stats(ta, &out.stats));
    GIVES(wanted, td_ta_sync_tracking_enable(ta, 1));
}

/* Every function of a thread, with everything else in order. td_thr_validate has rules of its own. */
static void every_thread_function(const td_thrhandle_t *th, td_err_e wanted, td_err_e validate)
{
    GIVES(validate, td_thr_validate(th));
    GIVES(wanted, td_thr_get_info(th, &out.ti));
    GIVES(wanted, td_thr_tsd(th, 0, &out.pointer));
    GIVES(wanted, td_thr_tlsbase(th, 1, &out.address));
    GIVES(wanted, td_thr_tls_get_addr(th, &out, 0, &out.address));
    GIVES(wanted, td_thr_getgregs(th, out.gregs));
    GIVES(wanted, td_thr_setgregs(th, out.gregs));
    GIVES(wanted, td_thr_getfpregs(th, &out.fpregs));
    GIVES(wanted, td_thr_setfpregs(th, &out.fpregs));
    GIVES(wanted, td_thr_getxregsize(th, &out.number));
    GIVES(wanted, td_thr_getxregs(th, out.xregs));
    GIVES(wanted, td_thr_setxregs(th, out.xregs));
    GIVES(wanted, td_thr_dbsuspend(th));
    GIVES(wanted, td_thr_dbresume(th));
    GIVES(wanted, td_thr_setprio(th, 0));
    GIVES(wanted, td_thr_sigsetmask(th, &out.set));
    GIVES(wanted, td_thr_setsigpending(th, 1, &out.set));
    GIVES(wanted, td_thr_set_event(th, &out.events));
    GIVES(wanted, td_thr_clear_event(th, &out.events));
    GIVES(wanted, td_thr_event_enable(th, 0));
    GIVES(wanted, td_thr_event_getmsg(th, &out.message));
    GIVES(wanted, td_thr_lockowner(th, on_sync, &out.number));
    GIVES(wanted, td_thr_sleepinfo(th, &out.sh));
}

static void every_sync_function(const td_synchandle_t *sh, td_err_e wanted)
{
    GIVES(wanted, td_sync_get_info(sh, &out.si));
    GIVES(wanted, td_sync_get_stats(sh, &out.ss));
    GIVES(wanted, td_sync_setstate(sh, 0));
    GIVES(wanted, td_sync_waiters(sh, on_thread, &out.number));
}

/* A required pointer that is NULL, whatever the handle. */
static void null_pointers(td_thragent_t *ta, const td_thrhandle_t *th)
{
    td_synchandle_t sh = { ta, &out };
    td_thragent_t *none;
    GIVES(TD_ERR, td_ta_new((struct ps_prochandle *)0x55, NULL));
    GIVES(TD_BADPH, td_ta_new(NULL, &none));
    CHECK(none == NULL, "%p", (void *)none);
    GIVES(TD_ERR, td_ta_new(NULL, NULL));
    GIVES(TD_BADTA, td_ta_delete(NULL));
    GIVES(TD_ERR, td_ta_get_ph(ta, NULL));
    GIVES(TD_ERR, td_ta_get_nthreads(ta, NULL));
    GIVES(TD_BADTH, td_ta_map_id2thr(ta, shared->of[FUTEX].id, NULL));
    GIVES(TD_BADTH, td_ta_map_lwp2thr(ta, shared->of[FUTEX].lwp, NULL));
    GIVES(TD_BADSH, td_ta_map_addr2sync(ta, &out, NULL));
    GIVES(TD_ERR, ITERATE(ta, NULL));
    GIVES(TD_ERR, td_ta_tsd_iter(ta, NULL, NULL));
    GIVES(TD_ERR, td_ta_sync_iter(ta, NULL, NULL));
    GIVES(TD_ERR, td_ta_event_addr(ta, TD_CREATE, NULL));
    GIVES(TD_ERR, td_ta_set_event(ta, NULL));
    GIVES(TD_ERR, td_ta_clear_event(ta, NULL));
    GIVES(TD_ERR, td_ta_event_getmsg(ta, NULL));
    GIVES(TD_ERR, td_ta_get_stats(ta, NULL));
    GIVES(TD_ERR, td_thr_get_info(th, NULL));
    GIVES(TD_ERR, td_thr_tsd(th, 0, NULL));
    GIVES(TD_ERR, td_thr_tlsbase(th, 1, NULL));
    GIVES(TD_ERR, td_thr_tls_get_addr(th, &out, 0, NULL));
    GIVES(TD_ERR, td_thr_getgregs(th, NULL));
    GIVES(TD_ERR, td_thr_setgregs(th, NULL));
    GIVES(TD_ERR, td_thr_getfpregs(th, NULL));
    GIVES(TD_ERR, td_thr_setfpregs(th, NULL));
    GIVES(TD_ERR, td_thr_getxregsize(th, NULL));
    GIVES(TD_ERR, td_thr_getxregs(th, NULL));
    GIVES(TD_ERR, td_thr_setxregs(th, NULL));
    GIVES(TD_ERR, td_thr_sigsetmask(th, NULL));
    GIVES(TD_ERR, td_thr_setsigpending(th, 0, NULL));
    GIVES(TD_ERR, td_thr_set_event(th, NULL));
    GIVES(TD_ERR, td_thr_clear_event(th, NULL));
    GIVES(TD_ERR, td_thr_event_getmsg(th, NULL));
    GIVES(TD_ERR, td_thr_lockowner(th, NULL, NULL));
    GIVES(TD_ERR, td_thr_sleepinfo(th, NULL));
    GIVES(TD_ERR, td_sync_get_info(&sh, NULL));
    GIVES(TD_ERR, td_sync_get_stats(&sh, NULL));
    GIVES(TD_ERR, td_sync_waiters(&sh, NULL, NULL));
    GIVES(TD_ERR, td_thr_get_info(NULL, NULL));
    GIVES(TD_ERR, td_sync_get_info(NULL, NULL));
}

static void bad_handles(td_thragent_t *ta)
{
    long garbage[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    td_thragent_t *const agents[] = { NULL, (td_thragent_t *)garbage, (td_thragent_t *)0x10, (td_thragent_t *)-1l,
                                      (td_thragent_t *)((char *)ta + 1) };
    for (size_t i = 0; i < sizeof agents / sizeof *agents; i++) {
        every_agent_function(agents[i], TD_BADTA);
        GIVES(TD_BADTA, td_ta_delete(agents[i]));
        td_thrhandle_t th = { agents[i], (psaddr_t)shared->of[FUTEX].id };
        every_thread_function(&th, TD_BADTA, agents[i] ? TD_BADTA : TD_BADTH);
        td_synchandle_t sh = { agents[i], &out };
        every_sync_function(&sh, TD_BADTA);
    }
    every_thread_function(NULL, TD_BADTH, TD_BADTH);
    every_sync_function(NULL, TD_BADSH);
    td_synchandle_t nowhere = { ta, NULL };
    every_sync_function(&nowhere, TD_BADSH);

    char *id = (char *)shared->of[FUTEX].id;
    const psaddr_t addresses[] = {
        (psaddr_t)0x10,     id + 1,          id + 8, id - 64, id + 64, (psaddr_t)bad_handles, &out,
        (psaddr_t)shared,   (psaddr_t)-8l,   (psaddr_t)0xdead00000000beef, (psaddr_t)0x7ffffffffffff000,
        (psaddr_t)shared->of[GONE].id, /* joined: its memory is still there */
    };
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        td_thrhandle_t th = { ta, addresses[i] };
        int before = failures;
        every_thread_function(&th, TD_BADTH, TD_NOTHR);
        CHECK(failures == before, "th_unique %p", addresses[i]);
        GIVES(TD_NOTHR, td_ta_map_id2thr(ta, (thread_t)addresses[i], &out.th));
    }
    td_thrhandle_t zero = { ta, NULL };
    GIVES(TD_BADTH, td_thr_validate(&zero));
    GIVES(TD_BADTH, td_thr_get_info(&zero, &out.ti));
    GIVES(TD_BADTH, td_thr_getgregs(&zero, out.gregs));
    GIVES(TD_BADTH, td_thr_dbsuspend(&zero));
    GIVES(TD_NOTHR, td_ta_map_id2thr(ta, 0, &out.th));
    const lwpid_t lwps[] = { 0, -1, 1, 0x7fffffff, getpid(), shared->of[GONE].lwp };
    for (size_t i = 0; i < sizeof lwps / sizeof *lwps; i++)
        GIVES(TD_NOTHR, td_ta_map_lwp2thr(ta, lwps[i], &out.th));
}

static int open_files(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

static void other_agents(struct ps_prochandle *ph)
{
    struct ps_prochandle *self;
    td_thragent_t *gone, *own;
    td_thrhandle_t th = { NULL, (psaddr_t)shared->of[FUTEX].id };
    GIVES(TD_OK, td_ta_new(ph, &gone));
    GIVES(TD_OK, td_ta_delete(gone));
    GIVES(TD_BADPH, td_ta_delete(gone));
    every_agent_function(gone, TD_BADPH);
    th.th_ta_p = gone;
    every_thread_function(&th, TD_BADPH, TD_BADPH);
    td_synchandle_t sh = { gone, &out };
    every_sync_function(&sh, TD_BADPH);

    /* Our own process: another agent, in which that thread does not exist. */
    int files = open_files();
    GIVES(TD_OK, tg_attach_pid(getpid(), &self));
    GIVES(TD_OK, td_ta_new(self, &own));
    th.th_ta_p = own;
    GIVES(TD_NOTHR, td_thr_validate(&th));
    GIVES(TD_BADTH, td_thr_get_info(&th, &out.ti));
    td_thrhandle_t me;
    GIVES(TD_OK, td_ta_map_lwp2thr(own, getpid(), &me));
    CHECK(me.th_unique == (psaddr_t)pthread_self(), "%p", me.th_unique);
    GIVES(TD_OK, td_thr_get_info(&me, &out.ti));
    CHECK(out.ti.ti_lid == getpid(), "%d", out.ti.ti_lid);
    /* A released handle. */
    tg_release(self);
    tg_release(self);
    every_agent_function(own, TD_BADPH);
    CHECK(open_files() == files, "%d files, %d before", open_files(), files);
    td_thragent_t *none = (td_thragent_t *)0x55;
    GIVES(TD_BADPH, td_ta_new(self, &none));
    CHECK(none == NULL, "%p", (void *)none);
    tg_release(NULL);
    tg_release((struct ps_prochandle *)0x55);
}

static void bad_processes(void)
{
    struct ps_prochandle *ph;
    const pid_t pids[] = { 0, -1, 0x7fffffff, -2147483647 - 1, shared->of[FUTEX].lwp };
    for (size_t i = 0; i < sizeof pids / sizeof *pids; i++) {
        ph = (struct ps_prochandle *)0x55;
        GIVES(TD_ERR, tg_attach_pid(pids[i], &ph));
        CHECK(ph == NULL, "%d: %p", pids[i], (void *)ph);
        CHECK(strlen(tg_last_error()) > 10, "%d: \"%s\"", pids[i], tg_last_error());
    }
    GIVES(TD_ERR, tg_attach_pid(0x7fffffff, &ph));
    CHECK(strstr(tg_last_error(), "2147483647") != NULL, "\"%s\"", tg_last_error());
    GIVES(TD_ERR, tg_attach_pid(shared->of[FUTEX].lwp, &ph));
    CHECK(strstr(tg_last_error(), "is a thread") != NULL, "\"%s\"", tg_last_error());
    GIVES(TD_ERR, tg_attach_pid(shared->pid, NULL));
    CHECK(strstr(tg_last_error(), "NULL") != NULL, "\"%s\"", tg_last_error());
    /* Who prints it prints the name of a file, which obeys nobody. */
    GIVES(TD_ERR, tg_open_core("/nonexistent/\033[2J\177\302\233core", NULL, &ph));
    CHECK(strstr(tg_last_error(), "\\u{1b}[2J\\u{7f}\\u{9b}core") != NULL, "\"%s\"", tg_last_error());
    ph = (struct ps_prochandle *)0x55;
    CHECK(tg_open_core("/nonexistent/core", NULL, &ph) != TD_OK && ph == NULL, "%p", (void *)ph);
    CHECK(strlen(tg_last_error()) > 10, "\"%s\"", tg_last_error());
    CHECK(tg_open_core(NULL, NULL, NULL) != TD_OK, "nothing to open");
}

/* Not a client with ps_ routines: a handle that is not ours leads nowhere. */
static void foreign_process_handle(void)
{
    long garbage[8] = { 0 };
    td_thragent_t *none = (td_thragent_t *)0x55;
    CHECK(td_ta_new((struct ps_prochandle *)garbage, &none) != TD_OK && none == NULL, "%p", (void *)none);
}

static void dead_process(td_thragent_t *ta, struct ps_prochandle *ph)
{
    td_thrhandle_t th = { ta, (psaddr_t)shared->of[FUTEX].id };
    td_thragent_t *none = (td_thragent_t *)0x55;
    end_target();
    CHECK(td_ta_get_nthreads(ta, &out.number) != TD_OK, "of a dead process");
    CHECK(ITERATE(ta, on_thread) != TD_OK, "of a dead process");
    CHECK(td_ta_tsd_iter(ta, on_key, &out.number) != TD_OK, "of a dead process");
    CHECK(td_ta_map_id2thr(ta, shared->of[FUTEX].id, &out.th) != TD_OK, "of a dead process");
    CHECK(td_ta_map_lwp2thr(ta, shared->of[FUTEX].lwp, &out.th) != TD_OK, "of a dead process");
    CHECK(td_thr_validate(&th) != TD_OK, "of a dead process");
    CHECK(td_thr_get_info(&th, &out.ti) != TD_OK, "of a dead process");
    CHECK(td_thr_tsd(&th, 0, &out.pointer) != TD_OK, "of a dead process");
    CHECK(td_thr_tlsbase(&th, 1, &out.address) != TD_OK, "of a dead process");
    CHECK(td_thr_getgregs(&th, out.gregs) != TD_OK, "of a dead process");
    CHECK(td_thr_setgregs(&th, out.gregs) != TD_OK, "of a dead process");
    CHECK(td_thr_getxregs(&th, out.xregs) != TD_OK, "of a dead process");
    CHECK(td_thr_dbsuspend(&th) != TD_OK, "of a dead process");
    CHECK(td_thr_setprio(&th, 0) != TD_OK, "of a dead process");
    CHECK(td_thr_sigsetmask(&th, &out.set) != TD_OK, "of a dead process");
    CHECK(td_thr_setsigpending(&th, 1, &out.set) != TD_OK, "of a dead process");
    CHECK(td_ta_set_event(ta, &out.events) != TD_OK, "of a dead process");
    CHECK(td_thr_event_enable(&th, 1) != TD_OK, "of a dead process");
    CHECK(td_ta_event_getmsg(ta, &out.message) != TD_OK, "of a dead process");
    td_synchandle_t sh = { ta, shared };
    CHECK(td_ta_sync_iter(ta, on_sync, &out.number) != TD_OK, "of a dead process");
    CHECK(td_ta_map_addr2sync(ta, shared, &out.sh) != TD_OK, "of a dead process");
    CHECK(td_thr_sleepinfo(&th, &out.sh) != TD_OK, "of a dead process");
    CHECK(td_thr_lockowner(&th, on_sync, &out.number) != TD_OK, "of a dead process");
    CHECK(td_sync_get_info(&sh, &out.si) != TD_OK, "of a dead process");
    CHECK(td_sync_get_stats(&sh, &out.ss) != TD_OK, "of a dead process");
    CHECK(td_sync_waiters(&sh, on_thread, &out.number) != TD_OK, "of a dead process");
    CHECK(td_sync_setstate(&sh, 0) != TD_OK, "of a dead process");
    CHECK(td_ta_new(ph, &none) != TD_OK && none == NULL, "of a dead process");
    GIVES(TD_OK, td_ta_delete(ta));
    GIVES(TD_BADPH, td_ta_delete(ta));
    tg_release(ph);
}

static void corrupt_list(enum command how)
{
    struct ps_prochandle *ph;
    td_thragent_t *ta;
    start_target(NULL);
    GIVES(TD_OK, tg_attach_pid(shared->pid, &ph));
    GIVES(TD_OK, td_ta_new(ph, &ta));
    tell_target(how);
    for (int again = 0; again < 2; again++) {
        td_thrhandle_t th = { ta, (psaddr_t)shared->of[FUTEX].id };
        int calls = out.number = 0;
        int rc = ITERATE(ta, on_thread);
        CHECK(rc == TD_ERR || rc == TD_DBERR, "command %d: %s", how, td_name(rc));
        CHECK(out.number == calls, "%d calls", out.number);
        rc = td_ta_get_nthreads(ta, &out.number);
        CHECK(rc == TD_ERR || rc == TD_DBERR, "command %d: %s", how, td_name(rc));
        rc = td_thr_validate(&th);
        CHECK(rc == TD_ERR || rc == TD_DBERR, "command %d: %s", how, td_name(rc));
        rc = td_ta_map_id2thr(ta, shared->of[FUTEX].id, &out.th);
        CHECK(rc == TD_ERR || rc == TD_DBERR, "command %d: %s", how, td_name(rc));
        /* What needs no list still works. */
        GIVES(TD_OK, td_thr_get_info(&th, &out.ti));
        CHECK(out.ti.ti_lid == shared->of[FUTEX].lwp, "%d", out.ti.ti_lid);
        GIVES(TD_OK, td_thr_tlsbase(&th, 1, &out.address));
        GIVES(TD_OK, td_thr_sleepinfo(&th, &out.sh)); /* the kernel has a list of its own */
        if (!again) { /* and so it is for an agent made afterwards */
            GIVES(TD_OK, td_ta_delete(ta));
            GIVES(TD_OK, td_ta_new(ph, &ta));
        }
    }
    GIVES(TD_OK, td_ta_delete(ta));
    tg_release(ph);
    end_target();
}

int main(void)
{
    struct ps_prochandle *ph;
    td_thragent_t *ta;
    CHECK(tg_last_error() && !*tg_last_error(), "no error so far");
    start_target(NULL);
    GIVES(TD_OK, tg_attach_pid(shared->pid, &ph));
    GIVES(TD_OK, td_ta_new(ph, &ta));
    td_thrhandle_t th = { ta, (psaddr_t)shared->of[FUTEX].id };
    null_pointers(ta, &th);
    bad_handles(ta);
    other_agents(ph);
    bad_processes();
    foreign_process_handle();
    /* After all of that the agent still works, and so does the process. */
    GIVES(TD_OK, td_thr_get_info(&th, &out.ti));
    CHECK(out.ti.ti_lid == shared->of[FUTEX].lwp, "%d", out.ti.ti_lid);
    dead_process(ta, ph);
    corrupt_list(BREAK_LIST_LOOP);
    corrupt_list(BREAK_LIST_NULL);
    corrupt_list(BREAK_LIST_UNMAPPED);
    return failures != 0;
}
