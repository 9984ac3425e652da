/* busy N: N threads that never stop computing, while main sleeps. Prints "ready N" once all of them run, and stays
 * until its standard input is closed, so that it never outlives the program that started it. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static pthread_barrier_t all;

static void *spin(void *arg)
{
    pthread_barrier_wait(&all);
    for (;;)
        __asm__ volatile("");
    return arg;
}

int main(int argc, char **argv)
{
    int count = argc == 2 ? atoi(argv[1]) : 0;
    if (count < 1)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pthread_barrier_init(&all, NULL, count + 1);
    for (int i = 0; i < count; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, spin, NULL) != 0)
            return 1;
    }
    pthread_barrier_wait(&all);
    printf("ready %d\n", count);
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}
