/*
 * Threads that libc did not make, which run on the descriptor of a thread that it did:
 *   shared   of a living thread, as a thread of the process
 *   process  of a living thread, as a process of its own that shares the memory
 *   gone     of a thread that has ended and was joined
 *   leader   of the main thread, whose LWP has ended
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREAD (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)

unsigned long creator;
__thread int own_value = 5;
static char stack[1 << 16] __attribute__((aligned(16)));
static volatile int is_over;

void in_clone(int times);

/* A breakpoint. */
__attribute__((noinline)) void in_clone(int times)
{
    __asm__ volatile("" ::"r"(times) : "memory");
}

/* Makes no call that needs a thread of its own. */
static int cloned(void *arg)
{
    (void)arg;
    for (int times = 1; times <= 3; times++) {
        in_clone(times);
        syscall(SYS_sched_yield);
    }
    is_over = 1;
    syscall(SYS_exit, 0);
    return 0;
}

static void *make(void *flags)
{
    creator = pthread_self();
    own_value = 77;
    if (clone(cloned, stack + sizeof stack, (int)(size_t)flags, NULL) < 0)
        exit(2);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    pthread_t id;
    alarm(300);
    if (!strcmp(how, "gone")) {
        pthread_create(&id, NULL, make, (void *)(size_t)THREAD);
        pthread_join(id, NULL);
    } else {
        make((void *)(size_t)(strcmp(how, "process") ? THREAD : CLONE_VM | CLONE_FILES));
    }
    if (!strcmp(how, "leader"))
        syscall(SYS_exit, 0);
    while (!is_over)
        sched_yield();
    waitpid(-1, NULL, __WALL);
    return 0;
}
