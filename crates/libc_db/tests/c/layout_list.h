/*
 * What threadglass' headers and the system's must agree on: one list, printed by layout_ours.c and by
 * layout_system.c. A test compares the two outputs, which must be identical.
 *
 * Each line is a name and a number; members have offset, size and whether the type is the one named here,
 * functions whether the signature is.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define NUMBER(x) printf("%s %lld\n", #x, (long long)(x))
#define TYPE(t) printf("%s size %zu align %zu\n", #t, sizeof(t), _Alignof(t))
#define SCALAR(t) printf("%s size %zu align %zu signed %d\n", #t, sizeof(t), _Alignof(t), (t)-1 < (t)1)
#define IS_TYPE(expression, t) __builtin_types_compatible_p(__typeof__(expression), t)
#define MEMBER(s, m, t)                                                                                      \
    printf("%s.%s offset %zu size %zu %s %d\n", #s, #m, offsetof(s, m), sizeof(((s *)0)->m), #t,             \
           IS_TYPE(((s *)0)->m, t))
#define SIGNATURE(f, ...) printf("%s %d\n", #f, IS_TYPE(f, __VA_ARGS__))

static void print_set(const char *what, unsigned int n, const td_thr_events_t *set)
{
    printf("%s %u: %#x %#x\n", what, n, (unsigned int)set->event_bits[0],
           (unsigned int)set->event_bits[1]);
}

static void numbers(void)
{
    NUMBER(TD_OK);
    NUMBER(TD_ERR);
    NUMBER(TD_NOTHR);
    NUMBER(TD_NOSV);
    NUMBER(TD_NOLWP);
    NUMBER(TD_BADPH);
    NUMBER(TD_BADTH);
    NUMBER(TD_BADSH);
    NUMBER(TD_BADTA);
    NUMBER(TD_BADKEY);
    NUMBER(TD_NOMSG);
    NUMBER(TD_NOFPREGS);
    NUMBER(TD_NOLIBTHREAD);
    NUMBER(TD_NOEVENT);
    NUMBER(TD_NOCAPAB);
    NUMBER(TD_DBERR);
    NUMBER(TD_NOAPLIC);
    NUMBER(TD_NOTSD);
    NUMBER(TD_MALLOC);
    NUMBER(TD_PARTIALREG);
    NUMBER(TD_NOXREGS);
    NUMBER(TD_TLSDEFER);
    NUMBER(TD_NOTALLOC);
    NUMBER(TD_VERSION);
    NUMBER(TD_NOTLS);
    NUMBER(TD_THR_ANY_STATE);
    NUMBER(TD_THR_UNKNOWN);
    NUMBER(TD_THR_STOPPED);
    NUMBER(TD_THR_RUN);
    NUMBER(TD_THR_ACTIVE);
    NUMBER(TD_THR_ZOMBIE);
    NUMBER(TD_THR_SLEEP);
    NUMBER(TD_THR_STOPPED_ASLEEP);
    NUMBER(TD_THR_ANY_TYPE);
    NUMBER(TD_THR_USER);
    NUMBER(TD_THR_SYSTEM);
    NUMBER(TD_THR_ANY_USER_FLAGS);
    NUMBER(TD_THR_LOWEST_PRIORITY);
    NUMBER(TD_SIGNO_MASK == NULL);
    NUMBER(TD_EVENTSIZE);
    NUMBER(BT_UISHIFT);
    NUMBER(BT_NBIPUI);
    NUMBER(BT_UIMASK);
    NUMBER(TD_ALL_EVENTS);
    NUMBER(TD_EVENT_NONE);
    NUMBER(TD_READY);
    NUMBER(TD_SLEEP);
    NUMBER(TD_SWITCHTO);
    NUMBER(TD_SWITCHFROM);
    NUMBER(TD_LOCK_TRY);
    NUMBER(TD_CATCHSIG);
    NUMBER(TD_IDLE);
    NUMBER(TD_CREATE);
    NUMBER(TD_DEATH);
    NUMBER(TD_PREEMPT);
    NUMBER(TD_PRI_INHERIT);
    NUMBER(TD_REAP);
    NUMBER(TD_CONCURRENCY);
    NUMBER(TD_TIMEOUT);
    NUMBER(TD_MIN_EVENT_NUM);
    NUMBER(TD_MAX_EVENT_NUM);
    NUMBER(TD_EVENTS_ENABLE);
    NUMBER(NOTIFY_BPT);
    NUMBER(NOTIFY_AUTOBPT);
    NUMBER(NOTIFY_SYSCALL);
    NUMBER(PS_OK);
    NUMBER(PS_ERR);
    NUMBER(PS_BADPID);
    NUMBER(PS_BADLID);
    NUMBER(PS_BADADDR);
    NUMBER(PS_NOSYM);
    NUMBER(PS_NOFREGS);
}

static void types(void)
{
    SCALAR(td_err_e);
    SCALAR(ps_err_e);
    SCALAR(td_thr_state_e);
    SCALAR(td_thr_type_e);
    SCALAR(td_event_e);
    SCALAR(td_notify_e);
    SCALAR(lwpid_t);
    SCALAR(thread_t);
    SCALAR(thread_key_t);
    TYPE(psaddr_t);
    TYPE(prgregset_t);
    TYPE(prfpregset_t);

    TYPE(td_thrhandle_t);
    MEMBER(td_thrhandle_t, th_ta_p, td_thragent_t *);
    MEMBER(td_thrhandle_t, th_unique, psaddr_t);

    TYPE(td_thr_events_t);
    MEMBER(td_thr_events_t, event_bits, uint32_t[2]);

    TYPE(td_notify_t);
    MEMBER(td_notify_t, type, td_notify_e);
    MEMBER(td_notify_t, u.bptaddr, psaddr_t);
    MEMBER(td_notify_t, u.syscallno, int);

    TYPE(td_event_msg_t);
    MEMBER(td_event_msg_t, event, td_event_e);
    MEMBER(td_event_msg_t, th_p, const td_thrhandle_t *);
    MEMBER(td_event_msg_t, msg.data, uintptr_t);

    TYPE(td_eventbuf_t);
    MEMBER(td_eventbuf_t, eventmask, td_thr_events_t);
    MEMBER(td_eventbuf_t, eventnum, td_event_e);
    MEMBER(td_eventbuf_t, eventdata, void *);

    TYPE(td_ta_stats_t);
    MEMBER(td_ta_stats_t, nthreads, int);
    MEMBER(td_ta_stats_t, r_concurrency, int);
    MEMBER(td_ta_stats_t, nrunnable_num, int);
    MEMBER(td_ta_stats_t, nrunnable_den, int);
    MEMBER(td_ta_stats_t, a_concurrency_num, int);
    MEMBER(td_ta_stats_t, a_concurrency_den, int);
    MEMBER(td_ta_stats_t, nlwps_num, int);
    MEMBER(td_ta_stats_t, nlwps_den, int);
    MEMBER(td_ta_stats_t, nidle_num, int);
    MEMBER(td_ta_stats_t, nidle_den, int);

    TYPE(td_thrinfo_t);
    MEMBER(td_thrinfo_t, ti_ta_p, td_thragent_t *);
    MEMBER(td_thrinfo_t, ti_user_flags, unsigned int);
    MEMBER(td_thrinfo_t, ti_tid, thread_t);
    MEMBER(td_thrinfo_t, ti_tls, char *);
    MEMBER(td_thrinfo_t, ti_startfunc, psaddr_t);
    MEMBER(td_thrinfo_t, ti_stkbase, psaddr_t);
    MEMBER(td_thrinfo_t, ti_stksize, long);
    MEMBER(td_thrinfo_t, ti_ro_area, psaddr_t);
    MEMBER(td_thrinfo_t, ti_ro_size, int);
    MEMBER(td_thrinfo_t, ti_state, td_thr_state_e);
    MEMBER(td_thrinfo_t, ti_db_suspended, unsigned char);
    MEMBER(td_thrinfo_t, ti_type, td_thr_type_e);
    MEMBER(td_thrinfo_t, ti_pc, intptr_t);
    MEMBER(td_thrinfo_t, ti_sp, intptr_t);
    MEMBER(td_thrinfo_t, ti_flags, short);
    MEMBER(td_thrinfo_t, ti_pri, int);
    MEMBER(td_thrinfo_t, ti_lid, lwpid_t);
    MEMBER(td_thrinfo_t, ti_sigmask, sigset_t);
    MEMBER(td_thrinfo_t, ti_traceme, unsigned char);
    MEMBER(td_thrinfo_t, ti_preemptflag, unsigned char);
    MEMBER(td_thrinfo_t, ti_pirecflag, unsigned char);
    MEMBER(td_thrinfo_t, ti_pending, sigset_t);
    MEMBER(td_thrinfo_t, ti_events, td_thr_events_t);
}

static void signatures(void)
{
    printf("td_thr_iter_f %d\n",
           __builtin_types_compatible_p(td_thr_iter_f, int(const td_thrhandle_t *, void *)));
    printf("td_key_iter_f %d\n",
           __builtin_types_compatible_p(td_key_iter_f, int(thread_key_t, void (*)(void *), void *)));

    SIGNATURE(td_init, td_err_e(void));
    SIGNATURE(td_log, td_err_e(void));
    SIGNATURE(td_symbol_list, const char **(void));
    SIGNATURE(td_ta_new, td_err_e(struct ps_prochandle *, td_thragent_t **));
    SIGNATURE(td_ta_delete, td_err_e(td_thragent_t *));
    SIGNATURE(td_ta_get_ph, td_err_e(const td_thragent_t *, struct ps_prochandle **));
    SIGNATURE(td_ta_get_nthreads, td_err_e(const td_thragent_t *, int *));
    SIGNATURE(td_ta_setconcurrency, td_err_e(const td_thragent_t *, int));
    SIGNATURE(td_ta_map_id2thr, td_err_e(const td_thragent_t *, pthread_t, td_thrhandle_t *));
    SIGNATURE(td_ta_map_lwp2thr, td_err_e(const td_thragent_t *, lwpid_t, td_thrhandle_t *));
    SIGNATURE(td_ta_thr_iter, td_err_e(const td_thragent_t *, td_thr_iter_f *, void *, td_thr_state_e, int,
                                       sigset_t *, unsigned int));
    SIGNATURE(td_ta_tsd_iter, td_err_e(const td_thragent_t *, td_key_iter_f *, void *));
    SIGNATURE(td_ta_event_addr, td_err_e(const td_thragent_t *, td_event_e, td_notify_t *));
    SIGNATURE(td_ta_set_event, td_err_e(const td_thragent_t *, td_thr_events_t *));
    SIGNATURE(td_ta_clear_event, td_err_e(const td_thragent_t *, td_thr_events_t *));
    SIGNATURE(td_ta_event_getmsg, td_err_e(const td_thragent_t *, td_event_msg_t *));
    SIGNATURE(td_ta_enable_stats, td_err_e(const td_thragent_t *, int));
    SIGNATURE(td_ta_reset_stats, td_err_e(const td_thragent_t *));
    SIGNATURE(td_ta_get_stats, td_err_e(const td_thragent_t *, td_ta_stats_t *));
    SIGNATURE(td_thr_validate, td_err_e(const td_thrhandle_t *));
    SIGNATURE(td_thr_get_info, td_err_e(const td_thrhandle_t *, td_thrinfo_t *));
    SIGNATURE(td_thr_getgregs, td_err_e(const td_thrhandle_t *, prgregset_t));
    SIGNATURE(td_thr_setgregs, td_err_e(const td_thrhandle_t *, prgregset_t));
    SIGNATURE(td_thr_getfpregs, td_err_e(const td_thrhandle_t *, prfpregset_t *));
    SIGNATURE(td_thr_setfpregs, td_err_e(const td_thrhandle_t *, const prfpregset_t *));
    SIGNATURE(td_thr_getxregsize, td_err_e(const td_thrhandle_t *, int *));
    SIGNATURE(td_thr_getxregs, td_err_e(const td_thrhandle_t *, void *));
    SIGNATURE(td_thr_setxregs, td_err_e(const td_thrhandle_t *, const void *));
    SIGNATURE(td_thr_tlsbase, td_err_e(const td_thrhandle_t *, unsigned long, psaddr_t *));
    SIGNATURE(td_thr_tls_get_addr, td_err_e(const td_thrhandle_t *, psaddr_t, size_t, psaddr_t *));
    SIGNATURE(td_thr_event_enable, td_err_e(const td_thrhandle_t *, int));
    SIGNATURE(td_thr_set_event, td_err_e(const td_thrhandle_t *, td_thr_events_t *));
    SIGNATURE(td_thr_clear_event, td_err_e(const td_thrhandle_t *, td_thr_events_t *));
    SIGNATURE(td_thr_event_getmsg, td_err_e(const td_thrhandle_t *, td_event_msg_t *));
    SIGNATURE(td_thr_setprio, td_err_e(const td_thrhandle_t *, int));
    SIGNATURE(td_thr_setsigpending, td_err_e(const td_thrhandle_t *, unsigned char, const sigset_t *));
    SIGNATURE(td_thr_sigsetmask, td_err_e(const td_thrhandle_t *, const sigset_t *));
    SIGNATURE(td_thr_tsd, td_err_e(const td_thrhandle_t *, thread_key_t, void **));
    SIGNATURE(td_thr_dbsuspend, td_err_e(const td_thrhandle_t *));
    SIGNATURE(td_thr_dbresume, td_err_e(const td_thrhandle_t *));

    SIGNATURE(ps_pdread, ps_err_e(struct ps_prochandle *, psaddr_t, void *, size_t));
    SIGNATURE(ps_pdwrite, ps_err_e(struct ps_prochandle *, psaddr_t, const void *, size_t));
    SIGNATURE(ps_ptread, ps_err_e(struct ps_prochandle *, psaddr_t, void *, size_t));
    SIGNATURE(ps_ptwrite, ps_err_e(struct ps_prochandle *, psaddr_t, const void *, size_t));
    SIGNATURE(ps_lgetregs, ps_err_e(struct ps_prochandle *, lwpid_t, prgregset_t));
    SIGNATURE(ps_lsetregs, ps_err_e(struct ps_prochandle *, lwpid_t, const prgregset_t));
    SIGNATURE(ps_lgetfpregs, ps_err_e(struct ps_prochandle *, lwpid_t, prfpregset_t *));
    SIGNATURE(ps_lsetfpregs, ps_err_e(struct ps_prochandle *, lwpid_t, const prfpregset_t *));
    SIGNATURE(ps_getpid, pid_t(struct ps_prochandle *));
    SIGNATURE(ps_get_thread_area, ps_err_e(struct ps_prochandle *, lwpid_t, int, psaddr_t *));
    SIGNATURE(ps_pglobal_lookup,
              ps_err_e(struct ps_prochandle *, const char *, const char *, psaddr_t *));
    SIGNATURE(ps_pstop, ps_err_e(struct ps_prochandle *));
    SIGNATURE(ps_pcontinue, ps_err_e(struct ps_prochandle *));
    SIGNATURE(ps_lstop, ps_err_e(struct ps_prochandle *, lwpid_t));
    SIGNATURE(ps_lcontinue, ps_err_e(struct ps_prochandle *, lwpid_t));
}

static void event_sets(void)
{
    td_thr_events_t set;
    unsigned int n;

    memset(&set, 0x5a, sizeof set);
    td_event_emptyset(&set);
    print_set("emptyset", 0, &set);
    NUMBER(!!td_eventisempty(&set));
    for (n = 1; n <= 64; n++) {
        td_event_addset(&set, n);
        print_set("addset", n, &set);
        printf("ismember %u: %u\n", n, (unsigned int)td_eventismember(&set, n));
        printf("isempty %u: %d\n", n, !!td_eventisempty(&set));
    }
    td_event_fillset(&set);
    print_set("fillset", 0, &set);
    for (n = 64; n >= 1; n--) {
        td_event_delset(&set, n);
        print_set("delset", n, &set);
        printf("ismember %u: %u\n", n, (unsigned int)td_eventismember(&set, n));
    }
    NUMBER(!!td_eventisempty(&set));
}

int main(void)
{
    numbers();
    types();
    signatures();
    event_sets();
    return 0;
}
