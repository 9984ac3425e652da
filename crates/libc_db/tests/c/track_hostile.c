/*
 * Tracks the locks of a program that may do anything (fixtures/hostile_inject.c), and no longer. Usage: track_hostile PID
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "check.h"

#include <proc_service.h>

int main(int argc, char **argv)
{
    struct ps_prochandle *ph;
    td_thragent_t *ta;
    if (argc < 2)
        return 2;
    GIVES(TD_OK, tg_attach_pid(atoi(argv[1]), &ph));
    GIVES(TD_OK, td_ta_new(ph, &ta));
    if (failures)
        return 1;
    /* Twice: what the first left behind must not help the second. */
    for (int round = 0; round < 2; round++) {
        GIVES(TD_NOCAPAB, td_ta_sync_tracking_enable(ta, 1));
        td_ta_sync_tracking_enable(ta, 0);
    }
    GIVES(TD_OK, td_ta_delete(ta));
    tg_release(ph);
    return failures != 0;
}
