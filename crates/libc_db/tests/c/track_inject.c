/*
 * Statistics of a program that was started without the agent (fixtures/track_step.c): libc_db alone puts it in.
 * Usage: track_inject PID MUTEX SEMAPHORE
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <proc_service.h>
#include <signal.h>
#include <string.h>

static psaddr_t address, semaphore;

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

/* What the agent has seen used is known for what it is, and read anew: here the semaphore, posted once. */
static void knows_semaphore(td_thragent_t *ta, int value)
{
    td_synchandle_t sh = { ta, semaphore };
    td_syncinfo_t si;
    td_syncstats_t ss;
    GIVES(TD_OK, td_sync_get_info(&sh, &si));
    CHECK(si.si_type == TD_SYNC_SEMA && si.si_size == 32, "type %d, size %d", si.si_type, si.si_size);
    CHECK(si.si_state.sem_count == value, "value %d, not %d", si.si_state.sem_count, value);
    GIVES(TD_OK, td_sync_get_stats(&sh, &ss));
    CHECK(ss.ss_info.si_type == TD_SYNC_SEMA && ss.ss_info.si_state.sem_count == value, "with its statistics: %d",
          ss.ss_info.si_state.sem_count);
    CHECK(ss.ss_un.sema.sema_post == 1, "posted %u times", ss.ss_un.sema.sema_post);
}

/* What it has not seen used has no statistics; where it is, is told all the same. */
static void knows_not(td_thragent_t *ta)
{
    td_synchandle_t sh = { ta, semaphore };
    td_syncstats_t ss;
    GIVES(TD_BADSH, td_sync_get_stats(&sh, &ss));
    CHECK(ss.ss_info.si_ta_p == ta && ss.ss_info.si_sv_addr == semaphore, "address %p", ss.ss_info.si_sv_addr);
    CHECK(ss.ss_un.sema.sema_post == 0, "posted %u times", ss.ss_un.sema.sema_post);
}

int main(int argc, char **argv)
{
    struct ps_prochandle *ph;
    td_thragent_t *ta;

    if (argc < 4)
        return 2;
    pid_t pid = atoi(argv[1]);
    address = (psaddr_t)strtoul(argv[2], NULL, 0);
    semaphore = (psaddr_t)strtoul(argv[3], NULL, 0);
    GIVES(TD_OK, tg_attach_pid(pid, &ph));
    GIVES(TD_OK, td_ta_new(ph, &ta));
    if (failures)
        return 1;
    GIVES(TD_OK, td_ta_sync_tracking_enable(ta, 0));
    CHECK(helpers(pid) == 0, "%d helpers before", helpers(pid));
    for (int round = 0; round < 3; round++) {
        GIVES(TD_OK, td_ta_sync_tracking_enable(ta, 1));
        CHECK(helpers(pid) == 1, "%d helpers while on", helpers(pid));
        knows_not(ta);
        kill(pid, SIGUSR1);
        CHECK(comes_to(ta, 5), "since it was switched on");
        knows_semaphore(ta, 4 + 2 * round);
        GIVES(TD_OK, td_ta_sync_tracking_enable(ta, 0));
        knows_semaphore(ta, 4 + 2 * round);
        kill(pid, SIGUSR1);
        CHECK(comes_to(ta, 5), "what was counted is kept");
        CHECK(helpers(pid) == 0, "%d helpers while off", helpers(pid));
    }
    /* Changed, too: a record is no guess. */
    td_synchandle_t sh = { ta, semaphore };
    td_syncinfo_t si;
    GIVES(TD_NOCAPAB, td_sync_setstate(&sh, 2));
    GIVES(TD_OK, td_ta_sync_tracking_enable(ta, 1));
    kill(pid, SIGUSR1);
    CHECK(comes_to(ta, 5), "once more");
    GIVES(TD_OK, td_sync_setstate(&sh, 2));
    GIVES(TD_OK, td_sync_get_info(&sh, &si));
    CHECK(si.si_state.sem_count == 2, "value %d", si.si_state.sem_count);
    GIVES(TD_OK, td_ta_delete(ta));
    for (int n = 0; helpers(pid) && n < 6000; n++)
        usleep(10000);
    CHECK(helpers(pid) == 0, "%d helpers after the agent was deleted", helpers(pid));
    /* The handle without the agent: it holds nothing then either. */
    GIVES(TD_OK, td_ta_new(ph, &ta));
    GIVES(TD_OK, td_ta_sync_tracking_enable(ta, 1));
    tg_release(ph);
    for (int n = 0; helpers(pid) && n < 6000; n++)
        usleep(10000);
    CHECK(helpers(pid) == 0, "%d helpers after the handle was released", helpers(pid));
    return failures != 0;
}
