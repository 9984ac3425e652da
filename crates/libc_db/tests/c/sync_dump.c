/*
 * Prints as JSON everything that the functions about synchronization objects say of a process or core.
 * Usage: sync_dump pid PID | core FILE | traced PID | blind PID, then addresses to ask for.
 * traced and blind (only with -DDEBUGGER) are a debugger of its own: all threads stopped, and for `blind`
 * nothing that would show the process to be alive, as with a core.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "check.h"

#include <proc_service.h>

#ifdef DEBUGGER
#include "debugger.h"
#endif

static td_thragent_t *ta;

static long lwp_of(td_thrhandle_t th)
{
    td_thrinfo_t ti;
    if (!th.th_unique)
        return 0;
    GIVES(TD_OK, td_thr_get_info(&th, &ti));
    return ti.ti_lid;
}

static int print_waiter(const td_thrhandle_t *th, void *arg)
{
    int *count = arg;
    printf("%s%ld", (*count)++ ? "," : "", lwp_of(*th));
    return 0;
}

static int print_object(const td_synchandle_t *sh, void *arg)
{
    int *count = arg, waiters = 0;
    td_syncinfo_t si;
    td_syncstats_t ss;
    static const td_mutex_stats_t none;

    CHECK(sh->sh_ta_p == ta, "agent %p", (void *)sh->sh_ta_p);
    printf("%s\n{\"address\":\"%p\",", (*count)++ ? "," : "", sh->sh_unique);
    memset(&si, 0xff, sizeof si);
    int error = td_sync_get_info(sh, &si);
    printf("\"error\":\"%s\",\"type\":%d,\"shared\":%u,", td_name(error), si.si_type, si.si_shared_type);
    CHECK(error || si.si_ta_p == ta, "info's agent");
    CHECK(error || si.si_sv_addr == sh->sh_unique, "info's address %p", si.si_sv_addr);
    CHECK(!(si.si_flags[1] | si.si_flags[2] | si.si_flags[3]), "flags");
    printf("\"flags\":%d,\"ownerpid\":%d,\"state\":%d,\"size\":%d,", si.si_flags[0], si.si_ownerpid,
           si.si_state.mutex_locked, si.si_size);
    printf("\"has_waiters\":%d,\"wlock\":%d,\"rcount\":%d,\"ceiling\":%d,", si.si_has_waiters, si.si_is_wlock,
           si.si_rcount, si.si_prioceiling);
    CHECK(!si.si_owner.th_unique == !si.si_owner.th_ta_p, "half an owner");
    printf("\"owner\":%ld,\"data\":%lu,\"waiters\":[", lwp_of(si.si_owner), (unsigned long)(size_t)si.si_data);
    GIVES(error, td_sync_waiters(sh, print_waiter, &waiters));
    printf("]}");
    memset(&ss, 0xff, sizeof ss);
    GIVES(error, td_sync_get_stats(sh, &ss));
    CHECK(ss.ss_info.si_type == si.si_type && ss.ss_info.si_size == si.si_size, "statistics' info");
    CHECK(!memcmp(&ss.ss_un.mutex, &none, sizeof none), "statistics");
    return 0;
}

static int print_address(const td_synchandle_t *sh, void *arg)
{
    int *count = arg;
    printf("%s\"%p\"", (*count)++ ? "," : "", sh->sh_unique);
    return 0;
}

static int print_thread(const td_thrhandle_t *th, void *arg)
{
    int *count = arg, held = 0;
    td_synchandle_t sh;

    printf("%s\n{\"lwp\":%ld,\"sleep\":", (*count)++ ? "," : "", lwp_of(*th));
    memset(&sh, 0xff, sizeof sh);
    int error = td_thr_sleepinfo(th, &sh);
    CHECK(error == TD_OK || error == TD_ERR, "sleepinfo gives %s", td_name(error));
    CHECK(error == TD_OK ? sh.sh_ta_p == ta : !sh.sh_ta_p && !sh.sh_unique, "sleepinfo's handle");
    printf(error ? "null" : "\"%p\"", sh.sh_unique);
    printf(",\"owns\":[");
    GIVES(TD_OK, td_thr_lockowner(th, print_address, &held));
    printf("]}");
    return 0;
}

int main(int argc, char **argv)
{
    struct ps_prochandle *ph = NULL;
    td_synchandle_t sh;
    int count = 0;

    if (argc < 3)
        return 2;
    if (!strcmp(argv[1], "pid"))
        GIVES(TD_OK, tg_attach_pid(atoi(argv[2]), &ph));
    else if (!strcmp(argv[1], "core"))
        GIVES(TD_OK, tg_open_core(argv[2], NULL, &ph));
#ifdef DEBUGGER
    else
        ph = debug(atoi(argv[2]), !strcmp(argv[1], "blind"));
#endif
    GIVES(TD_OK, td_ta_new(ph, &ta));
    if (failures)
        return 1;
    printf("{\"objects\":[");
    GIVES(TD_OK, td_ta_sync_iter(ta, print_object, &count));
    printf("],\n\"asked\":[");
    count = 0;
    for (char **address = argv + 3; *address; address++) {
        GIVES(TD_OK, td_ta_map_addr2sync(ta, (psaddr_t)strtoul(*address, NULL, 0), &sh));
        print_object(&sh, &count);
        if (!strcmp(argv[1], "core"))
            GIVES(TD_DBERR, td_sync_setstate(&sh, 0));
    }
    printf("],\n\"threads\":[");
    count = 0;
    GIVES(TD_OK, td_ta_thr_iter(ta, print_thread, &count, TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, NULL,
                                TD_THR_ANY_USER_FLAGS));
    printf("]}\n");
    GIVES(TD_OK, td_ta_delete(ta));
#ifdef DEBUGGER
    let_go();
#endif
    tg_release(ph);
    return failures != 0;
}
