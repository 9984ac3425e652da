/* Two threads on one CPU that pass a byte to and fro. For each line of input: does so for half a second, and prints
 * wall and CPU ms that 10,000 round trips took. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static int there[2], back[2];

static void *other(void *arg)
{
    char byte;
    while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
        ;
    return arg;
}

static double ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

int main(void)
{
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all)) {
            CPU_SET(cpu, &one);
            break;
        }
    pthread_t id;
    if (sched_setaffinity(0, sizeof one, &one) || pipe(there) || pipe(back) || pthread_create(&id, NULL, other, NULL))
        return 1;
    while (getchar() == '\n') {
        double wall = ms(CLOCK_MONOTONIC), cpu = ms(CLOCK_PROCESS_CPUTIME_ID), trips = 0;
        char byte = 0;
        do {
            for (int i = 0; i < 100; i++)
                if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
                    return 1;
            trips += 100;
        } while (ms(CLOCK_MONOTONIC) - wall < 500);
        wall = ms(CLOCK_MONOTONIC) - wall;
        cpu = ms(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        printf("%f %f\n", wall / trips * 1e4, cpu / trips * 1e4);
        fflush(stdout);
    }
    return 0;
}
