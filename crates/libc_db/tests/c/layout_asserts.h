/*
 * Every number and layout of the interface, checked by the compiler. Included by layout.c (C11) and
 * layout.cc (C++17); nothing here is run.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <proc_service.h>
#include <thread_db.h>

#include <assert.h>
#include <stddef.h>

#ifndef THREADGLASS_LIBC_DB
#error "this is not threadglass' <thread_db.h>: compile with -I of its include directory"
#endif

#define IS(expression, value) static_assert((expression) == (value), #expression " is not " #value)
#define SIZE(type, size, alignment)                                                                          \
    static_assert(sizeof(type) == (size), "size of " #type);                                                 \
    static_assert(alignof(type) == (alignment), "alignment of " #type)
#define AT(type, member, offset, size)                                                                       \
    static_assert(offsetof(type, member) == (offset), "offset of " #type "." #member);                       \
    static_assert(sizeof(((type *)0)->member) == (size), "size of " #type "." #member)
/* -1 converted to the type is below 0 if it is signed. */
#define SIGNED(type) static_assert((type)-1 < (type)0, #type " is not signed")
#define UNSIGNED(type) static_assert((type)-1 > (type)0, #type " is not unsigned")

/* ---- numbers ---- */

IS(TD_OK, 0);
IS(TD_ERR, 1);
IS(TD_NOTHR, 2);
IS(TD_NOSV, 3);
IS(TD_NOLWP, 4);
IS(TD_BADPH, 5);
IS(TD_BADTH, 6);
IS(TD_BADSH, 7);
IS(TD_BADTA, 8);
IS(TD_BADKEY, 9);
IS(TD_NOMSG, 10);
IS(TD_NOFPREGS, 11);
IS(TD_NOLIBTHREAD, 12);
IS(TD_NOEVENT, 13);
IS(TD_NOCAPAB, 14);
IS(TD_DBERR, 15);
IS(TD_NOAPLIC, 16);
IS(TD_NOTSD, 17);
IS(TD_MALLOC, 18);
IS(TD_PARTIALREG, 19);
IS(TD_NOXREGS, 20);
IS(TD_TLSDEFER, 21);
IS(TD_NOTALLOC, 21);
IS(TD_VERSION, 22);
IS(TD_NOTLS, 23);

IS(TD_THR_ANY_STATE, 0);
IS(TD_THR_UNKNOWN, 1);
IS(TD_THR_STOPPED, 2);
IS(TD_THR_RUN, 3);
IS(TD_THR_ACTIVE, 4);
IS(TD_THR_ZOMBIE, 5);
IS(TD_THR_SLEEP, 6);
IS(TD_THR_STOPPED_ASLEEP, 7);

IS(TD_THR_ANY_TYPE, 0);
IS(TD_THR_USER, 1);
IS(TD_THR_SYSTEM, 2);

IS(TD_ALL_EVENTS, 0);
IS(TD_EVENT_NONE, 0);
IS(TD_READY, 1);
IS(TD_SLEEP, 2);
IS(TD_SWITCHTO, 3);
IS(TD_SWITCHFROM, 4);
IS(TD_LOCK_TRY, 5);
IS(TD_CATCHSIG, 6);
IS(TD_IDLE, 7);
IS(TD_CREATE, 8);
IS(TD_DEATH, 9);
IS(TD_PREEMPT, 10);
IS(TD_PRI_INHERIT, 11);
IS(TD_REAP, 12);
IS(TD_CONCURRENCY, 13);
IS(TD_TIMEOUT, 14);
IS(TD_MIN_EVENT_NUM, 1);
IS(TD_MAX_EVENT_NUM, 14);
IS(TD_EVENTS_ENABLE, 31);

IS(NOTIFY_BPT, 0);
IS(NOTIFY_AUTOBPT, 1);
IS(NOTIFY_SYSCALL, 2);

IS(TD_EVENTSIZE, 2);
IS(BT_UISHIFT, 5);
IS(BT_NBIPUI, 32);
IS(BT_UIMASK, 31);
IS(__td_eventword(TD_READY), 0u);
IS(__td_eventword(32), 0u);
IS(__td_eventword(33), 1u);
IS(__td_eventmask(TD_CREATE), 0x80u);
IS(__td_eventmask(TD_DEATH), 0x100u);
IS(__td_eventmask(TD_EVENTS_ENABLE), 0x40000000u);

IS(TD_THR_ANY_USER_FLAGS, 0xffffffff);
IS(TD_THR_LOWEST_PRIORITY, -20);

IS(TD_SYNC_UNKNOWN, 0);
IS(TD_SYNC_COND, 1);
IS(TD_SYNC_MUTEX, 2);
IS(TD_SYNC_SEMA, 3);
IS(TD_SYNC_RWLOCK, 4);
IS(TD_SV_MAX_FLAGS, 4);

IS(PS_OK, 0);
IS(PS_ERR, 1);
IS(PS_BADPID, 2);
IS(PS_BADLID, 3);
IS(PS_BADADDR, 4);
IS(PS_NOSYM, 5);
IS(PS_NOFREGS, 6);
IS(PS_NOXREGS, 7);

/* ---- basic types ---- */

SIZE(td_err_e, 4, 4);
SIZE(ps_err_e, 4, 4);
SIZE(td_thr_state_e, 4, 4);
SIZE(td_thr_type_e, 4, 4);
SIZE(td_event_e, 4, 4);
SIZE(td_notify_e, 4, 4);
SIZE(td_sync_type_e, 4, 4);
SIZE(td_sync_flags_t, 1, 1);
UNSIGNED(td_sync_flags_t);
SIZE(psaddr_t, 8, 8);
SIZE(lwpid_t, 4, 4);
SIGNED(lwpid_t);
SIZE(thread_t, 8, 8);
UNSIGNED(thread_t);
SIZE(thread_key_t, 4, 4);
UNSIGNED(thread_key_t);
SIZE(sigset_t, 128, 8);
SIZE(prgregset_t, 216, 8);
static_assert(sizeof(prfpregset_t) == 512, "size of prfpregset_t");
SIZE(td_hrtime_t, 8, 8);
SIGNED(td_hrtime_t);
SIZE(hrtime_t, 8, 8);
SIGNED(hrtime_t);
SIZE(uchar_t, 1, 1);
UNSIGNED(uchar_t);

/* ---- small structures ---- */

SIZE(td_thrhandle_t, 16, 8);
AT(td_thrhandle_t, th_ta_p, 0, 8);
AT(td_thrhandle_t, th_unique, 8, 8);

SIZE(td_synchandle_t, 16, 8);
AT(td_synchandle_t, sh_ta_p, 0, 8);
AT(td_synchandle_t, sh_unique, 8, 8);

SIZE(td_thr_events_t, 8, 4);
AT(td_thr_events_t, event_bits, 0, 8);

SIZE(td_notify_t, 16, 8);
AT(td_notify_t, type, 0, 4);
AT(td_notify_t, u, 8, 8);
AT(td_notify_t, u.bptaddr, 8, 8);
AT(td_notify_t, u.syscallno, 8, 4);

SIZE(td_event_msg_t, 24, 8);
AT(td_event_msg_t, event, 0, 4);
AT(td_event_msg_t, th_p, 8, 8);
AT(td_event_msg_t, msg, 16, 8);
AT(td_event_msg_t, msg.data, 16, 8);
AT(td_event_msg_t, msg.sh, 16, 8);

SIZE(td_eventbuf_t, 24, 8);
AT(td_eventbuf_t, eventmask, 0, 8);
AT(td_eventbuf_t, eventnum, 8, 4);
AT(td_eventbuf_t, eventdata, 16, 8);

SIZE(td_ta_stats_t, 40, 4);
AT(td_ta_stats_t, nthreads, 0, 4);
AT(td_ta_stats_t, r_concurrency, 4, 4);
AT(td_ta_stats_t, nrunnable_num, 8, 4);
AT(td_ta_stats_t, nrunnable_den, 12, 4);
AT(td_ta_stats_t, a_concurrency_num, 16, 4);
AT(td_ta_stats_t, a_concurrency_den, 20, 4);
AT(td_ta_stats_t, nlwps_num, 24, 4);
AT(td_ta_stats_t, nlwps_den, 28, 4);
AT(td_ta_stats_t, nidle_num, 32, 4);
AT(td_ta_stats_t, nidle_den, 36, 4);

/* ---- td_thrinfo_t: glibc's layout ---- */

SIZE(td_thrinfo_t, 384, 8);
AT(td_thrinfo_t, ti_ta_p, 0, 8);
AT(td_thrinfo_t, ti_user_flags, 8, 4);
AT(td_thrinfo_t, ti_tid, 16, 8);
AT(td_thrinfo_t, ti_tls, 24, 8);
AT(td_thrinfo_t, ti_exitval, 24, 8);
AT(td_thrinfo_t, ti_startfunc, 32, 8);
AT(td_thrinfo_t, ti_stkbase, 40, 8);
AT(td_thrinfo_t, ti_stksize, 48, 8);
AT(td_thrinfo_t, ti_ro_area, 56, 8);
AT(td_thrinfo_t, ti_ro_size, 64, 4);
AT(td_thrinfo_t, ti_state, 68, 4);
AT(td_thrinfo_t, ti_db_suspended, 72, 1);
AT(td_thrinfo_t, ti_type, 76, 4);
AT(td_thrinfo_t, ti_pc, 80, 8);
AT(td_thrinfo_t, ti_sp, 88, 8);
AT(td_thrinfo_t, ti_flags, 96, 2);
AT(td_thrinfo_t, ti_pri, 100, 4);
AT(td_thrinfo_t, ti_lid, 104, 4);
AT(td_thrinfo_t, ti_sigmask, 112, 128);
AT(td_thrinfo_t, ti_traceme, 240, 1);
AT(td_thrinfo_t, ti_preemptflag, 241, 1);
AT(td_thrinfo_t, ti_pirecflag, 242, 1);
AT(td_thrinfo_t, ti_pending, 248, 128);
AT(td_thrinfo_t, ti_events, 376, 8);

/* ---- synchronization objects: illumos' layout ---- */

SIZE(td_syncinfo_t, 72, 8);
AT(td_syncinfo_t, si_ta_p, 0, 8);
AT(td_syncinfo_t, si_sv_addr, 8, 8);
AT(td_syncinfo_t, si_type, 16, 4);
AT(td_syncinfo_t, si_shared_type, 20, 4);
AT(td_syncinfo_t, si_flags, 24, 4);
AT(td_syncinfo_t, si_ownerpid, 28, 4);
AT(td_syncinfo_t, si_state, 32, 4);
AT(td_syncinfo_t, si_state.sem_count, 32, 4);
AT(td_syncinfo_t, si_state.sema_count, 32, 4);
AT(td_syncinfo_t, si_state.nreaders, 32, 4);
AT(td_syncinfo_t, si_state.mutex_locked, 32, 4);
AT(td_syncinfo_t, si_size, 36, 4);
AT(td_syncinfo_t, si_has_waiters, 40, 1);
AT(td_syncinfo_t, si_is_wlock, 41, 1);
AT(td_syncinfo_t, si_is_wlocked, 41, 1);
AT(td_syncinfo_t, si_rcount, 42, 1);
AT(td_syncinfo_t, si_prioceiling, 43, 1);
AT(td_syncinfo_t, si_owner, 48, 16);
AT(td_syncinfo_t, si_data, 64, 8);

SIZE(td_mutex_stats_t, 40, 8);
AT(td_mutex_stats_t, mutex_lock, 0, 4);
AT(td_mutex_stats_t, mutex_sleep, 4, 4);
AT(td_mutex_stats_t, mutex_sleep_time, 8, 8);
AT(td_mutex_stats_t, mutex_hold_time, 16, 8);
AT(td_mutex_stats_t, mutex_try, 24, 4);
AT(td_mutex_stats_t, mutex_try_fail, 28, 4);
AT(td_mutex_stats_t, mutex_internal, 32, 4);

SIZE(td_cond_stats_t, 40, 8);
AT(td_cond_stats_t, cond_wait, 0, 4);
AT(td_cond_stats_t, cond_timedwait, 4, 4);
AT(td_cond_stats_t, cond_wait_sleep_time, 8, 8);
AT(td_cond_stats_t, cond_timedwait_sleep_time, 16, 8);
AT(td_cond_stats_t, cond_timedwait_timeout, 24, 4);
AT(td_cond_stats_t, cond_signal, 28, 4);
AT(td_cond_stats_t, cond_broadcast, 32, 4);
AT(td_cond_stats_t, cond_internal, 36, 4);

SIZE(td_rwlock_stats_t, 56, 8);
AT(td_rwlock_stats_t, rw_rdlock, 0, 4);
AT(td_rwlock_stats_t, rw_rdlock_sleep, 4, 4);
AT(td_rwlock_stats_t, rw_rdlock_sleep_time, 8, 8);
AT(td_rwlock_stats_t, rw_rdlock_try, 16, 4);
AT(td_rwlock_stats_t, rw_rdlock_try_fail, 20, 4);
AT(td_rwlock_stats_t, rw_wrlock, 24, 4);
AT(td_rwlock_stats_t, rw_wrlock_sleep, 28, 4);
AT(td_rwlock_stats_t, rw_wrlock_sleep_time, 32, 8);
AT(td_rwlock_stats_t, rw_wrlock_hold_time, 40, 8);
AT(td_rwlock_stats_t, rw_wrlock_try, 48, 4);
AT(td_rwlock_stats_t, rw_wrlock_try_fail, 52, 4);

SIZE(td_sema_stats_t, 40, 8);
AT(td_sema_stats_t, sema_wait, 0, 4);
AT(td_sema_stats_t, sema_wait_sleep, 4, 4);
AT(td_sema_stats_t, sema_wait_sleep_time, 8, 8);
AT(td_sema_stats_t, sema_trywait, 16, 4);
AT(td_sema_stats_t, sema_trywait_fail, 20, 4);
AT(td_sema_stats_t, sema_post, 24, 4);
AT(td_sema_stats_t, sema_max_count, 28, 4);
AT(td_sema_stats_t, sema_min_count, 32, 4);

SIZE(td_syncstats_t, 200, 8);
AT(td_syncstats_t, ss_info, 0, 72);
AT(td_syncstats_t, ss_un, 72, 128);
AT(td_syncstats_t, ss_un.mutex, 72, 40);
AT(td_syncstats_t, ss_un.cond, 72, 40);
AT(td_syncstats_t, ss_un.rwlock, 72, 56);
AT(td_syncstats_t, ss_un.sema, 72, 40);
AT(td_syncstats_t, ss_un.pad, 72, 128);

/* ---- signatures of what glibc does not have; the others are compared with its header ---- */

SAME(td_sync_iter_f, int(const td_synchandle_t *, void *));
SAME_F(td_ta_map_addr2sync, td_err_e(const td_thragent_t *, psaddr_t, td_synchandle_t *));
SAME_F(td_ta_sync_iter, td_err_e(const td_thragent_t *, td_sync_iter_f *, void *));
SAME_F(td_ta_sync_tracking_enable, td_err_e(const td_thragent_t *, int));
SAME_F(td_thr_lockowner, td_err_e(const td_thrhandle_t *, td_sync_iter_f *, void *));
SAME_F(td_thr_sleepinfo, td_err_e(const td_thrhandle_t *, td_synchandle_t *));
SAME_F(td_sync_get_info, td_err_e(const td_synchandle_t *, td_syncinfo_t *));
SAME_F(td_sync_get_stats, td_err_e(const td_synchandle_t *, td_syncstats_t *));
SAME_F(td_sync_setstate, td_err_e(const td_synchandle_t *, int));
SAME_F(td_sync_waiters, td_err_e(const td_synchandle_t *, td_thr_iter_f *, void *));
SAME_F(tg_attach_pid, td_err_e(pid_t, struct ps_prochandle **));
SAME_F(tg_open_core, td_err_e(const char *, const char *, struct ps_prochandle **));
SAME_F(tg_release, void(struct ps_prochandle *));
SAME_F(tg_last_error, const char *(void));

SAME_F(ps_pdmodel, ps_err_e(struct ps_prochandle *, int *));
SAME_F(ps_pread, ps_err_e(struct ps_prochandle *, psaddr_t, void *, size_t));
SAME_F(ps_pwrite, ps_err_e(struct ps_prochandle *, psaddr_t, const void *, size_t));
SAME_F(ps_lgetxregsize, ps_err_e(struct ps_prochandle *, lwpid_t, int *));
SAME_F(ps_lgetxregs, ps_err_e(struct ps_prochandle *, lwpid_t, char *));
SAME_F(ps_lsetxregs, ps_err_e(struct ps_prochandle *, lwpid_t, char *));
SAME_F(ps_kill, ps_err_e(struct ps_prochandle *, int));
SAME_F(ps_lrolltoaddr, ps_err_e(struct ps_prochandle *, lwpid_t, psaddr_t, psaddr_t));
SAME_F(ps_plog, void(const char *, ...));
SAME_F(ps_pglobal_sym, ps_err_e(struct ps_prochandle *, const char *, const char *, ps_sym_t *));
SAME_F(ps_pauxv, ps_err_e(struct ps_prochandle *, const Elf64_auxv_t **));
