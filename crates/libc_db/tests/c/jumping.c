/*
 * A client that leaves callbacks and its own ps_ routines by longjmp: nothing stays locked, and what callbacks leave
 * behind does not grow.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
static void before_call(void);
#define BEFORE_CALL(name) before_call()
#include "check.h"
#include "target.h"
#include "service.h"

#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>

static jmp_buf back;
static long jump_at, calls_made;

static void before_call(void)
{
    if (++calls_made == jump_at)
        longjmp(back, 1);
}

static int on_thread(const td_thrhandle_t *th, void *arg)
{
    (void)th, (void)arg;
    longjmp(back, 1);
}

static int on_object(const td_synchandle_t *sh, void *arg)
{
    (void)sh, (void)arg;
    longjmp(back, 1);
}

static int on_key(thread_key_t key, void (*destructor)(void *), void *arg)
{
    (void)key, (void)destructor, (void)arg;
    longjmp(back, 1);
}

/* From a callback inside a callback. */
static int on_thread_again(const td_thrhandle_t *th, void *arg)
{
    (void)th;
    return td_ta_thr_iter(arg, on_thread, NULL, TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, TD_SIGNO_MASK,
                          TD_THR_ANY_USER_FLAGS);
}

enum way { OF_THREADS, OF_FILTERED, OF_NESTED, OF_KEYS, OF_OBJECTS, OF_WAITERS, OF_OWNED, WAYS };
static const char *const names[] = { "td_ta_thr_iter", "td_ta_thr_iter with a filter", "nested td_ta_thr_iter",
                                     "td_ta_tsd_iter", "td_ta_sync_iter", "td_sync_waiters", "td_thr_lockowner" };

/* An object that is waited for. */
static td_synchandle_t waited;

static void go(td_thragent_t *ta, enum way way)
{
    td_thrhandle_t owner = { ta, (psaddr_t)shared->of[FUTEX].id };
    switch (way) {
    case OF_THREADS:
        td_ta_thr_iter(ta, on_thread, NULL, TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, TD_SIGNO_MASK, TD_THR_ANY_USER_FLAGS);
        break;
    case OF_FILTERED:
        td_ta_thr_iter(ta, on_thread, NULL, TD_THR_SLEEP, TD_THR_LOWEST_PRIORITY, TD_SIGNO_MASK, TD_THR_ANY_USER_FLAGS);
        break;
    case OF_NESTED:
        td_ta_thr_iter(ta, on_thread_again, ta, TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, TD_SIGNO_MASK,
                       TD_THR_ANY_USER_FLAGS);
        break;
    case OF_KEYS:
        td_ta_tsd_iter(ta, on_key, NULL);
        break;
    case OF_OBJECTS:
        td_ta_sync_iter(ta, on_object, NULL);
        break;
    case OF_WAITERS:
        waited.sh_ta_p = ta;
        td_sync_waiters(&waited, on_thread, NULL);
        break;
    default:
        td_thr_lockowner(&owner, on_object, NULL);
    }
}

/* Jumps out so often; whether it did. */
static int jump(td_thragent_t *ta, enum way way, int times)
{
    volatile int left = times;
    if (setjmp(back))
        left--;
    if (left > 0)
        go(ta, way);
    return !left;
}

static int count(const td_thrhandle_t *th, void *arg)
{
    (void)th;
    ++*(int *)arg;
    return 0;
}

static int threads_of(td_thragent_t *ta)
{
    int threads = 0;
    GIVES(TD_OK, td_ta_thr_iter(ta, count, &threads, TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, TD_SIGNO_MASK,
                                TD_THR_ANY_USER_FLAGS));
    return threads;
}

static void *on_another_thread(void *arg)
{
    CHECK(threads_of(arg) == LIVING, "%d threads", threads_of(arg));
    return NULL;
}

static void elsewhere(void *(*start)(void *), void *arg)
{
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, start, arg), "no thread");
    pthread_join(thread, NULL);
}

static int find_waited(const td_synchandle_t *sh, void *arg)
{
    td_syncinfo_t si;
    (void)arg;
    if (td_sync_get_info(sh, &si) == TD_OK && si.si_has_waiters)
        waited = *sh;
    return waited.sh_unique != NULL;
}

static void out_of_callbacks(struct ps_prochandle *ph, int times)
{
    for (enum way way = OF_THREADS; way < WAYS; way++) {
        td_thragent_t *ta;
        GIVES(TD_OK, td_ta_new(ph, &ta));
        memset(&waited, 0, sizeof waited);
        GIVES(TD_OK, td_ta_sync_iter(ta, find_waited, NULL));
        /* A look at all objects takes long, and so do all threads twice. */
        int rounds = way >= OF_OBJECTS ? times / 100 : way == OF_THREADS || way == OF_KEYS ? times : times / 10;
        /* Whoever owns nothing is called back for nothing. */
        if (!jump(ta, way, rounds / 10 + 20)) {
            CHECK(way == OF_OWNED, "%s calls nobody", names[way]);
            GIVES(TD_OK, td_ta_delete(ta));
            continue;
        }
        size_t before = mallinfo2().uordblks;
        jump(ta, way, rounds);
        size_t after = mallinfo2().uordblks, grown = after > before ? after - before : 0;
        CHECK(grown < 65536, "%s: %zu bytes more after %d jumps", names[way], grown, rounds);
        CHECK(threads_of(ta) == LIVING, "%s: the agent forgot its threads", names[way]);
        elsewhere(on_another_thread, ta);
        GIVES(TD_OK, td_ta_delete(ta));
        GIVES(TD_BADPH, td_ta_delete(ta));
        size_t end = mallinfo2().uordblks;
        CHECK(end < after + 65536, "%s: %zu bytes, then %zu after the end", names[way], after, end);
    }
}

/* The k-th ps_ call of each way jumps, for every k: the next call works, also on another thread. */
static void out_of_routines(struct ps_prochandle *ph)
{
    for (enum way way = OF_THREADS; way < WAYS; way++) {
        td_thragent_t *ta;
        GIVES(TD_OK, td_ta_new(ph, &ta));
        /* Who is left in the middle of a look at all objects has to read all files again: few of them. */
        for (volatile long k = 1; k < 200; k = way >= OF_OBJECTS ? k * 5 : k + 1) {
            calls_made = 0;
            jump_at = k;
            if (!setjmp(back))
                go(ta, way);
            int reached = calls_made >= k;
            jump_at = 0;
            if (!reached)
                break;
        }
        CHECK(threads_of(ta) == LIVING, "%s: the agent forgot its threads", names[way]);
        elsewhere(on_another_thread, ta);
        GIVES(TD_OK, td_ta_delete(ta));
    }
}

int main(void)
{
    struct ps_prochandle *ready_made, own;

    start_target(NULL);
    own.pid = own.claimed = shared->pid;
    GIVES(TD_OK, tg_attach_pid(shared->pid, &ready_made));
    out_of_callbacks(ready_made, 10000);
    out_of_callbacks(&own, 1000);
    out_of_routines(&own);
    tg_release(ready_made);
    end_target();
    return failures != 0;
}
