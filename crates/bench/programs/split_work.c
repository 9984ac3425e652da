/* split_work LIBRARY THREADS PAIRS: does the work of split.h again and again with and without the profil() of LIBRARY
 * ("-": the C library's own; "=HZ": interrupts of the kernel's timer at this rate alone, which nobody counts: the least
 * that any profiler by that timer costs), in pairs whose order changes.
 * Prints a line for each pair: CPU, wall and interrupted ms with, and the same without;
 * and then: ticks in the three functions, and the CPU seconds with. */
#include "split.h"
#include <dlfcn.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 64, CYCLES = 14 }; /* neighbours in time meet the same disturbances: so slices are short */
static int (*profil_of_library)(unsigned short *, size_t, size_t, unsigned);
static unsigned short cells[96]; /* 2 bytes each: three times 64 bytes of code */
static unsigned long ticks[3];
static pthread_barrier_t start, end;
static unsigned long unit;
static int threads;
static struct took took[MOST];

static int hz; /* of "=HZ" */
static int timers[MOST];

/* An event of the calling thread that interrupts it and leaves no sample. */
static void open_timer(int thread)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof attr,
        .config = PERF_COUNT_SW_CPU_CLOCK,
        .sample_period = 1000000000 / hz,
        .disabled = 1,
    };
    timers[thread] = syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (timers[thread] < 0) {
        perror("perf_event_open");
        exit(1);
    }
}

static int timers_alone(unsigned short *buffer, size_t size, size_t offset, unsigned scale)
{
    (void)size, (void)offset, (void)scale;
    for (int i = 0; i < threads; i++)
        if (ioctl(timers[i], buffer ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0) != 0)
            return -1;
    return 0;
}

static void *worker(void *own)
{
    if (hz)
        open_timer((struct took *)own - took);
    pthread_barrier_wait(&end);
    for (;;) {
        pthread_barrier_wait(&start);
        *(struct took *)own = split_work(CYCLES, unit);
        pthread_barrier_wait(&end);
    }
    return NULL;
}

/* Outside of the three functions. */
static void spin(double time)
{
    for (double before = ms(CLOCK_MONOTONIC); ms(CLOCK_MONOTONIC) - before < time;)
        ;
}

static struct took slice(int with, int number, double *wall)
{
    if (with) {
        memset(cells, 0, sizeof cells);
        if (profil_of_library(cells, sizeof cells, (size_t)seventy, 0x10000) != 0) {
            perror("profil");
            exit(1);
        }
    }
    /* Ticks begin with profil(): without this they would always come at the same points of the work. */
    spin(number * 3.1 - (int)(number * 0.31) * 10);
    double cpu = ms(CLOCK_PROCESS_CPUTIME_ID);
    *wall = ms(CLOCK_MONOTONIC);
    pthread_barrier_wait(&start);
    took[0] = split_work(CYCLES, unit);
    pthread_barrier_wait(&end);
    struct took all = split_sum(ms(CLOCK_PROCESS_CPUTIME_ID) - cpu, took, threads);
    *wall = ms(CLOCK_MONOTONIC) - *wall;
    if (with) {
        unsigned short *volatile none = NULL; /* off in both libraries */
        profil_of_library(none, 0, 0, 0);
        for (int i = 0; i < 96; i++)
            ticks[i / 32] += cells[i];
    }
    return all;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    threads = atoi(argv[2]);
    int pairs = atoi(argv[3]);
    if (threads < 1 || threads > MOST)
        return 2;
    if (argv[1][0] == '=') {
        hz = atoi(argv[1] + 1);
        if (hz < 1)
            return 2;
        open_timer(0);
        profil_of_library = timers_alone;
    } else {
        void *library = strcmp(argv[1], "-") ? dlopen(argv[1], RTLD_NOW) : RTLD_DEFAULT;
        if (strcmp(argv[1], "-") && !library) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        profil_of_library = (int (*)(unsigned short *, size_t, size_t, unsigned))(intptr_t)dlsym(library, "profil");
    }
    pthread_barrier_init(&start, NULL, threads);
    pthread_barrier_init(&end, NULL, threads);
    split_start();
    unit = split_unit(3.7);
    pthread_t id;
    for (int i = 1; i < threads; i++)
        pthread_create(&id, NULL, worker, &took[i]);
    pthread_barrier_wait(&end);
    struct took of[2];
    double wall[2], all = 0;
    slice(1, 0, &wall[1]); /* the first time something is loaded, or waited for */
    memset(ticks, 0, sizeof ticks);
    for (int i = 0; i < pairs; i++) {
        int first = i % 2;
        of[first] = slice(first, i, &wall[first]);
        of[!first] = slice(!first, i, &wall[!first]);
        printf("%f %f %f %f %f %f\n", of[1].cpu, wall[1], of[1].interrupted, of[0].cpu, wall[0], of[0].interrupted);
        all += of[1].cpu;
    }
    printf("%lu %lu %lu %f\n", ticks[0], ticks[1], ticks[2], all / 1e3);
    return 0;
}
