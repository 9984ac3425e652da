/* A target for measurements: N threads, two of which deadlock; of the others every second one waits for a
 * mutex of these, and every other one for a condition of its own that never comes.
 *
 *   deadlocked N
 *
 * Prints "ready N" once every thread waits, or is about to, then stays until its standard input is closed. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static const size_t STACK_SIZE = 64 << 10;

static pthread_mutex_t accounts = PTHREAD_MUTEX_INITIALIZER, ledger = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both_hold;
static atomic_long arrived;

static void *transfer(void *unused)
{
    pthread_mutex_lock(&accounts);
    pthread_barrier_wait(&both_hold);
    pthread_mutex_lock(&ledger);
    return unused;
}

static void *audit(void *unused)
{
    pthread_mutex_lock(&ledger);
    pthread_barrier_wait(&both_hold);
    pthread_mutex_lock(&accounts);
    return unused;
}

static void *wait_behind(void *unused)
{
    atomic_fetch_add(&arrived, 1);
    pthread_mutex_lock(&accounts);
    return unused;
}

static void *wait_alone(void *unused)
{
    struct {
        pthread_mutex_t lock;
        pthread_cond_t never;
    } *own = calloc(1, sizeof *own);
    if (!own)
        abort();
    pthread_mutex_init(&own->lock, NULL);
    pthread_cond_init(&own->never, NULL);
    pthread_mutex_lock(&own->lock);
    atomic_fetch_add(&arrived, 1);
    for (;;)
        pthread_cond_wait(&own->never, &own->lock);
    return unused;
}

int main(int argc, char **argv)
{
    long count = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
    if (count < 3 || count > 1000000) {
        fprintf(stderr, "usage: deadlocked N\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pthread_barrier_init(&both_hold, NULL, 3);

    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_SIZE);
    for (long i = 1; i < count; i++) {
        void *(*what)(void *) = i == 1 ? transfer : i == 2 ? audit : i % 2 ? wait_behind : wait_alone;
        pthread_t thread;
        int error = pthread_create(&thread, &attr, what, NULL);
        if (error != 0) {
            fprintf(stderr, "deadlocked: thread %ld of %ld: %s\n", i, count, strerror(error));
            return 1;
        }
        if (i == 2)
            pthread_barrier_wait(&both_hold);
    }
    while (atomic_load(&arrived) < count - 3)
        usleep(1000);
    usleep(200000);
    printf("ready %ld\n", count);
    fflush(stdout);
    char end;
    while (read(0, &end, 1) > 0)
        ;
    return 0;
}
