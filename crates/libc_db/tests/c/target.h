/*
 * A process to look at: forked from the test program, with threads that write their truth into memory that
 * both share. Being a fork, it has every function and variable where the test program has it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TARGET_H
#define TARGET_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum role { MAIN, FUTEX, NAPPER, SPINNER, ZOMBIE, DETACHED, MASKED, REALTIME, OWN_STACK, GONE, ROLES };
#define LIVING (GONE) /* roles before it are on the thread list */

/* What a thread says of itself. */
struct truth {
    pthread_t id;
    pid_t lwp;
    void *start;
    char *stack; /* lowest address, as pthread_getattr_np has it */
    size_t stack_size;
    sigset_t mask, pending;
    int detached, policy, priority;
    void *tls, *loaded_tls;
    void *value;
    _Atomic unsigned long count, signals;
    _Atomic int told;
};

#define KEYS 40
static struct shared {
    struct truth of[ROLES];
    pthread_key_t keys[KEYS], deleted;
    _Atomic int ready, command;
    pid_t pid;
    /* For td_thr_setgregs: the spinner leaves its loop when this register is non-zero. */
    _Atomic unsigned long left_loop;
} *shared;

static __thread int tls_variable = 7;
static int *(*loaded_touch)(void);

static void key_destructor(void *value)
{
    (void)value;
}

static void on_signal(int number)
{
    (void)number;
    for (int i = 0; i < ROLES; i++)
        if (shared->of[i].lwp == gettid())
            shared->of[i].signals++;
}

static void describe_self(enum role role)
{
    struct truth *truth = &shared->of[role];
    pthread_attr_t attr;
    struct sched_param param;
    void *stack;
    int detach;
    truth->id = pthread_self();
    truth->lwp = gettid();
    pthread_getattr_np(truth->id, &attr);
    pthread_attr_getstack(&attr, &stack, &truth->stack_size);
    truth->stack = stack;
    pthread_attr_getdetachstate(&attr, &detach);
    truth->detached = detach == PTHREAD_CREATE_DETACHED;
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, NULL, &truth->mask);
    sigpending(&truth->pending);
    pthread_getschedparam(truth->id, &truth->policy, &param);
    truth->priority = param.sched_priority;
    tls_variable = 70 + role;
    truth->tls = &tls_variable;
    if (loaded_touch && role != NAPPER) /* which leaves it untouched */
        truth->loaded_tls = loaded_touch();
    /* Keys 0 mod 3 are set by everybody, others by nobody; the last one by the spinner to NULL. */
    for (int i = 0; i < KEYS - 1; i += 3)
        pthread_setspecific(shared->keys[i], (void *)(uintptr_t)(0x1000 * (role + 1) + i));
    if (role == SPINNER)
        pthread_setspecific(shared->keys[KEYS - 1], (void *)1), pthread_setspecific(shared->keys[KEYS - 1], NULL);
    truth->told = 1;
}

static void sleep_in_futex(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex);
    for (;;)
        pthread_cond_wait(&never, &mutex);
}

static void *futex_start(void *arg)
{
    describe_self(FUTEX);
    sleep_in_futex();
    return arg;
}

static void *napper_start(void *arg)
{
    describe_self(NAPPER);
    for (;;) {
        shared->of[NAPPER].count++;
        nanosleep(&(struct timespec){ 0, 2000000 }, NULL);
    }
    return arg;
}

/* Counts in memory; leaves its loop only when somebody puts a number into r15. */
static void *spinner_start(void *arg)
{
    describe_self(SPINNER);
    for (;;) {
        unsigned long left;
        __asm__ volatile("xor %%r15d, %%r15d\n"
                         "1: lock incq %1\n"
                         "test %%r15, %%r15\n"
                         "jz 1b\n"
                         "mov %%r15, %0\n"
                         : "=r"(left), "+m"(shared->of[SPINNER].count)
                         :
                         : "r15", "cc", "memory");
        shared->left_loop = left;
    }
    return arg;
}

static void *zombie_start(void *arg)
{
    describe_self(ZOMBIE);
    return arg;
}

static void *detached_start(void *arg)
{
    struct epoll_event event;
    int set = epoll_create1(0);
    describe_self(DETACHED);
    /* A call that is not started again by itself when a debugger stops the thread: it ends with EINTR. */
    for (;;)
        epoll_wait(set, &event, 1, -1);
    return arg;
}

static void *masked_start(void *arg)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN + 3);
    sigaddset(&set, SIGRTMAX);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_kill(pthread_self(), SIGUSR1);
    pthread_kill(pthread_self(), SIGRTMAX);
    describe_self(MASKED);
    sleep_in_futex();
    return arg;
}

static void *realtime_start(void *arg)
{
    struct sched_param param = { 9 };
    pthread_setschedparam(pthread_self(), SCHED_FIFO, &param); /* without the privilege: unchanged */
    describe_self(REALTIME);
    sleep_in_futex();
    return arg;
}

static void *own_stack_start(void *arg)
{
    describe_self(OWN_STACK);
    sleep_in_futex();
    return arg;
}

static void *gone_start(void *arg)
{
    describe_self(GONE);
    return arg;
}

static void wait_for_task_to_go(pid_t lwp)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d", lwp);
    while (access(path, F_OK) == 0)
        usleep(200);
}

/* Things a test asks the process to do. */
enum command { NOTHING, MAKE_A_THREAD, BREAK_LIST_LOOP, BREAK_LIST_NULL, BREAK_LIST_UNMAPPED, EXECUTE, STAY, LEAVE };

static void *short_start(void *arg)
{
    return arg;
}

static void obey(enum command command)
{
    pthread_t id;
    /* `list` in struct pthread, the same in glibc 2.31 to 2.43. */
    struct node {
        struct node *next, *prev;
    } *node = (struct node *)((char *)shared->of[FUTEX].id + 704);
    switch (command) {
    case MAKE_A_THREAD:
        pthread_create(&id, NULL, short_start, NULL);
        pthread_join(id, NULL);
        break;
    case BREAK_LIST_LOOP:
        node->next = (struct node *)((char *)shared->of[MASKED].id + 704);
        break;
    case BREAK_LIST_NULL:
        node->next = NULL;
        break;
    case BREAK_LIST_UNMAPPED:
        node->next = (struct node *)0x10;
        break;
    case EXECUTE:
        execlp("true", "true", (char *)NULL);
        _exit(1);
    case STAY: /* as another program */
        execlp("sleep", "sleep", "1000", (char *)NULL);
        _exit(1);
    case LEAVE: /* main alone */
        shared->command = NOTHING;
        pthread_exit(NULL);
    case NOTHING:
        break;
    }
}

static void run_target(const char *library)
{
    static char stack[256 << 10] __attribute__((aligned(4096)));
    void *(*const starts[])(void *) = { NULL,           futex_start,  napper_start,   spinner_start,   zombie_start,
                                        detached_start, masked_start, realtime_start, own_stack_start, gone_start };
    if (library) {
        void *module = dlopen(library, RTLD_NOW);
        if (!module) {
            fprintf(stderr, "%s\n", dlerror());
            _exit(1);
        }
        loaded_touch = (int *(*)(void))dlsym(module, "loaded_touch");
    }
    signal(SIGUSR2, on_signal);
    shared->pid = getpid();
    for (int i = 0; i < KEYS; i++)
        pthread_key_create(&shared->keys[i], i % 2 ? key_destructor : NULL);
    shared->deleted = shared->keys[1];
    pthread_key_delete(shared->deleted);
    describe_self(MAIN);
    for (int role = 1; role < ROLES; role++) {
        pthread_t id;
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        if (role == OWN_STACK)
            pthread_attr_setstack(&attr, stack, sizeof stack);
        if (role == DETACHED)
            pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        shared->of[role].start = (void *)starts[role];
        if (pthread_create(&id, &attr, starts[role], NULL))
            _exit(1);
        while (!shared->of[role].told)
            usleep(200);
        if (role == ZOMBIE)
            wait_for_task_to_go(shared->of[role].lwp);
        if (role == GONE)
            pthread_join(id, NULL);
    }
    shared->ready = 1;
    for (;;) {
        enum command command = shared->command;
        if (command != NOTHING) {
            obey(command);
            shared->command = NOTHING;
        }
        /* Long enough to be found asleep nearly always, short enough to obey soon. */
        usleep(20000);
    }
}

__attribute__((unused)) static void tell_target(enum command command)
{
    shared->command = command;
    while (shared->command != NOTHING && waitpid(shared->pid, NULL, WNOHANG) == 0)
        usleep(200);
}

/* The state letter of a thread. */
__attribute__((unused)) static char letter_of(pid_t lwp)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", shared->pid, lwp);
    int fd = open(path, O_RDONLY);
    ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = 0;
    char *name_end = strrchr(text, ')');
    return name_end ? name_end[2] : 'X';
}

/* The line of /proc that tells the system call, stack pointer and program counter of a sleeping thread. */
__attribute__((unused)) static int call_of(pid_t lwp, unsigned long *sp, unsigned long *pc)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", shared->pid, lwp);
    int fd = open(path, O_RDONLY);
    ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = 0;
    int number;
    return sscanf(text, "%d %*x %*x %*x %*x %*x %*x %lx %lx", &number, sp, pc) == 3 ? number : -1;
}

__attribute__((unused)) static void end_target(void)
{
    kill(shared->pid, SIGKILL);
    waitpid(shared->pid, NULL, 0);
}

/* Starts the process, and waits until its threads are where they belong. */
__attribute__((unused)) static pid_t start_target(const char *library)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        exit(2);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        run_target(library);
    }
    while (!shared->ready) {
        if (waitpid(pid, NULL, WNOHANG) != 0) {
            fprintf(stderr, "the target did not start\n");
            exit(2);
        }
        usleep(500);
    }
    static const enum role sleepers[] = { FUTEX, DETACHED, MASKED, REALTIME, OWN_STACK };
    for (size_t i = 0; i < sizeof sleepers / sizeof *sleepers; i++) {
        unsigned long sp, pc;
        while (letter_of(shared->of[sleepers[i]].lwp) != 'S' || call_of(shared->of[sleepers[i]].lwp, &sp, &pc) < 0)
            usleep(200);
    }
    return pid;
}

#endif
