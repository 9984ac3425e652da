/*
 * Two controllers of one program that has the agent in it (fixtures/track_step.c): each has its own view.
 * Usage: track_stats PID ADDRESS [off]: with the agent loaded, but not switched on
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "check.h"

#include <proc_service.h>
#include <signal.h>

static psaddr_t address;

/* Whether the mutex comes to have been taken so often, as `ta` sees it. */
static int comes_to(td_thragent_t *ta, unsigned wanted)
{
    td_synchandle_t sh;
    td_syncstats_t ss;
    for (int n = 0; n < 6000; n++) {
        if (td_ta_map_addr2sync(ta, address, &sh) == TD_OK && td_sync_get_stats(&sh, &ss) == TD_OK &&
            ss.ss_un.mutex.mutex_lock == wanted) {
            CHECK(ss.ss_info.si_type == TD_SYNC_MUTEX, "type %d", ss.ss_info.si_type);
            CHECK(ss.ss_info.si_size == 40, "size %d", ss.ss_info.si_size);
            return 1;
        }
        usleep(10000);
    }
    return 0;
}

static int is_it(const td_synchandle_t *sh, void *found)
{
    *(int *)found += sh->sh_unique == address;
    return 0;
}

int main(int argc, char **argv)
{
    struct ps_prochandle *first_ph, *second_ph;
    td_thragent_t *first, *second;
    td_synchandle_t sh;
    td_syncstats_t ss;
    int found = 0;

    if (argc < 3)
        return 2;
    pid_t pid = atoi(argv[1]);
    address = (psaddr_t)strtoul(argv[2], NULL, 0);
    GIVES(TD_OK, tg_attach_pid(pid, &first_ph));
    GIVES(TD_OK, td_ta_new(first_ph, &first));
    GIVES(TD_OK, tg_attach_pid(pid, &second_ph));
    GIVES(TD_OK, td_ta_new(second_ph, &second));
    if (failures)
        return 1;
    unsigned before = argc > 3 ? 0 : 10;
    if (before) {
        CHECK(comes_to(first, before), "what it did before");
        GIVES(TD_OK, td_ta_sync_iter(first, is_it, &found));
        CHECK(found == 1, "found %d times", found);
    } else {
        GIVES(TD_OK, td_ta_map_addr2sync(first, address, &sh));
        GIVES(TD_OK, td_sync_get_stats(&sh, &ss));
        CHECK(ss.ss_un.mutex.mutex_lock == 0, "it has not counted");
    }

    GIVES(TD_OK, td_ta_sync_tracking_enable(first, 1));
    GIVES(TD_OK, td_ta_map_addr2sync(first, address, &sh));
    GIVES(TD_BADSH, td_sync_get_stats(&sh, &ss));
    kill(pid, SIGUSR1);
    CHECK(comes_to(first, 5), "since it was switched on");
    CHECK(comes_to(second, before + 5), "the other has not asked for that");

    GIVES(TD_OK, td_ta_sync_tracking_enable(second, 1));
    kill(pid, SIGUSR1);
    CHECK(comes_to(second, 5), "the other, since it has");
    CHECK(comes_to(first, 10), "the first goes on");

    GIVES(TD_OK, td_ta_sync_tracking_enable(first, 0));
    kill(pid, SIGUSR1);
    CHECK(comes_to(second, 10), "the other goes on");
    CHECK(comes_to(first, 10), "the first keeps what it had");

    GIVES(TD_OK, td_ta_sync_tracking_enable(first, 1));
    kill(pid, SIGUSR1);
    CHECK(comes_to(first, 5), "on again begins anew");

    GIVES(TD_OK, td_ta_delete(first));
    GIVES(TD_OK, td_ta_delete(second));
    tg_release(first_ph);
    tg_release(second_ph);
    return failures != 0;
}
