/*
 * Statistics of a program that was started without the agent (fixtures/track_step.c): libc_db alone puts it in.
 * Usage: track_inject PID ADDRESS
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <proc_service.h>
#include <signal.h>
#include <string.h>

static psaddr_t address;

static unsigned locks(td_thragent_t *ta)
{
    td_synchandle_t sh;
    td_syncstats_t ss;
    if (td_ta_map_addr2sync(ta, address, &sh) != TD_OK || td_sync_get_stats(&sh, &ss) != TD_OK)
        return 0;
    return ss.ss_un.mutex.mutex_lock;
}

static int comes_to(td_thragent_t *ta, unsigned wanted)
{
    for (int n = 0; n < 6000; n++) {
        if (locks(ta) == wanted)
            return 1;
        usleep(10000);
    }
    return 0;
}

/* Threads of the agent's in the process. */
static int helpers(pid_t pid)
{
    char path[128], name[64];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/comm", pid, entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file)
            continue;
        if (fgets(name, sizeof name, file) && !strcmp(name, "threadglass\n"))
            count++;
        fclose(file);
    }
    if (dir)
        closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    struct ps_prochandle *ph;
    td_thragent_t *ta;

    if (argc < 3)
        return 2;
    pid_t pid = atoi(argv[1]);
    address = (psaddr_t)strtoul(argv[2], NULL, 0);
    GIVES(TD_OK, tg_attach_pid(pid, &ph));
    GIVES(TD_OK, td_ta_new(ph, &ta));
    if (failures)
        return 1;
    GIVES(TD_OK, td_ta_sync_tracking_enable(ta, 0));
    CHECK(helpers(pid) == 0, "%d helpers before", helpers(pid));
    for (int round = 0; round < 3; round++) {
        GIVES(TD_OK, td_ta_sync_tracking_enable(ta, 1));
        CHECK(helpers(pid) == 1, "%d helpers while on", helpers(pid));
        kill(pid, SIGUSR1);
        CHECK(comes_to(ta, 5), "since it was switched on");
        GIVES(TD_OK, td_ta_sync_tracking_enable(ta, 0));
        kill(pid, SIGUSR1);
        CHECK(comes_to(ta, 5), "what was counted is kept");
        CHECK(helpers(pid) == 0, "%d helpers while off", helpers(pid));
    }
    GIVES(TD_OK, td_ta_sync_tracking_enable(ta, 1));
    GIVES(TD_OK, td_ta_delete(ta));
    tg_release(ph);
    for (int n = 0; helpers(pid) && n < 6000; n++)
        usleep(10000);
    CHECK(helpers(pid) == 0, "%d helpers after the agent was deleted", helpers(pid));
    return failures != 0;
}
