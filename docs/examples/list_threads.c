/* Lists the threads of a process. Build: cc list_threads.c -lc_db   Run: ./a.out PID */
#include <thread_db.h>

#include <stdio.h>
#include <stdlib.h>

static const char *const states[] = { "?", "unknown", "stopped", "run", "active", "zombie", "sleep", "stopped asleep" };

static int show(const td_thrhandle_t *thread, void *count)
{
    td_thrinfo_t info;
    td_err_e error = td_thr_get_info(thread, &info);
    if (error == TD_OK)
        printf("thread %#lx  lwp %-7d %-8s start %p  stack %ld KiB below %p\n", info.ti_tid, info.ti_lid,
               states[info.ti_state], info.ti_startfunc, info.ti_stksize >> 10, info.ti_stkbase);
    *(int *)count += error == TD_OK;
    return 0; /* go on */
}

int main(int argc, char **argv)
{
    struct ps_prochandle *process;
    td_thragent_t *session;
    int count = 0;
    if (tg_attach_pid(argc > 1 ? atoi(argv[1]) : 0, &process) != TD_OK) {
        fprintf(stderr, "list_threads: %s\n", tg_last_error());
        return 1;
    }
    if (td_ta_new(process, &session) == TD_OK) {
        td_ta_thr_iter(session, show, &count, TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, TD_SIGNO_MASK,
                       TD_THR_ANY_USER_FLAGS);
        td_ta_delete(session);
    }
    tg_release(process);
    return count == 0;
}
