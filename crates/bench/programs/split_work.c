/* split_work LIBRARY THREADS PAIRS: spends 70, 20 and 10 % of its time in three functions, again and again with
 * and without the profil() of LIBRARY ("-": the C library's own), in pairs whose order changes.
 * Prints a line for each pair: CPU ms with, wall ms with, CPU ms without, wall ms without;
 * and then: ticks in the three functions, all ticks, and the CPU seconds with. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The same two instructions at the same place of a cache line, so that the same count takes the same time. */
#define LOOP(name) \
    ".balign 64\n.globl " name "\n" name ":\n1: dec %rdi\njnz 1b\nret\n.org " name "+64\n"
asm(".pushsection .text.split,\"ax\",@progbits\n" LOOP("seventy") LOOP("twenty") LOOP("ten") ".popsection\n");
void seventy(unsigned long), twenty(unsigned long), ten(unsigned long);

static int (*profil_of_library)(unsigned short *, size_t, size_t, unsigned);
static unsigned short cells[96]; /* 2 bytes each: three times 64 bytes of code */
static unsigned long ticks[3];
static pthread_barrier_t start, end;
static unsigned long unit; /* iterations of a tenth of a cycle, found at the start */
#define CYCLES 30

static double ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static void work(void)
{
    for (int i = 0; i < CYCLES; i++) {
        seventy(7 * unit);
        twenty(2 * unit);
        ten(unit);
    }
}

static void *worker(void *arg)
{
    for (;;) {
        pthread_barrier_wait(&start);
        work();
        pthread_barrier_wait(&end);
    }
    return arg;
}

static void slice(int with, double *cpu, double *wall)
{
    if (with) {
        memset(cells, 0, sizeof cells);
        if (profil_of_library(cells, sizeof cells, (size_t)seventy, 0x10000) != 0) {
            perror("profil");
            exit(1);
        }
    }
    *cpu = ms(CLOCK_PROCESS_CPUTIME_ID);
    *wall = ms(CLOCK_MONOTONIC);
    pthread_barrier_wait(&start);
    work();
    pthread_barrier_wait(&end);
    *cpu = ms(CLOCK_PROCESS_CPUTIME_ID) - *cpu;
    *wall = ms(CLOCK_MONOTONIC) - *wall;
    if (with) {
        unsigned short *volatile none = NULL; /* off in both libraries */
        profil_of_library(none, 0, 0, 0);
        for (int i = 0; i < 96; i++)
            ticks[i / 32] += cells[i];
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    void *library = strcmp(argv[1], "-") ? dlopen(argv[1], RTLD_NOW) : RTLD_DEFAULT;
    if (strcmp(argv[1], "-") && !library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    profil_of_library = (int (*)(unsigned short *, size_t, size_t, unsigned))(intptr_t)dlsym(library, "profil");
    int threads = atoi(argv[2]), pairs = atoi(argv[3]);
    pthread_barrier_init(&start, NULL, threads);
    pthread_barrier_init(&end, NULL, threads);
    double before = ms(CLOCK_THREAD_CPUTIME_ID);
    ten(50000000);
    unit = 50000000 / (ms(CLOCK_THREAD_CPUTIME_ID) - before) * 0.37; /* a cycle of 3.7 ms */
    pthread_t id;
    for (int i = 1; i < threads; i++)
        pthread_create(&id, NULL, worker, NULL);
    double cpu[2], wall[2], all = 0;
    slice(1, &cpu[1], &wall[1]); /* the first time something is loaded, or waited for */
    memset(ticks, 0, sizeof ticks);
    for (int i = 0; i < pairs; i++) {
        int first = i % 2;
        slice(first, &cpu[first], &wall[first]);
        slice(!first, &cpu[!first], &wall[!first]);
        printf("%f %f %f %f\n", cpu[1], wall[1], cpu[0], wall[0]);
        all += cpu[1];
    }
    printf("%lu %lu %lu %f\n", ticks[0], ticks[1], ticks[2], all / 1e3);
    return 0;
}
