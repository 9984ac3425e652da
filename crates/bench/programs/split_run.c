/* split_run THREADS UNIT: a run for profilers that measure whole programs (see split.h). The amount of work depends
 * on UNIT only. Prints "ready" and the address of the first function (64 bytes each), waits for a line, works, prints
 * the CPU time, the wall time and the time it was interrupted in ms, and ends when its standard input does.
 * split_run (nothing more): prints the UNIT of a run of about half a second. */
#include "split.h"
#include <pthread.h>
#include <stdlib.h>

#define CYCLES 135 /* of 3.7 ms: no multiple of any profiler's period */
static unsigned long unit;

static void *work(void *took)
{
    *(struct took *)took = split_work(CYCLES, unit);
    return NULL;
}

int main(int argc, char **argv)
{
    split_start();
    if (argc == 1)
        return printf("%lu\n", split_unit(3.7)) < 0;
    if (argc != 3)
        return 2;
    enum { MOST = 64 };
    pthread_t id[MOST];
    struct took took[MOST];
    int threads = atoi(argv[1]);
    unit = strtoul(argv[2], NULL, 10);
    if (threads < 1 || threads > MOST || unit == 0)
        return 2;
    printf("ready %lu\n", (unsigned long)seventy);
    fflush(stdout);
    if (getchar() == EOF)
        return 0;
    double cpu = ms(CLOCK_PROCESS_CPUTIME_ID), wall = ms(CLOCK_MONOTONIC);
    for (int i = 1; i < threads; i++)
        if (pthread_create(&id[i], NULL, work, &took[i]) != 0)
            return 1;
    work(&took[0]);
    for (int i = 1; i < threads; i++)
        pthread_join(id[i], NULL);
    struct took all = split_sum(ms(CLOCK_PROCESS_CPUTIME_ID) - cpu, took, threads);
    wall = ms(CLOCK_MONOTONIC) - wall;
    printf("%f %f %f\n", all.cpu, wall, all.interrupted);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
