/* A crowd: processes with threads and descriptors. Half of the descriptors are ends of pipes, half are unix sockets; one thread of
   every second process reads from a pipe whose writing end its neighbour has, the other threads sleep. Arguments: processes,
   threads of each, descriptors of each. Prints the pid of one that waits for another. */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static void *rest(void *arg)
{
    for (;;)
        pause();
    return arg;
}

static void one(int threads, int descriptors, int in, int out)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pthread_attr_t small;
    pthread_t id;
    char byte;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    for (int made = 4; made + 2 <= descriptors; made += 2) {
        int ends[2];
        if (made % 4 ? pipe(ends) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
            _exit(1);
    }
    for (int i = 1; i < threads; i++)
        if (pthread_create(&id, &small, rest, NULL))
            _exit(1);
    if (write(1, "x", 1) != 1)
        _exit(1);
    close(1);
    if (in >= 0 && read(in, &byte, 1) >= 0)
        _exit(out >= 0);
    rest(NULL);
}

int main(int argc, char **argv)
{
    int processes = atoi(argv[argc - 3]), threads = atoi(argv[argc - 2]), descriptors = atoi(argv[argc - 1]);
    struct rlimit limit;
    int done[2], neighbours[2] = { -1, -1 };
    pid_t waiter = 0;
    char byte;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (pipe(done))
        return 1;
    for (int i = 0; i < processes; i++) {
        if (i % 2 == 0 && pipe(neighbours))
            return 1;
        pid_t pid = fork();
        if (pid < 0)
            return 1;
        if (pid == 0) {
            dup2(done[1], 1);
            close(done[0]);
            close(done[1]);
            close(neighbours[i % 2 == 0]);
            one(threads, descriptors, i % 2 == 0 ? neighbours[0] : -1, neighbours[1]);
        }
        if (i % 2 == 0)
            waiter = pid;
        else {
            close(neighbours[0]);
            close(neighbours[1]);
        }
        if (read(done[0], &byte, 1) != 1)
            return 1;
    }
    printf("%d\n", (int)waiter);
    fflush(stdout);
    rest(NULL);
}
