/* Locks and unlocks on request. Each line of input is one slice of work, answered by one number.
 *
 *   pairs N    uncontended lock+unlock pairs over N mutexes in random order: nanoseconds a pair
 *   own N      N threads, each with a mutex of its own, one beside the other: nanoseconds a pair
 *   share N    N threads on one lock, about 1 us of work inside: acquisitions a second
 *   make N     locks N more mutexes once each: resident bytes of the whole program then
 *   step N     nanoseconds of one step of the work inside
 *   stamps N   nanoseconds of two readings of the time stamp counter
 *
 * The first argument says how many steps of work are done inside; the second is `threads` for a program with a second
 * thread. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct object {
    pthread_mutex_t mutex;
    char rest[64 - sizeof(pthread_mutex_t)];
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static struct object *objects(unsigned n)
{
    struct object *made = aligned_alloc(64, (size_t)n * sizeof *made);
    if (!made)
        exit(3);
    for (unsigned i = 0; i < n; i++)
        pthread_mutex_init(&made[i].mutex, NULL);
    return made;
}

static double pairs(unsigned n)
{
    static struct object *made;
    static uint32_t *order;
    static unsigned has;
    static uint64_t seed = 88172645463325252u;
    if (has != n) {
        made = objects(n);
        order = malloc((size_t)n * sizeof *order);
        for (unsigned i = 0; i < n; i++)
            order[i] = i;
        for (unsigned i = n; i > 1; i--) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            unsigned j = seed % i;
            uint32_t other = order[i - 1];
            order[i - 1] = order[j], order[j] = other;
        }
        has = n;
    }
    unsigned long done = 0, passes = 0;
    double began = now(), taken;
    do {
        /* Long enough that reading the clock does not matter, and whole passes. */
        for (unsigned pass = 0; pass < (n < 50000 ? 50000 / n : 1); pass++)
            for (unsigned i = 0; i < n; i++) {
                pthread_mutex_t *mutex = &made[order[i]].mutex;
                pthread_mutex_lock(mutex);
                pthread_mutex_unlock(mutex);
                done++;
            }
        passes++;
        taken = now() - began;
        /* Very many are not in the cache at first, because the other programs had their turn: not for long. */
    } while (taken < 10e6 || (n >= 50000 && passes < 10));
    return taken / done;
}

static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;
static unsigned long acquired, steps = 1000;
static volatile int over;

static void work(void)
{
    for (unsigned long i = 0; i < steps; i++)
        __asm__ volatile("" ::: "memory");
}

static void *worker(void *unused)
{
    while (!over) {
        pthread_mutex_lock(&shared);
        work();
        acquired++;
        pthread_mutex_unlock(&shared);
    }
    return unused;
}

/* Lets N threads work for a while: for how many nanoseconds. */
static double run(unsigned n, void *(*work)(void *), struct object *own)
{
    pthread_t threads[64];
    if (n > 64)
        exit(3);
    over = 0;
    acquired = 0;
    double began = now();
    for (unsigned i = 0; i < n; i++)
        pthread_create(&threads[i], NULL, work, own ? &own[i] : NULL);
    usleep(10000);
    over = 1;
    for (unsigned i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    return now() - began;
}

static double share(unsigned n)
{
    double taken = run(n, worker, NULL);
    return acquired / taken * 1e9;
}

static void *owner(void *own)
{
    struct object *object = own;
    unsigned long done = 0;
    for (; !over; done++) {
        pthread_mutex_lock(&object->mutex);
        pthread_mutex_unlock(&object->mutex);
    }
    __atomic_add_fetch(&acquired, done, __ATOMIC_RELAXED);
    return NULL;
}

static double own(unsigned n)
{
    static struct object *made;
    if (!made)
        made = objects(64);
    double taken = run(n, owner, made);
    return taken * n / acquired;
}

static double stamps(unsigned n)
{
    unsigned long sum = 0;
    double began = now();
    for (unsigned i = 0; i < n; i++)
        sum += __builtin_ia32_rdtsc() ^ __builtin_ia32_rdtsc();
    __asm__ volatile("" ::"r"(sum));
    return (now() - began) / n;
}

static void *sleeper(void *unused)
{
    for (;;)
        pause();
    return unused;
}

/* Resident memory that is no file's. */
static double resident(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long kib = 0;
    while (file && fgets(line, sizeof line, file) && sscanf(line, "RssAnon: %ld", &kib) != 1)
        ;
    if (file)
        fclose(file);
    return kib * 1024.0;
}

static double make(unsigned n)
{
    struct object *made = objects(n);
    for (unsigned i = 0; i < n; i++) {
        pthread_mutex_lock(&made[i].mutex);
        pthread_mutex_unlock(&made[i].mutex);
    }
    return resident();
}

int main(int argc, char **argv)
{
    char what[16];
    unsigned n;
    /* How many are a microsecond is found out once, by the caller, for all variants alike. */
    if (argc > 1)
        steps = strtoul(argv[1], NULL, 10);
    /* The C library spares a program with one thread the atomic instructions: another one, asleep, makes it the usual. */
    if (argc > 2 && !strcmp(argv[2], "threads")) {
        pthread_t thread;
        pthread_create(&thread, NULL, sleeper, NULL);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (scanf("%15s %u", what, &n) == 2) {
        if (!strcmp(what, "pairs"))
            printf("%.4f\n", pairs(n));
        else if (!strcmp(what, "own"))
            printf("%.4f\n", own(n));
        else if (!strcmp(what, "share"))
            printf("%.1f\n", share(n));
        else if (!strcmp(what, "make"))
            printf("%.0f\n", make(n));
        else if (!strcmp(what, "stamps"))
            printf("%.4f\n", stamps(n));
        else {
            double began = now();
            for (unsigned i = 0; i < n; i++)
                work();
            printf("%.4f\n", (now() - began) / n / steps);
        }
    }
    return 0;
}
