/*
 * Many client threads at once, on one agent and on agents of their own, while one agent is deleted.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "target.h"

#include "check.h"
#include "service.h"

#define CLIENTS 8
#define ROUNDS 60

static struct ps_prochandle process, *ready_made;
static td_thragent_t *shared_agent, *_Atomic doomed;
static _Atomic int wrong;

static int count_thread(const td_thrhandle_t *th, void *arg)
{
    td_thrinfo_t ti;
    td_err_e rc = td_thr_get_info(th, &ti);
    *(int *)arg += rc == TD_OK && ti.ti_tid == (thread_t)th->th_unique;
    return 0;
}

static int count_key(thread_key_t key, void (*destructor)(void *), void *arg)
{
    (void)key, (void)destructor;
    ++*(int *)arg;
    return 0;
}

#define MUST(condition)                                                                                      \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            wrong++;                                                                                         \
            printf("%s:%d: not %s\n", __FILE__, __LINE__, #condition);                                       \
        }                                                                                                    \
    } while (0)

static void use(td_thragent_t *ta)
{
    int threads = 0, keys = 0, number = 0;
    td_thrhandle_t th = { ta, (psaddr_t)shared->of[FUTEX].id };
    psaddr_t base;
    void *value;
    MUST(td_ta_thr_iter(ta, count_thread, &threads, TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, NULL, ~0u) == TD_OK);
    MUST(threads == LIVING);
    MUST(td_ta_tsd_iter(ta, count_key, &keys) == TD_OK && keys >= KEYS - 1);
    MUST(td_ta_get_nthreads(ta, &number) == TD_OK && number == LIVING);
    MUST(td_thr_tlsbase(&th, 1, &base) == TD_OK);
    MUST(td_thr_tsd(&th, shared->keys[0], &value) == TD_OK);
}

static void *client(void *arg)
{
    int n = (int)(size_t)arg;
    for (int i = 0; i < ROUNDS; i++) {
        use(shared_agent);
        td_thragent_t *own = NULL;
        MUST(td_ta_new(n % 2 ? ready_made : &process, &own) == TD_OK);
        use(own);
        if (n == 1) {
            td_thrhandle_t th = { shared_agent, (psaddr_t)shared->of[NAPPER].id };
            td_err_e rc = TD_NOCAPAB;
            /* While another client reads its registers it is that client's: a thread has one tracer. */
            for (int tries = 0; tries < 60000 && rc == TD_NOCAPAB; tries++) {
                rc = td_thr_dbsuspend(&th);
                usleep(rc == TD_NOCAPAB ? 1000 : 0);
            }
            MUST(rc == TD_OK);
            MUST(td_thr_dbresume(&th) == TD_OK);
        }
        MUST(td_ta_delete(own) == TD_OK);
        MUST(td_ta_delete(own) == TD_BADPH);
        /* An agent that another thread deletes: right answers until then, TD_BADPH afterwards. */
        int number = 0;
        td_err_e rc = td_ta_get_nthreads(doomed, &number);
        MUST(rc == TD_BADPH || (rc == TD_OK && number == LIVING));
    }
    return NULL;
}

static void *deleter(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        td_thragent_t *next = NULL, *old = doomed;
        MUST(td_ta_new(ready_made, &next) == TD_OK);
        doomed = next;
        MUST(td_ta_delete(old) == TD_OK);
    }
    return arg;
}

int main(void)
{
    pthread_t ids[CLIENTS + 1];
    td_thragent_t *first;
    process.pid = process.claimed = start_target(NULL);
    GIVES(TD_OK, tg_attach_pid(process.pid, &ready_made));
    GIVES(TD_OK, td_ta_new(ready_made, &shared_agent));
    GIVES(TD_OK, td_ta_new(ready_made, &first));
    doomed = first;
    for (size_t i = 0; i < CLIENTS; i++)
        pthread_create(&ids[i], NULL, client, (void *)i);
    pthread_create(&ids[CLIENTS], NULL, deleter, NULL);
    for (size_t i = 0; i <= CLIENTS; i++)
        pthread_join(ids[i], NULL);
    CHECK(wrong == 0, "%d wrong answers", wrong);
    unsigned long before = shared->of[NAPPER].count;
    EVENTUALLY(shared->of[NAPPER].count > before + 2);
    GIVES(TD_OK, td_ta_delete(doomed));
    GIVES(TD_OK, td_ta_delete(shared_agent));
    tg_release(ready_made);
    end_target();
    return failures != 0;
}
