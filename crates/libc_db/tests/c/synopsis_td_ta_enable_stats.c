/*
 * The td_ta_enable_stats page in C: prints the averages of a process over the seconds given.
 * Usage: synopsis_td_ta_enable_stats PID SECONDS
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <proc_service.h>
#include <thread_db.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void print_average(const char *what, int num, int den)
{
    printf("%-9s %.2f\n", what, den == 0 ? 0.0 : (double)num / den);
}

int main(int argc, char **argv)
{
    struct ps_prochandle *ph;
    td_thragent_t *ta_p;
    td_ta_stats_t tstats;
    td_err_e err;
    int on_off = 1;

    if (argc != 3 || tg_attach_pid((pid_t)atoi(argv[1]), &ph) != TD_OK) {
        fprintf(stderr, "%s\n", argc == 3 ? tg_last_error() : "usage: synopsis_td_ta_enable_stats PID SECONDS");
        return 2;
    }
    err = td_ta_new(ph, &ta_p);
    if (err == TD_OK) {
        err = td_ta_enable_stats(ta_p, on_off);
        if (err == TD_OK)
            err = td_ta_reset_stats(ta_p); /* enabling has done so already */
        if (err == TD_OK) {
            sleep((unsigned)atoi(argv[2]));
            err = td_ta_enable_stats(ta_p, 0); /* the averages stay as they are */
        }
        if (err == TD_OK)
            err = td_ta_get_stats(ta_p, &tstats);
        td_ta_delete(ta_p);
    }
    tg_release(ph);
    if (err != TD_OK) {
        fprintf(stderr, "td_err_e %d\n", err);
        return 1;
    }
    printf("threads   %d\nasked for %d\n", tstats.nthreads, tstats.r_concurrency);
    print_average("runnable", tstats.nrunnable_num, tstats.nrunnable_den);
    print_average("running", tstats.a_concurrency_num, tstats.a_concurrency_den);
    print_average("LWPs", tstats.nlwps_num, tstats.nlwps_den);
    print_average("idle LWPs", tstats.nidle_num, tstats.nidle_den);
    return 0;
}
