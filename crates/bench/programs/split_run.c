/* split_run THREADS UNIT: a run for profilers that measure whole programs: each thread spends 70, 20 and 10 % of its
 * time in three functions. The amount of work depends on UNIT only, so that runs can be compared.
 * Prints "ready" and the address of the first function (64 bytes each), waits for a line, works, prints the CPU and
 * the wall time of that in ms, and ends when its standard input does.
 * split_run (nothing more): prints the UNIT of a run of about half a second. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* The same two instructions at the same place of a cache line, so that the same count takes the same time; a
 * little after the function's beginning, because gprof's cells may reach over it. */
#define LOOP(name) \
    ".balign 64\n.globl " name "\n.type " name ",@function\n" name ":\n.skip 16,0x90\n1: dec %rdi\njnz 1b\nret\n.size " name \
    ",.-" name "\n.org " name "+64\n"
__asm__(".pushsection .text.split,\"ax\",@progbits\n" LOOP("seventy") LOOP("twenty") LOOP("ten") ".popsection\n");
void seventy(unsigned long), twenty(unsigned long), ten(unsigned long);

#define CYCLES 135 /* of 3.7 ms: no multiple of any profiler's period */
static unsigned long unit;

static double ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static void *work(void *arg)
{
    for (int i = 0; i < CYCLES; i++) {
        seventy(7 * unit);
        twenty(2 * unit);
        ten(unit);
    }
    return arg;
}

/* The fastest of some tries is the one that was disturbed least. */
static unsigned long find_unit(void)
{
    double best = 1e9;
    for (int i = 0; i < 10; i++) {
        double before = ms(CLOCK_THREAD_CPUTIME_ID);
        ten(20000000);
        double took = ms(CLOCK_THREAD_CPUTIME_ID) - before;
        best = took < best ? took : best;
    }
    return 20000000 / best * 0.37;
}

int main(int argc, char **argv)
{
    if (argc == 1)
        return printf("%lu\n", find_unit()) < 0;
    if (argc != 3)
        return 2;
    enum { MOST = 64 };
    pthread_t id[MOST];
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
        if (pthread_create(&id[i], NULL, work, NULL) != 0)
            return 1;
    work(NULL);
    for (int i = 1; i < threads; i++)
        pthread_join(id[i], NULL);
    cpu = ms(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    wall = ms(CLOCK_MONOTONIC) - wall;
    printf("%f %f\n", cpu, wall);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
