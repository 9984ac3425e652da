/*
 * The td_thr_get_info page in C: prints the information of every thread of a process.
 * Usage: synopsis_td_thr_get_info PID
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <proc_service.h>
#include <thread_db.h>

#include <stdio.h>
#include <stdlib.h>

static const char *state_name(td_thr_state_e state)
{
    switch (state) {
    case TD_THR_ANY_STATE:
        return "any";
    case TD_THR_UNKNOWN:
        return "unknown";
    case TD_THR_STOPPED:
        return "stopped";
    case TD_THR_RUN:
        return "run";
    case TD_THR_ACTIVE:
        return "active";
    case TD_THR_ZOMBIE:
        return "zombie";
    case TD_THR_SLEEP:
        return "sleep";
    case TD_THR_STOPPED_ASLEEP:
        return "stopped asleep";
    }
    return "?";
}

static int show(const td_thrhandle_t *th_p, void *cbdata_p)
{
    td_thrinfo_t ti;
    td_thrinfo_t *ti_p = &ti;
    td_err_e err = td_thr_get_info(th_p, ti_p);

    if (err != TD_OK) {
        *(td_err_e *)cbdata_p = err;
        return 1;
    }

    /* Every member, with the type the page gives it; where the page's type is a misprint, the real one. */
    td_thragent_t *ta_p = ti_p->ti_ta_p;
    unsigned user_flags = ti_p->ti_user_flags;
    thread_t tid = ti_p->ti_tid;
    char *tls = ti_p->ti_tls;
    void *exitval = ti_p->ti_exitval; /* the name in illumos' header */
    psaddr_t startfunc = ti_p->ti_startfunc;
    psaddr_t stkbase = ti_p->ti_stkbase;
    long stksize = ti_p->ti_stksize;
    psaddr_t ro_area = ti_p->ti_ro_area;
    int ro_size = ti_p->ti_ro_size;
    td_thr_state_e state = ti_p->ti_state;
    uchar_t db_suspended = ti_p->ti_db_suspended;
    td_thr_type_e type = ti_p->ti_type;
    intptr_t pc = ti_p->ti_pc;
    intptr_t sp = ti_p->ti_sp;
    short flags = ti_p->ti_flags;
    int pri = ti_p->ti_pri;
    lwpid_t lid = ti_p->ti_lid;
    sigset_t sigmask = ti_p->ti_sigmask;
    uchar_t traceme = ti_p->ti_traceme;
    uchar_t preemptflag = ti_p->ti_preemptflag;
    uchar_t pirecflag = ti_p->ti_pirecflag;
    sigset_t pending = ti_p->ti_pending;
    td_thr_events_t events = ti_p->ti_events;

    printf("thread %#lx lwp %d %s%s%s pri %d flags %#x/%#hx\n", tid, lid, state_name(state),
           type == TD_THR_SYSTEM ? " system" : "", db_suspended ? " suspended" : "", pri, user_flags, flags);
    printf("  start %p stack %p %ld tls %p descriptor %p %d pc %#lx sp %#lx\n", startfunc, stkbase, stksize,
           (void *)tls, ro_area, ro_size, (unsigned long)pc, (unsigned long)sp);
    printf("  traced %d preempted %d inherited %d events %#x mask %#hhx pending %#hhx\n", traceme,
           preemptflag, pirecflag, (unsigned)events.event_bits[0], *(unsigned char *)&sigmask,
           *(unsigned char *)&pending);
    return ta_p != th_p->th_ta_p || exitval != (void *)tls;
}

int main(int argc, char **argv)
{
    struct ps_prochandle *ph;
    td_thragent_t *ta_p;
    td_err_e err, in_callback = TD_OK;

    if (argc != 2 || tg_attach_pid((pid_t)atoi(argv[1]), &ph) != TD_OK) {
        fprintf(stderr, "%s\n", argc == 2 ? tg_last_error() : "usage: synopsis_td_thr_get_info PID");
        return 2;
    }
    err = td_init();
    if (err == TD_OK)
        err = td_ta_new(ph, &ta_p);
    if (err == TD_OK) {
        err = td_ta_thr_iter(ta_p, show, &in_callback, TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY,
                             TD_SIGNO_MASK, TD_THR_ANY_USER_FLAGS);
        td_ta_delete(ta_p);
    }
    tg_release(ph);
    if (err == TD_OK)
        err = in_callback;
    if (err != TD_OK)
        fprintf(stderr, "td_err_e %d\n", err);
    return err != TD_OK;
}
