/*
 * The program that debuggers are shown: four named threads with thread-local variables of the program
 * itself, of a library it is linked with, and of one it loads (if it gets the path as argument 1).
 * Thread n (main is 0) has own_value 10 + n, library_value 20 + n, loaded_value 30 + n.
 *
 * Prints each thread's own view as JSON, then "ready", and waits for a line or the end of its input; then
 * it prints the views again, in case a debugger changed the values, and "done".
 *
 * -DSTATIC leaves the libraries out. -DAGAIN="path" executes that program from a thread when all run.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4

__thread int own_value = 5;
__thread char own_text[32] = "untouched";
#ifndef STATIC
int library_add(int n);
static int *(*loaded_touch)(void);
#endif
static pthread_barrier_t all_here, leave;
static struct view {
    pthread_t id;
    pid_t lwp;
    int own, library, loaded;
} views[THREADS + 1];

void in_thread(int n);
void everyone_is_here(void);

/* Breakpoints. */
__attribute__((noinline)) void in_thread(int n)
{
    __asm__ volatile("" ::"r"(n) : "memory");
}

__attribute__((noinline)) void everyone_is_here(void)
{
    __asm__ volatile("" ::: "memory");
}

static void look(int n)
{
    views[n] = (struct view){ pthread_self(), gettid(), own_value, 0, 0 };
#ifndef STATIC
    views[n].library = library_add(0);
    if (loaded_touch)
        views[n].loaded = *loaded_touch();
#endif
}

static void *start(void *arg)
{
    int n = (int)(size_t)arg;
    char name[16];
    snprintf(name, sizeof name, "worker-%d", n);
    prctl(PR_SET_NAME, name);
    own_value = 10 + n;
    snprintf(own_text, sizeof own_text, "thread %d", n);
#ifndef STATIC
    library_add(20 + n - 5);
    if (loaded_touch)
        *loaded_touch() = 30 + n;
#endif
    look(n);
    in_thread(n);
    pthread_barrier_wait(&all_here);
    pthread_barrier_wait(&leave);
    look(n);
    return NULL;
}

static void print_views(void)
{
    printf("{\"threads\":[");
    for (int i = 0; i <= THREADS; i++)
        printf("%s{\"id\":\"%#lx\",\"lwp\":%d,\"own\":%d,\"library\":%d,\"loaded\":%d}", i ? "," : "",
               (unsigned long)views[i].id, views[i].lwp, views[i].own, views[i].library, views[i].loaded);
    printf("]}\n");
}

#ifdef AGAIN
static void *start_again(void *arg)
{
    execl(AGAIN, AGAIN, (char *)NULL);
    return arg;
}
#endif

int main(int argc, char **argv)
{
    pthread_t ids[THREADS + 1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
#ifndef STATIC
    if (argc > 1) {
        void *module = dlopen(argv[1], RTLD_NOW);
        if (!module)
            return fprintf(stderr, "%s\n", dlerror()), 2;
        loaded_touch = (int *(*)(void))dlsym(module, "loaded_touch");
    }
#else
    (void)argc, (void)argv;
#endif
    pthread_barrier_init(&all_here, NULL, THREADS + 1);
    pthread_barrier_init(&leave, NULL, THREADS + 1);
    own_value = 10;
#ifndef STATIC
    library_add(20 - 5);
    if (loaded_touch)
        *loaded_touch() = 30;
#endif
    for (size_t i = 1; i <= THREADS; i++)
        if (pthread_create(&ids[i], NULL, start, (void *)i))
            return 2;
    pthread_barrier_wait(&all_here);
    look(0);
    print_views();
    everyone_is_here();
#ifdef FORK
    pid_t child = fork();
    if (child == 0) {
        /* A program of its own, with a thread made after the fork. */
        own_value = 50;
        for (int i = 1; i <= THREADS; i++)
            views[i] = (struct view){ 0, 0, 0, 0, 0 };
        pthread_barrier_init(&all_here, NULL, 2);
        pthread_barrier_init(&leave, NULL, 2);
        if (pthread_create(&ids[1], NULL, start, (void *)1L))
            _exit(2);
        pthread_barrier_wait(&all_here);
        look(0);
        everyone_is_here();
        pthread_barrier_wait(&leave);
        pthread_join(ids[1], NULL);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    fprintf(stderr, "child %d\n", status);
#endif
#ifdef AGAIN
    pthread_create(&ids[0], NULL, start_again, NULL);
    pthread_join(ids[0], NULL);
#endif
    puts("ready");
    for (int c = getchar(); c != EOF && c != '\n';)
        c = getchar();
    pthread_barrier_wait(&leave);
    for (int i = 1; i <= THREADS; i++)
        pthread_join(ids[i], NULL);
    look(0);
    print_views();
    puts("done");
    return 0;
}
