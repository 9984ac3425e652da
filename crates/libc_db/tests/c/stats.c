/*
 * Process statistics against what the kernel and the process itself say, through a handle of the library's and
 * through routines of our own. With an argument: of a core, for which there are none.
 *
 * No check depends on how busy the machine is. Who spins is running or waits for a CPU, always; how long it ran
 * is what the clock of the process says.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static _Thread_local int is_main;
static _Atomic int calls_by_others;
#define BEFORE_CALL(name) (void)(is_main || calls_by_others++)

#include "check.h"
#include "service.h"

#include <math.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>

#define SPINNERS 3
#define SLEEPERS 2
#define THREADS (1 + SPINNERS + SLEEPERS)

static struct {
    _Atomic int asked, done; /* what the process is to do, and has done */
    _Atomic int ended;       /* brief threads */
    sem_t go;                /* it sleeps until it is asked: who polls wants to run now and then */
} *shared;

enum { READY = 1, ANOTHER_THREAD, ANOTHER_LEVEL, COME_AND_GO, STAY };

static void *spin(void *arg)
{
    for (;;)
        atomic_signal_fence(memory_order_seq_cst);
    return arg;
}

static void *rest(void *arg)
{
    for (;;)
        pause();
    return arg;
}

/* Lives for about a millisecond of CPU time. */
static void *brief(void *arg)
{
    struct timespec used;
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    while (used.tv_sec == 0 && used.tv_nsec < 1000000);
    return arg;
}

static void run_target(void)
{
    pthread_t id;
    pthread_setconcurrency(7);
    for (int i = 0; i < SPINNERS; i++)
        pthread_create(&id, NULL, spin, NULL);
    for (int i = 0; i < SLEEPERS; i++)
        pthread_create(&id, NULL, rest, NULL);
    for (;;) {
        int asked = shared->asked;
        switch (asked == shared->done ? STAY : asked) {
        case ANOTHER_THREAD:
            pthread_create(&id, NULL, rest, NULL);
            break;
        case ANOTHER_LEVEL:
            pthread_setconcurrency(9);
            break;
        case COME_AND_GO:
            pthread_create(&id, NULL, brief, NULL);
            pthread_join(id, NULL);
            shared->ended++;
            continue;
        }
        shared->done = asked;
        while (sem_wait(&shared->go))
            ;
    }
}

static void ask(int what)
{
    shared->asked = what;
    sem_post(&shared->go);
    if (what != COME_AND_GO)
        EVENTUALLY(shared->done == what);
}

static pid_t start(void)
{
    shared->asked = shared->done = shared->ended = 0;
    sem_init(&shared->go, 1, 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run_target();
    }
    ask(READY);
    return pid;
}

static long long now_us(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000ll + time.tv_nsec / 1000;
}

static long long cpu_us(pid_t pid)
{
    clockid_t clock;
    return clock_getcpuclockid(pid, &clock) ? -1 : now_us(clock);
}

static td_ta_stats_t get(td_thragent_t *ta)
{
    td_ta_stats_t stats;
    memset(&stats, 0xee, sizeof stats);
    GIVES(TD_OK, td_ta_get_stats(ta, &stats));
    int den = stats.nlwps_den;
    CHECK(den >= 1 && stats.nrunnable_den == den && stats.a_concurrency_den == den && stats.nidle_den == den,
          "%d %d %d %d", stats.nrunnable_den, stats.a_concurrency_den, den, stats.nidle_den);
    CHECK(0 <= stats.a_concurrency_num && stats.a_concurrency_num <= stats.nrunnable_num &&
              stats.nrunnable_num <= stats.nlwps_num,
          "%d %d %d", stats.a_concurrency_num, stats.nrunnable_num, stats.nlwps_num);
    CHECK(stats.nidle_num == stats.nlwps_num - stats.nrunnable_num, "%d", stats.nidle_num);
    return stats;
}

static int is_nothing(const td_ta_stats_t *stats)
{
    return stats->nlwps_den == 1 && stats->nlwps_num == 0 && stats->nrunnable_num == 0 && stats->a_concurrency_num == 0;
}

static int same_averages(const td_ta_stats_t *a, const td_ta_stats_t *b)
{
    return !memcmp(&a->nrunnable_num, &b->nrunnable_num, 8 * sizeof(int));
}

/* Threads of this program. */
static int own_threads(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return count;
}

/* Statistics on for a while, between readings of the clock of the process: what ran must be in between. */
static td_ta_stats_t measure(td_thragent_t *ta, pid_t pid, int us)
{
    /* The clock of a thread that runs lags by a tick; a tenth of a second is more than that of any kernel. */
    const long long lag = 100000;
    long long outer = cpu_us(pid);
    GIVES(TD_OK, td_ta_enable_stats(ta, 1));
    long long inner = cpu_us(pid), from = now_us(CLOCK_MONOTONIC);
    usleep(us);
    inner = cpu_us(pid) - inner;
    long long passed = now_us(CLOCK_MONOTONIC) - from;
    td_ta_stats_t stats = get(ta);
    outer = cpu_us(pid) - outer;
    CHECK(stats.nlwps_den >= passed - 2, "%d of %lld us", stats.nlwps_den, passed);
    CHECK(inner - lag <= stats.a_concurrency_num && stats.a_concurrency_num <= outer + lag, "%lld %d %lld", inner,
          stats.a_concurrency_num, outer);
    return stats;
}

static void averages(td_thragent_t *ta, pid_t pid)
{
    td_ta_stats_t stats = get(ta), later;
    CHECK(stats.nthreads == THREADS && stats.r_concurrency == 7, "%d %d", stats.nthreads, stats.r_concurrency);
    CHECK(is_nothing(&stats), "on before they were enabled");
    GIVES(TD_OK, td_ta_enable_stats(ta, 0));
    GIVES(TD_OK, td_ta_reset_stats(ta));

    stats = measure(ta, pid, 300000);
    CHECK(fabs((double)stats.nlwps_num / stats.nlwps_den - THREADS) < 0.001, "%d/%d", stats.nlwps_num, stats.nlwps_den);
    CHECK(stats.a_concurrency_num > 0, "nobody ran");
    EVENTUALLY((stats = get(ta), fabs((double)stats.nrunnable_num / stats.nrunnable_den - SPINNERS) < 0.15));

    /* Reset, by name and by enabling again: the time is that since then. */
    for (int again = 0; again < 2; again++) {
        CHECK(get(ta).nlwps_den > 100000, "too early for this test");
        long long from = now_us(CLOCK_MONOTONIC);
        GIVES(TD_OK, again ? td_ta_enable_stats(ta, 1) : td_ta_reset_stats(ta));
        stats = get(ta);
        CHECK(stats.nlwps_den <= now_us(CLOCK_MONOTONIC) - from + 1, "%d", stats.nlwps_den);
        usleep(150000);
    }

    /* Off: nothing moves but the two that are always current. */
    GIVES(TD_OK, td_ta_enable_stats(ta, 0));
    stats = get(ta);
    CHECK(stats.nlwps_den > 100000, "%d", stats.nlwps_den);
    ask(ANOTHER_THREAD);
    ask(ANOTHER_LEVEL);
    later = get(ta);
    CHECK(same_averages(&stats, &later), "%d/%d, %d/%d", stats.nlwps_num, stats.nlwps_den, later.nlwps_num,
          later.nlwps_den);
    CHECK(later.nthreads == THREADS + 1 && later.r_concurrency == 9, "%d %d", later.nthreads, later.r_concurrency);
    GIVES(TD_OK, td_ta_enable_stats(ta, 0));
    later = get(ta);
    CHECK(same_averages(&stats, &later), "off again");
    GIVES(TD_OK, td_ta_reset_stats(ta));
    stats = get(ta);
    CHECK(is_nothing(&stats), "reset while off");

    /* Threads that come and go: their time is that of the process. */
    ask(COME_AND_GO);
    int before = shared->ended;
    EVENTUALLY(shared->ended > before);
    do
        measure(ta, pid, 200000);
    while (shared->ended < before + 20);
    ask(STAY);
}

static void refused(td_thragent_t *ta, td_err_e wanted)
{
    td_ta_stats_t stats;
    GIVES(wanted, td_ta_enable_stats(ta, 1));
    GIVES(wanted, td_ta_reset_stats(ta));
    GIVES(wanted, td_ta_get_stats(ta, &stats));
    GIVES(TD_ERR, td_ta_get_stats(ta, NULL));
}

/* In a process that we forked there is nobody who keeps them, and nobody is waited for. */
static void after_fork(td_thragent_t *ta)
{
    int status;
    GIVES(TD_OK, td_ta_enable_stats(ta, 1));
    pid_t pid = fork();
    if (pid == 0) {
        td_ta_stats_t stats;
        alarm(60);
        failures = 0;
        GIVES(TD_ERR, td_ta_get_stats(ta, &stats));
        GIVES(TD_ERR, td_ta_reset_stats(ta));
        GIVES(TD_OK, td_ta_delete(ta));
        _exit(failures != 0);
    }
    waitpid(pid, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", status);
    get(ta);
}

int main(int argc, char **argv)
{
    struct ps_prochandle *ph;
    td_thragent_t *ta, *other;
    is_main = 1;
    if (argc == 2) {
        GIVES(TD_OK, tg_open_core(argv[1], NULL, &ph));
        GIVES(TD_OK, td_ta_new(ph, &ta));
        refused(ta, TD_NOCAPAB);
        return failures != 0;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    refused(NULL, TD_BADTA);

    /* A handle of the library's. */
    pid_t pid = start();
    GIVES(TD_OK, tg_attach_pid(pid, &ph));
    GIVES(TD_OK, td_ta_new(ph, &ta));
    averages(ta, pid);
    after_fork(ta);
    /* Each agent has its own, with a thread that goes with it. */
    int threads = own_threads();
    GIVES(TD_OK, td_ta_new(ph, &other));
    td_ta_stats_t stats = get(other);
    CHECK(is_nothing(&stats), "those of another agent");
    GIVES(TD_OK, td_ta_enable_stats(other, 1));
    CHECK(own_threads() == threads + 1, "%d, then %d", threads, own_threads());
    GIVES(TD_OK, td_ta_delete(other));
    EVENTUALLY(own_threads() == threads);
    refused(other, TD_BADPH);
    /* A process that ends. */
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    EVENTUALLY(own_threads() == threads - 1);
    GIVES(TD_DBERR, td_ta_get_stats(ta, &stats));
    GIVES(TD_DBERR, td_ta_enable_stats(ta, 1));
    tg_release(ph);
    refused(ta, TD_BADPH);

    /* Routines of our own, which are called on this thread only. */
    pid = start();
    struct ps_prochandle process = { pid, pid };
    GIVES(TD_OK, td_ta_new(&process, &ta));
    averages(ta, pid);
    CHECK(calls_by_others == 0, "%d calls on another thread", calls_by_others);
    GIVES(TD_OK, td_ta_enable_stats(ta, 1));
    GIVES(TD_OK, td_ta_delete(ta));
    EVENTUALLY(own_threads() == 1);
    /* Not a process that is not shown to be the same. */
    process.claimed = 1;
    GIVES(TD_OK, td_ta_new(&process, &ta));
    refused(ta, TD_NOCAPAB);
    GIVES(TD_OK, td_ta_delete(ta));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return failures != 0;
}
