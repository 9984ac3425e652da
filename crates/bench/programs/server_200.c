/* A server of 200 threads: each waits for work in a queue of its own group, does a little of it under a lock, and most of
 * it without. With the argument `asleep` there is no work. Each line of input is answered by how much was done. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS 200
#define GROUPS 10

static struct {
    pthread_mutex_t lock;
    pthread_cond_t more;
    unsigned long queued, done;
} groups[GROUPS];
static _Atomic unsigned long total;

static void work(int steps)
{
    for (volatile int n = 0; n < steps; n++)
        ;
}

static void *serve(void *arg)
{
    long own = (long)arg % GROUPS;
    for (;;) {
        pthread_mutex_lock(&groups[own].lock);
        while (groups[own].queued == 0)
            pthread_cond_wait(&groups[own].more, &groups[own].lock);
        groups[own].queued--;
        work(200);
        groups[own].done++;
        pthread_mutex_unlock(&groups[own].lock);
        work(2000);
        total++;
    }
    return NULL;
}

/* As much work as can be done: a queue is filled again when it is nearly empty. */
static void *fill(void *arg)
{
    (void)arg;
    for (;;) {
        for (int n = 0; n < GROUPS; n++) {
            pthread_mutex_lock(&groups[n].lock);
            if (groups[n].queued < 100) {
                groups[n].queued += 200;
                pthread_cond_broadcast(&groups[n].more);
            }
            pthread_mutex_unlock(&groups[n].lock);
        }
        usleep(500);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    for (int n = 0; n < GROUPS; n++) {
        pthread_mutex_init(&groups[n].lock, NULL);
        pthread_cond_init(&groups[n].more, NULL);
    }
    pthread_t thread;
    for (long n = 0; n < THREADS; n++)
        if (pthread_create(&thread, &attributes, serve, (void *)n))
            return 1;
    if (argc < 2 || strcmp(argv[1], "asleep"))
        pthread_create(&thread, &attributes, fill, NULL);
    puts("ready");
    char line[64];
    while (fgets(line, sizeof line, stdin))
        printf("%lu\n", total);
    _exit(0);
}
