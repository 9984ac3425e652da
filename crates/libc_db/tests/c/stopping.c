/*
 * A client that really stops: the whole process in ps_pstop, by ptrace or (-DBY_SIGNAL) by a signal, and single threads in
 * ps_lstop. What the stops change is not told as if the threads did it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <proc_service.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

struct ps_prochandle {
    pid_t pid;
};

static struct ps_prochandle process;

/* ---- The process: a thread holds a mutex that a real-time thread waits for ---- */

enum { OWNER, WAITER, SPINNER, PARTIES };

static struct shared {
    _Atomic pid_t lwp[PARTIES];
    _Atomic pthread_t id[PARTIES];
    _Atomic int holds, may_not;
} *shared;

static pthread_mutex_t inherit;

static void *party(void *arg)
{
    int me = (int)(size_t)arg;
    struct sched_param param = { 5 };
    shared->id[me] = pthread_self();
    shared->lwp[me] = gettid();
    if (me == WAITER && pthread_setschedparam(pthread_self(), SCHED_FIFO, &param))
        shared->may_not = 1;
    if (me == SPINNER)
        for (;;)
            __asm__ volatile("pause" ::: "memory");
    pthread_mutex_lock(&inherit);
    shared->holds = 1;
    for (;;)
        pause();
    return NULL;
}

static void run(void)
{
    pthread_mutexattr_t attr;
    pthread_t id;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&inherit, &attr);
    for (size_t i = 0; i < PARTIES; i++) {
        pthread_create(&id, NULL, party, (void *)i);
        while (i == OWNER && !shared->holds)
            usleep(200);
    }
    for (;;)
        pause();
}

/* ---- The client ---- */

pid_t ps_getpid(struct ps_prochandle *ph)
{
    return ph->pid;
}

ps_err_e ps_pglobal_lookup(struct ps_prochandle *ph, const char *object, const char *name, psaddr_t *address)
{
    (void)ph, (void)object;
    *address = dlsym(RTLD_DEFAULT, name);
    return *address ? PS_OK : PS_NOSYM;
}

ps_err_e ps_pdread(struct ps_prochandle *ph, psaddr_t address, void *buffer, size_t size)
{
    struct iovec local = { buffer, size }, remote = { address, size };
    return process_vm_readv(ph->pid, &local, 1, &remote, 1, 0) == (ssize_t)size ? PS_OK : PS_ERR;
}

ps_err_e ps_pdwrite(struct ps_prochandle *ph, psaddr_t address, const void *buffer, size_t size)
{
    struct iovec local = { (void *)(size_t)buffer, size }, remote = { address, size };
    return process_vm_writev(ph->pid, &local, 1, &remote, 1, 0) == (ssize_t)size ? PS_OK : PS_ERR;
}

ps_err_e ps_lgetregs(struct ps_prochandle *ph, lwpid_t lwp, prgregset_t regs)
{
    (void)ph;
    return ptrace(PTRACE_GETREGS, lwp, NULL, regs) ? PS_ERR : PS_OK;
}

static int stop_lwp(pid_t lwp)
{
    int status;
    if (ptrace(PTRACE_SEIZE, lwp, NULL, NULL) || ptrace(PTRACE_INTERRUPT, lwp, NULL, NULL))
        return -1;
    while (waitpid(lwp, &status, __WALL) < 0 && errno == EINTR)
        ;
    return 0;
}

ps_err_e ps_lstop(struct ps_prochandle *ph, lwpid_t lwp)
{
    (void)ph;
    return stop_lwp(lwp) ? PS_BADLID : PS_OK;
}

ps_err_e ps_lcontinue(struct ps_prochandle *ph, lwpid_t lwp)
{
    (void)ph;
    return ptrace(PTRACE_DETACH, lwp, NULL, NULL) ? PS_BADLID : PS_OK;
}

static int depth, stops;

static char letter_of(pid_t lwp)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", process.pid, lwp);
    int fd = open(path, O_RDONLY);
    ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = 0;
    char *name_end = strrchr(text, ')');
    return name_end ? name_end[2] : 'X';
}

#ifdef BY_SIGNAL
static void stop_process(void)
{
    kill(process.pid, SIGSTOP);
    for (int i = 0; i < PARTIES; i++)
        EVENTUALLY(letter_of(shared->lwp[i]) == 'T' || letter_of(shared->lwp[i]) == 't');
}

static void continue_process(void)
{
    kill(process.pid, SIGCONT);
    for (int i = 0; i < PARTIES; i++)
        EVENTUALLY(letter_of(shared->lwp[i]) != 'T');
}
#else
static pid_t stopped[16];
static int stopped_count;

static void stop_process(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", process.pid);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        pid_t lwp = atoi(entry->d_name);
        /* One that ps_lstop holds is stopped already. */
        if (lwp > 0 && stopped_count < 16 && !stop_lwp(lwp))
            stopped[stopped_count++] = lwp;
    }
    if (dir)
        closedir(dir);
}

static void continue_process(void)
{
    while (stopped_count > 0)
        ptrace(PTRACE_DETACH, stopped[--stopped_count], NULL, NULL);
}
#endif

ps_err_e ps_pstop(struct ps_prochandle *ph)
{
    (void)ph;
    if (depth++ == 0) {
        stops++;
        stop_process();
    }
    return PS_OK;
}

ps_err_e ps_pcontinue(struct ps_prochandle *ph)
{
    (void)ph;
    if (--depth == 0)
        continue_process();
    return PS_OK;
}

/* ---- */

static td_thragent_t *ta;

static td_thrhandle_t handle(int party)
{
    td_thrhandle_t th = { ta, (psaddr_t)shared->id[party] };
    return th;
}

/* The word of the kernel: whether a thread runs at a better priority than its own. */
static int is_boosted(pid_t lwp)
{
    char path[64], text[512] = "";
    int priority = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", process.pid, lwp);
    int fd = open(path, O_RDONLY);
    ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = 0;
    char *name_end = strrchr(text, ')');
    if (name_end)
        sscanf(name_end + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %d", &priority);
    return priority < 0;
}

static void check_thread(const td_thrhandle_t *th)
{
    td_thrinfo_t ti;
    GIVES(TD_OK, td_thr_get_info(th, &ti));
    int is_owner = ti.ti_lid == shared->lwp[OWNER];
    CHECK(ti.ti_pirecflag == is_owner, "LWP %d (owner %d): %d", ti.ti_lid, shared->lwp[OWNER], ti.ti_pirecflag);
    if (ti.ti_lid == shared->lwp[SPINNER])
        CHECK(ti.ti_state == TD_THR_ACTIVE || ti.ti_state == TD_THR_RUN, "state %d", ti.ti_state);
    else
        CHECK(ti.ti_state == TD_THR_SLEEP, "LWP %d: state %d", ti.ti_lid, ti.ti_state);
}

static int check_each(const td_thrhandle_t *th, void *arg)
{
    ++*(int *)arg;
    check_thread(th);
    return 0;
}

/* The waiter is back in its wait, and the owner has its priority. */
static void settle(void)
{
    EVENTUALLY(is_boosted(shared->lwp[OWNER]));
}

static int threads_in(td_thr_state_e state)
{
    int count = 0;
    settle();
    GIVES(TD_OK, td_ta_thr_iter(ta, check_each, &count, state, TD_THR_LOWEST_PRIORITY, NULL, TD_THR_ANY_USER_FLAGS));
    return count;
}

static void inherited_priority(void)
{
    for (int i = 0; i < PARTIES; i++) {
        td_thrhandle_t th = handle(i);
        settle();
        check_thread(&th);
    }
    int before = stops, waiters = 0;
    CHECK(threads_in(TD_THR_ANY_STATE) == PARTIES + 1, "threads");
    CHECK(stops == before + 1, "%d stops in one call", stops - before);
    CHECK(threads_in(TD_THR_SLEEP) == PARTIES, "sleepers");
    CHECK(threads_in(TD_THR_STOPPED) == 0 && threads_in(TD_THR_STOPPED_ASLEEP) == 0, "nobody was stopped before");
    td_synchandle_t sh;
    GIVES(TD_OK, td_ta_map_addr2sync(ta, &inherit, &sh));
    settle();
    GIVES(TD_OK, td_sync_waiters(&sh, check_each, &waiters));
    CHECK(waiters == 1, "%d waiters", waiters);
}

static int count_thread(const td_thrhandle_t *th, void *arg)
{
    (void)th;
    ++*(int *)arg;
    return 0;
}

/* Suspended by the client's own routine: the state says so, and filters find it. */
static void suspension(int party, td_thr_state_e wanted)
{
    td_thrhandle_t th = handle(party);
    td_thrinfo_t ti;
    int count = 0;
    GIVES(TD_OK, td_thr_dbsuspend(&th));
    GIVES(TD_OK, td_thr_get_info(&th, &ti));
    CHECK(ti.ti_state == wanted && ti.ti_db_suspended, "state %d, not %d", ti.ti_state, wanted);
    GIVES(TD_OK, td_ta_thr_iter(ta, count_thread, &count, wanted, TD_THR_LOWEST_PRIORITY, NULL, TD_THR_ANY_USER_FLAGS));
    CHECK(count == 1, "%d threads in state %d", count, wanted);
    GIVES(TD_OK, td_thr_dbresume(&th));
    EVENTUALLY(letter_of(shared->lwp[party]) != 't');
    GIVES(TD_OK, td_thr_get_info(&th, &ti));
    CHECK(ti.ti_state != TD_THR_STOPPED && ti.ti_state != TD_THR_STOPPED_ASLEEP && !ti.ti_db_suspended, "state %d",
          ti.ti_state);
}

int main(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    process.pid = fork();
    if (process.pid == 0)
        run();
    for (int i = 0; i < PARTIES; i++)
        EVENTUALLY(shared->lwp[i] && (i == SPINNER || letter_of(shared->lwp[i]) == 'S'));
    GIVES(TD_OK, td_ta_new(&process, &ta));
    if (shared->may_not)
        printf("SKIP real-time priorities are not permitted\n");
    else
        inherited_priority();
    suspension(OWNER, TD_THR_STOPPED_ASLEEP);
    suspension(SPINNER, TD_THR_STOPPED);
    GIVES(TD_OK, td_ta_delete(ta));
    kill(process.pid, SIGKILL);
    waitpid(process.pid, NULL, 0);
    return failures != 0;
}
