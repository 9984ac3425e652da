/*
 * A client that forks while other threads of its own are in calls: its child waits for none of them, and the client
 * goes on as before.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
static void before_call(void);
#define BEFORE_CALL(name) before_call()
#include "check.h"
#include "target.h"
#include "service.h"

#include <pthread.h>
#include <semaphore.h>

/* Threads that are inside, and what lets them out. */
static sem_t inside, out;
static __thread int blocks;

static void block(void)
{
    sem_post(&inside);
    while (sem_wait(&out))
        ;
}

static void before_call(void)
{
    if (blocks) {
        blocks = 0;
        block();
    }
}

static int on_thread(const td_thrhandle_t *th, void *arg)
{
    (void)th;
    int *calls = arg;
    if (!calls)
        block();
    else
        ++*calls;
    return !calls;
}

static td_err_e iterate(td_thragent_t *ta, int *calls)
{
    return td_ta_thr_iter(ta, on_thread, calls, TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, TD_SIGNO_MASK,
                          TD_THR_ANY_USER_FLAGS);
}

static void *in_a_callback(void *ta)
{
    GIVES(TD_OK, iterate(ta, NULL));
    return NULL;
}

static void *in_a_routine(void *ta)
{
    int threads;
    blocks = 1;
    GIVES(TD_OK, td_ta_get_nthreads(ta, &threads));
    return NULL;
}

/* Calls without end, so that a fork finds it anywhere. */
static _Atomic int enough;

static void *in_everything(void *ta)
{
    while (!enough) {
        int threads = 0;
        td_thrinfo_t ti;
        td_synchandle_t sh;
        td_thrhandle_t th = { ta, (psaddr_t)shared->of[FUTEX].id };
        GIVES(TD_OK, iterate(ta, &threads));
        GIVES(TD_OK, td_thr_get_info(&th, &ti));
        td_thr_sleepinfo(&th, &sh);
    }
    return NULL;
}

static int nothing(const td_synchandle_t *sh, void *arg)
{
    (void)sh, (void)arg;
    return 0;
}

/* Everything that can be asked of an agent gives `wanted`; its end is the end. */
static void all_functions(td_thragent_t *ta, td_err_e wanted)
{
    td_thrhandle_t th = { ta, (psaddr_t)shared->of[FUTEX].id }, other;
    td_synchandle_t sh = { ta, (psaddr_t)shared->of[FUTEX].id }, found;
    td_thrinfo_t ti;
    td_ta_stats_t stats;
    td_event_msg_t message;
    struct ps_prochandle *ph;
    prgregset_t regs;
    int threads = 0;

    GIVES(wanted, td_ta_get_ph(ta, &ph));
    GIVES(wanted, iterate(ta, &threads));
    GIVES(wanted, td_ta_get_nthreads(ta, &threads));
    GIVES(wanted, td_ta_map_lwp2thr(ta, shared->of[FUTEX].lwp, &other));
    GIVES(wanted, td_ta_map_id2thr(ta, shared->of[FUTEX].id, &other));
    GIVES(wanted, td_ta_sync_iter(ta, nothing, NULL));
    GIVES(wanted, td_thr_get_info(&th, &ti));
    GIVES(wanted, td_thr_validate(&th));
    GIVES(wanted, td_thr_sleepinfo(&th, &found));
    GIVES(wanted, td_thr_lockowner(&th, nothing, NULL));
    GIVES(wanted, td_thr_dbresume(&th));
    /* These may be refused for other reasons: they come back. */
    td_thr_getgregs(&th, regs);
    td_thr_dbsuspend(&th);
    td_thr_dbresume(&th);
    td_ta_get_stats(ta, &stats);
    td_ta_enable_stats(ta, 1);
    td_ta_reset_stats(ta);
    td_ta_enable_stats(ta, 0);
    td_ta_event_getmsg(ta, &message);
    td_sync_waiters(&sh, on_thread, &threads);
    GIVES(TD_OK, td_ta_delete(ta));
    GIVES(TD_BADPH, td_ta_delete(ta));
    GIVES(TD_BADPH, td_thr_get_info(&th, &ti));
}

/* What a child can do anew. */
static void begin_anew(void)
{
    struct ps_prochandle *ph, own = { shared->pid, shared->pid };
    td_thragent_t *ta;
    int threads = 0;

    GIVES(TD_OK, tg_attach_pid(shared->pid, &ph));
    GIVES(TD_OK, td_ta_new(ph, &ta));
    GIVES(TD_OK, iterate(ta, &threads));
    CHECK(threads == LIVING, "%d threads", threads);
    all_functions(ta, TD_OK);
    GIVES(TD_OK, td_ta_new(&own, &ta));
    GIVES(TD_OK, td_ta_delete(ta));
    tg_release(ph);
    GIVES(TD_BADPH, td_ta_new(ph, &ta));
}

/* Waits for a child; one that hangs is ended by its alarm. */
static void expect_success(pid_t child)
{
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child, "no child");
    CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "the child ended with %#x", status);
}

#define IN_CHILD(what)                                                                                       \
    do {                                                                                                     \
        pid_t child_ = fork();                                                                               \
        if (!child_) {                                                                                       \
            failures = 0;                                                                                    \
            alarm(300);                                                                                      \
            what;                                                                                            \
            fflush(stdout);                                                                                  \
            _exit(failures != 0);                                                                            \
        }                                                                                                    \
        expect_success(child_);                                                                              \
    } while (0)

int main(void)
{
    struct ps_prochandle *busy_ph, *idle_ph, own;
    td_thragent_t *busy, *beside, *idle, *asked, *made;
    pthread_t threads[2], caller;
    int number;

    start_target(NULL);
    own.pid = own.claimed = shared->pid;
    sem_init(&inside, 0, 0);
    sem_init(&out, 0, 0);
    GIVES(TD_OK, tg_attach_pid(shared->pid, &busy_ph));
    GIVES(TD_OK, tg_attach_pid(shared->pid, &idle_ph));
    GIVES(TD_OK, td_ta_new(busy_ph, &busy));
    GIVES(TD_OK, td_ta_new(busy_ph, &beside));
    GIVES(TD_OK, td_ta_new(idle_ph, &idle));
    GIVES(TD_OK, td_ta_new(&own, &asked));
    /* It has threads of ours: one that traces, one that measures. */
    td_thrhandle_t held = { idle, (psaddr_t)shared->of[NAPPER].id };
    GIVES(TD_OK, td_thr_dbsuspend(&held));
    GIVES(TD_OK, td_ta_enable_stats(idle, 1));

    pthread_create(&threads[0], NULL, in_a_callback, busy);
    pthread_create(&threads[1], NULL, in_a_routine, asked);
    for (int i = 0; i < 2; i++)
        while (sem_wait(&inside))
            ;
    /* Whatever another thread was at work in is lost to the child, and so is what shares a handle with it. */
    IN_CHILD(all_functions(busy, TD_BADPH));
    IN_CHILD(all_functions(beside, TD_BADPH));
    IN_CHILD(all_functions(asked, TD_BADPH));
    IN_CHILD(GIVES(TD_BADPH, td_ta_new(busy_ph, &made)); tg_release(busy_ph));
    /* What nobody was in goes on, without the threads of ours. */
    IN_CHILD(all_functions(idle, TD_OK));
    IN_CHILD(GIVES(TD_OK, td_ta_delete(idle)));
    IN_CHILD(tg_release(idle_ph));
    IN_CHILD(begin_anew());
    /* No child has let the suspended thread go. */
    td_thrinfo_t ti;
    GIVES(TD_OK, td_thr_get_info(&held, &ti));
    CHECK(ti.ti_db_suspended, "the thread was resumed");
    GIVES(TD_OK, td_thr_dbresume(&held));

    sem_post(&out);
    sem_post(&out);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    GIVES(TD_OK, td_ta_get_nthreads(busy, &number));
    GIVES(TD_OK, td_ta_get_nthreads(asked, &number));

    /* Forks at any moment of a thread that is always in some call. */
    pthread_create(&caller, NULL, in_everything, busy);
    for (int i = 0; i < 200; i++)
        IN_CHILD(GIVES(TD_OK, td_ta_delete(busy)); tg_release(busy_ph); tg_release(idle_ph));
    IN_CHILD(begin_anew());
    enough = 1;
    pthread_join(caller, NULL);

    GIVES(TD_OK, td_ta_delete(busy));
    GIVES(TD_OK, td_ta_delete(beside));
    GIVES(TD_OK, td_ta_delete(idle));
    GIVES(TD_OK, td_ta_delete(asked));
    tg_release(busy_ph);
    tg_release(idle_ph);
    end_target();
    return failures != 0;
}
