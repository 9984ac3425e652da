/*
 * Statistics of a program with one thread (fixtures/inject_alone.c). Usage: track_alone PID MUTEX
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "check.h"

#include <proc_service.h>

static unsigned locks(td_thragent_t *ta, psaddr_t address)
{
    td_synchandle_t sh;
    td_syncstats_t ss;
    if (td_ta_map_addr2sync(ta, address, &sh) != TD_OK || td_sync_get_stats(&sh, &ss) != TD_OK)
        return 0;
    return ss.ss_un.mutex.mutex_lock;
}

int main(int argc, char **argv)
{
    struct ps_prochandle *ph;
    td_thragent_t *ta;
    if (argc < 3)
        return 2;
    psaddr_t address = (psaddr_t)strtoul(argv[2], NULL, 0);
    GIVES(TD_OK, tg_attach_pid(atoi(argv[1]), &ph));
    GIVES(TD_OK, td_ta_new(ph, &ta));
    if (failures)
        return 1;
    GIVES(TD_OK, td_ta_sync_tracking_enable(ta, 1));
    EVENTUALLY(locks(ta, address) > 0);
    GIVES(TD_OK, td_ta_sync_tracking_enable(ta, 0));
    GIVES(TD_OK, td_ta_delete(ta));
    tg_release(ph);
    return failures != 0;
}
