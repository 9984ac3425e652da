/* A target for measurements: N threads that wait for a condition that never comes.
 *
 *   many_threads N
 *
 * Prints "ready N" once every thread is about to wait, then stays until its standard input is
 * closed, so that it never outlives the program that started it. */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static const size_t STACK_SIZE = 64 << 10;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static long waiting;

static void *wait_forever(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    waiting++;
    pthread_cond_signal(&arrived);
    for (;;)
        pthread_cond_wait(&never, &lock);
    return NULL;
}

int main(int argc, char **argv)
{
    long count = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
    if (count < 1 || count > 1000000) {
        fprintf(stderr, "usage: many_threads N\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);

    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_SIZE);
    /* The main thread is one of the N. */
    for (long i = 1; i < count; i++) {
        pthread_t thread;
        int error = pthread_create(&thread, &attr, wait_forever, NULL);
        if (error != 0) {
            fprintf(stderr, "many_threads: thread %ld of %ld: %s\n", i, count, strerror(error));
            return 1;
        }
    }
    /* The lock is given up only inside pthread_cond_wait, so whoever is counted waits by now. */
    pthread_mutex_lock(&lock);
    while (waiting < count - 1)
        pthread_cond_wait(&arrived, &lock);
    pthread_mutex_unlock(&lock);

    printf("ready %ld\n", count);
    fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    /* Not exit(): nothing of the threads needs to be waited for. */
    _exit(0);
}
