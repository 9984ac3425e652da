/*
 * A client that can only look: every ps_ routine that glibc's own library does not call for a look aborts. Every function
 * that looks is called, on a process whose threads this client has stopped, and on a core of it: while the process is
 * where the core has it, after it has moved on, and after it has ended.
 * Usage: looking [DIRECTORY for a core]
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include <elf.h>

#include "target.h"

#include "check.h"
#include "core_file.h"

#include <dirent.h>
#include <link.h>
#include <proc_service.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

struct ps_prochandle {
    pid_t pid;
    struct core_file *core; /* NULL for the process itself */
};

static int refuses_writes; /* where writing is no surprise: on a core it fails */
static int lacks_extra; /* where extra registers are asked for, and there are none */

/* ---- What a look may call ---- */

pid_t ps_getpid(struct ps_prochandle *ph)
{
    return ph->pid;
}

/* The process is our fork, so it has everything where we have it. */
ps_err_e ps_pglobal_lookup(struct ps_prochandle *ph, const char *object, const char *name, psaddr_t *address)
{
    (void)ph, (void)object;
    *address = dlsym(RTLD_DEFAULT, name);
    return *address ? PS_OK : PS_NOSYM;
}

ps_err_e ps_pdread(struct ps_prochandle *ph, psaddr_t address, void *buffer, size_t size)
{
    struct iovec local = { buffer, size }, remote = { address, size };
    if (ph->core)
        return read_core(ph->core, address, buffer, size) ? PS_OK : PS_ERR;
    return process_vm_readv(ph->pid, &local, 1, &remote, 1, 0) == (ssize_t)size ? PS_OK : PS_ERR;
}

static ps_err_e registers(struct ps_prochandle *ph, lwpid_t lwp, int note, int request, void *regs, size_t size)
{
    if (!ph->core)
        return ptrace((enum __ptrace_request)request, lwp, NULL, regs) ? PS_ERR : PS_OK;
    const void *kept = registers_in_core(ph->core, lwp, note);
    return kept && memcpy(regs, kept, size) ? PS_OK : PS_BADLID;
}

ps_err_e ps_lgetregs(struct ps_prochandle *ph, lwpid_t lwp, prgregset_t regs)
{
    return registers(ph, lwp, NT_PRSTATUS, PTRACE_GETREGS, regs, sizeof(prgregset_t));
}

ps_err_e ps_lgetfpregs(struct ps_prochandle *ph, lwpid_t lwp, prfpregset_t *regs)
{
    return registers(ph, lwp, NT_FPREGSET, PTRACE_GETFPREGS, regs, sizeof *regs);
}

ps_err_e ps_get_thread_area(struct ps_prochandle *ph, lwpid_t lwp, int index, psaddr_t *address)
{
    struct user_regs_struct regs;
    if (index != 25 || registers(ph, lwp, NT_PRSTATUS, PTRACE_GETREGS, &regs, sizeof regs))
        return PS_ERR;
    *address = (psaddr_t)regs.fs_base;
    return PS_OK;
}

/* ---- What it may not ---- */

/* Parameters without names: nobody asks for them. */
#define ABORTS_UNLESS(expected, answer, name, ...)                                                           \
    ps_err_e name(struct ps_prochandle *, ##__VA_ARGS__)                                                     \
    {                                                                                                        \
        if (!(expected)) {                                                                                   \
            fprintf(stderr, "a look calls " #name "\n");                                                     \
            abort();                                                                                         \
        }                                                                                                    \
        return answer;                                                                                       \
    }
#define ABORTS(name, ...) ABORTS_UNLESS(0, PS_ERR, name, ##__VA_ARGS__)

ABORTS_UNLESS(refuses_writes, PS_ERR, ps_pdwrite, psaddr_t, const void *, size_t)
ABORTS_UNLESS(lacks_extra, PS_NOXREGS, ps_lgetxregsize, lwpid_t, int *)
ABORTS_UNLESS(lacks_extra, PS_NOXREGS, ps_lgetxregs, lwpid_t, char *)
ABORTS(ps_pdmodel, int *)
ABORTS(ps_lsetregs, lwpid_t, const prgregset_t)
ABORTS(ps_lsetfpregs, lwpid_t, const prfpregset_t *)
ABORTS(ps_lsetxregs, lwpid_t, char *)
ABORTS(ps_lstop, lwpid_t)
ABORTS(ps_lcontinue, lwpid_t)
ABORTS(ps_pread, psaddr_t, void *, size_t)
ABORTS(ps_pwrite, psaddr_t, const void *, size_t)
ABORTS(ps_ptread, psaddr_t, void *, size_t)
ABORTS(ps_ptwrite, psaddr_t, const void *, size_t)
ABORTS(ps_kill, int)
ABORTS(ps_lrolltoaddr, lwpid_t, psaddr_t, psaddr_t)
ABORTS(ps_pglobal_sym, const char *, const char *, ps_sym_t *)
ABORTS(ps_pauxv, const Elf64_auxv_t **)

/* ---- Every look ---- */

/* What is told of threads beyond memory and registers. */
enum known {
    BY_KERNEL,
    BY_CORE,
    BY_EITHER, /* a core that nothing but a write tells from its process, as long as no thread is elsewhere */
};

static td_thragent_t *ta;

static td_thrhandle_t handle(enum role role)
{
    td_thrhandle_t th = { ta, (psaddr_t)shared->of[role].id };
    return th;
}

static int count_thread(const td_thrhandle_t *th, void *arg)
{
    (void)th;
    ++*(int *)arg;
    return 0;
}

static int count_key(thread_key_t key, void (*destructor)(void *), void *arg)
{
    (void)key, (void)destructor;
    ++*(int *)arg;
    return 0;
}

static int look_at_object(const td_synchandle_t *sh, void *arg)
{
    td_syncinfo_t si;
    td_syncstats_t ss;
    td_synchandle_t again;
    int waiters = 0;
    ++*(int *)arg;
    GIVES(TD_OK, td_sync_get_info(sh, &si));
    GIVES(TD_OK, td_sync_get_stats(sh, &ss));
    GIVES(TD_OK, td_sync_waiters(sh, count_thread, &waiters));
    GIVES(TD_OK, td_ta_map_addr2sync(ta, sh->sh_unique, &again));
    return 0;
}

static int count_object(const td_synchandle_t *sh, void *arg)
{
    (void)sh;
    ++*(int *)arg;
    return 0;
}

static int threads_at(int priority)
{
    int count = 0;
    GIVES(TD_OK, td_ta_thr_iter(ta, count_thread, &count, TD_THR_ANY_STATE, priority, NULL, TD_THR_ANY_USER_FLAGS));
    return count;
}

static void check_main_stack(const td_thrinfo_t *ti, enum known known)
{
    const struct truth *truth = &shared->of[MAIN];
    char *sp = (char *)ti->ti_sp, *base = ti->ti_stkbase;
    CHECK(base == truth->stack + truth->stack_size, "base %p", (void *)base);
    /* A core has no limit: the size is that of the mapping. */
    if (known == BY_KERNEL)
        CHECK(ti->ti_stksize == (long)truth->stack_size, "size %ld", ti->ti_stksize);
    CHECK(ti->ti_stksize > 0 && ti->ti_stksize <= (long)truth->stack_size, "size %ld", ti->ti_stksize);
    CHECK(sp < base && sp >= base - ti->ti_stksize, "sp %p, size %ld", (void *)sp, ti->ti_stksize);
}

static void look_at_thread(enum role role, enum known known)
{
    const struct truth *truth = &shared->of[role];
    td_thrhandle_t th = handle(role), found;
    td_thrinfo_t ti;
    td_synchandle_t sh;
    prgregset_t regs;
    prfpregset_t floats;
    char extra[64];
    psaddr_t base;
    void *value;
    Dl_info info;
    struct link_map *map = NULL;
    int size, owned = 0;
    td_event_msg_t message;
    const int has_ended = role == ZOMBIE;
    GIVES(TD_OK, td_thr_get_info(&th, &ti));
    CHECK(ti.ti_tid == truth->id && ti.ti_startfunc == truth->start, "role %d", role);
    CHECK(ti.ti_lid == (has_ended ? -1 : truth->lwp), "role %d: LWP %d", role, ti.ti_lid);
    /* Of a thread that was never asked for its priority libc has no record; these all were. */
    if (!has_ended)
        CHECK(ti.ti_pri == truth->priority, "role %d: priority %d, not %d", role, ti.ti_pri, truth->priority);
    if (role == MAIN)
        check_main_stack(&ti, known);
    if (role == MASKED && known != BY_EITHER)
        CHECK(*(long *)&ti.ti_sigmask == (known == BY_KERNEL ? *(const long *)&truth->mask : 0), "mask %#lx",
              *(long *)&ti.ti_sigmask);
    if (role == FUTEX || role == MASKED || role == OWN_STACK)
        CHECK(ti.ti_state == TD_THR_SLEEP, "role %d: state %d", role, ti.ti_state);
    GIVES(TD_OK, td_thr_validate(&th));
    GIVES(TD_OK, td_ta_map_id2thr(ta, truth->id, &found));
    GIVES(has_ended ? TD_NOTSD : TD_OK, td_thr_tsd(&th, shared->keys[36], &value));
    GIVES(TD_OK, td_thr_tlsbase(&th, 1, &base));
    dladdr1((void *)look_at_thread, &info, (void **)&map, RTLD_DL_LINKMAP);
    GIVES(TD_OK, td_thr_tls_get_addr(&th, map, 0, &base));
    GIVES(TD_OK, td_thr_lockowner(&th, count_object, &owned));
    GIVES(TD_NOMSG, td_thr_event_getmsg(&th, &message));
    if (has_ended)
        return;
    GIVES(TD_OK, td_ta_map_lwp2thr(ta, truth->lwp, &found));
    CHECK(found.th_unique == th.th_unique, "role %d: %p", role, found.th_unique);
    GIVES(TD_OK, td_thr_getgregs(&th, regs));
    GIVES(TD_OK, td_thr_getfpregs(&th, &floats));
    lacks_extra = 1;
    GIVES(TD_NOXREGS, td_thr_getxregsize(&th, &size));
    GIVES(TD_NOXREGS, td_thr_getxregs(&th, extra));
    lacks_extra = 0;
    GIVES(role == FUTEX || role == MASKED || role == REALTIME || role == OWN_STACK ? TD_OK : TD_ERR,
          td_thr_sleepinfo(&th, &sh));
}

static void look(struct ps_prochandle *ph, enum known known)
{
    struct ps_prochandle *same;
    td_notify_t notify;
    td_event_msg_t message;
    td_ta_stats_t stats;
    int count = 0, keys = 0, objects = 0;
    GIVES(TD_OK, td_init());
    GIVES(TD_OK, td_log());
    CHECK(td_symbol_list() != NULL, "no list");
    GIVES(TD_OK, td_ta_new(ph, &ta));
    GIVES(TD_OK, td_ta_get_ph(ta, &same));
    CHECK(same == ph, "another handle");
    GIVES(TD_OK, td_ta_get_nthreads(ta, &count));
    CHECK(count == LIVING, "%d threads", count);
    CHECK(threads_at(TD_THR_LOWEST_PRIORITY) == LIVING, "%d threads", threads_at(TD_THR_LOWEST_PRIORITY));
    /* A thread of which nothing says a priority runs at 0. */
    CHECK(threads_at(0) == LIVING, "%d at priority 0", threads_at(0));
    CHECK(threads_at(1) == (shared->of[REALTIME].priority > 0), "%d at priority 1", threads_at(1));
    CHECK(threads_at(10) == 0, "%d at priority 10", threads_at(10));
    for (int role = 0; role < LIVING; role++)
        look_at_thread(role, known);
    GIVES(TD_OK, td_ta_tsd_iter(ta, count_key, &keys));
    CHECK(keys >= KEYS - 1, "%d keys", keys);
    GIVES(TD_OK, td_ta_sync_iter(ta, look_at_object, &objects));
    CHECK(objects > 0, "no objects");
    GIVES(TD_OK, td_ta_event_addr(ta, TD_CREATE, &notify));
    GIVES(TD_NOMSG, td_ta_event_getmsg(ta, &message));
    td_err_e given = td_ta_get_stats(ta, &stats);
    CHECK(known == BY_EITHER ? given == TD_OK || given == TD_NOCAPAB : given == (known == BY_KERNEL ? TD_OK : TD_NOCAPAB),
          "td_ta_get_stats gives %d", given);
    CHECK(given != TD_OK || stats.nthreads == LIVING, "%d threads", stats.nthreads);
    GIVES(TD_OK, td_ta_delete(ta));
}

/* What acts is refused, be the process ever so like the core. */
static void refuses_to_act(struct ps_prochandle *ph)
{
    td_syncinfo_t si;
    td_synchandle_t sh;
    sigset_t set;
    sigemptyset(&set);
    refuses_writes = 1;
    GIVES(TD_OK, td_ta_new(ph, &ta));
    td_thrhandle_t th = handle(FUTEX);
    GIVES(TD_NOCAPAB, td_thr_setprio(&th, 0));
    GIVES(TD_NOCAPAB, td_thr_sigsetmask(&th, &set));
    GIVES(TD_NOCAPAB, td_thr_setsigpending(&th, 0, &set));
    GIVES(TD_NOCAPAB, td_ta_sync_tracking_enable(ta, 1));
    GIVES(TD_OK, td_thr_sleepinfo(&th, &sh));
    GIVES(TD_OK, td_sync_get_info(&sh, &si));
    CHECK(td_sync_setstate(&sh, 0) != TD_OK, "the state of a lock in a core was changed");
    GIVES(TD_OK, td_ta_delete(ta));
    refuses_writes = 0;
}

/* ---- The process, stopped ---- */

static pid_t stopped[64];
static int stopped_count;

static void stop_all(pid_t pid)
{
    char path[64];
    int status;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        pid_t lwp = atoi(entry->d_name);
        if (lwp <= 0 || stopped_count == 64)
            continue;
        CHECK(!ptrace(PTRACE_SEIZE, lwp, NULL, NULL), "seize %d: %s", lwp, strerror(errno));
        CHECK(!ptrace(PTRACE_INTERRUPT, lwp, NULL, NULL), "interrupt %d: %s", lwp, strerror(errno));
        while (waitpid(lwp, &status, __WALL) < 0 && errno == EINTR)
            ;
        stopped[stopped_count++] = lwp;
    }
    if (dir)
        closedir(dir);
}

static void let_go(void)
{
    while (stopped_count > 0)
        ptrace(PTRACE_DETACH, stopped[--stopped_count], NULL, NULL);
}

int main(int argc, char **argv)
{
    pid_t pid = start_target(NULL);
    struct ps_prochandle process = { pid, NULL };
    stop_all(pid);
    look(&process, BY_KERNEL);
    let_go();
    if (argc < 2) {
        end_target();
        return failures != 0;
    }
    char command[512], path[512];
    snprintf(command, sizeof command, "gcore -o %s/core %d >/dev/null 2>&1", argv[1], pid);
    snprintf(path, sizeof path, "%s/core.%d", argv[1], pid);
    if (system(command) != 0 || access(path, R_OK) != 0) {
        printf("SKIP gcore wrote no core\n");
        end_target();
        return failures != 0;
    }
    struct ps_prochandle core = { pid, open_core(path) };
    look(&core, BY_EITHER);
    refuses_to_act(&core);
    tell_target(LEAVE);
    while (letter_of(pid) != 'Z')
        usleep(200);
    look(&core, BY_CORE);
    refuses_to_act(&core);
    end_target();
    look(&core, BY_CORE);
    refuses_to_act(&core);
    return failures != 0;
}
