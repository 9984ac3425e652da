/*
 * A small debugger's ps_ routines for another process that uses the same libc as we do: its threads are
 * stopped by ptrace all the time, memory comes by process_vm_readv, symbols from our own libc.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef DEBUGGER_H
#define DEBUGGER_H

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <proc_service.h>
#include <pthread.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

struct ps_prochandle {
    pid_t pid;
    int blind;          /* as with a core of another process that had this pid: it cannot be written either */
    char *random;       /* where the kernel put random bytes at the start of the process */
    char *ours, *theirs; /* where libc is loaded */
    pthread_t caller;   /* the one thread that may call us */
    pid_t lwps[512];
    int count;
};

static struct ps_prochandle debugged;

/* Calls so far, and which of them fails (0: none), with all later ones if `fail_on`. */
static long calls, fail_at;
static int fail_on;

/* Counts a call. Non-zero: it is to fail. */
static int fails(struct ps_prochandle *ph)
{
    if (!pthread_equal(ph->caller, pthread_self())) {
        fprintf(stderr, "a ps_ routine was called on another thread\n");
        abort();
    }
    calls++;
    return fail_at && (calls == fail_at || (fail_on && calls > fail_at));
}

ps_err_e ps_pglobal_lookup(struct ps_prochandle *ph, const char *object, const char *name, psaddr_t *address)
{
    (void)object;
    if (fails(ph))
        return PS_ERR;
    char *found = dlsym(RTLD_DEFAULT, name);
    Dl_info info;
    if (!found || !dladdr(found, &info) || info.dli_fbase != ph->ours)
        return PS_NOSYM;
    *address = found - ph->ours + ph->theirs;
    return PS_OK;
}

ps_err_e ps_pdread(struct ps_prochandle *ph, psaddr_t address, void *buffer, size_t size)
{
    struct iovec local = { buffer, size }, remote = { address, size };
    if (fails(ph) || process_vm_readv(ph->pid, &local, 1, &remote, 1, 0) != (ssize_t)size)
        return PS_ERR;
    size_t at = (size_t)(ph->random - (char *)address);
    if (ph->blind && at < size)
        ((char *)buffer)[at] ^= 1;
    return PS_OK;
}

ps_err_e ps_pdwrite(struct ps_prochandle *ph, psaddr_t address, const void *buffer, size_t size)
{
    struct iovec local = { (void *)(size_t)buffer, size }, remote = { address, size };
    if (fails(ph) || ph->blind)
        return PS_ERR;
    return process_vm_writev(ph->pid, &local, 1, &remote, 1, 0) == (ssize_t)size ? PS_OK : PS_ERR;
}

ps_err_e ps_lgetregs(struct ps_prochandle *ph, lwpid_t lwp, prgregset_t regs)
{
    return fails(ph) || ptrace(PTRACE_GETREGS, lwp, NULL, regs) ? PS_ERR : PS_OK;
}

ps_err_e ps_lsetregs(struct ps_prochandle *ph, lwpid_t lwp, const prgregset_t regs)
{
    return fails(ph) || ptrace(PTRACE_SETREGS, lwp, NULL, (void *)(size_t)regs) ? PS_ERR : PS_OK;
}

ps_err_e ps_lgetfpregs(struct ps_prochandle *ph, lwpid_t lwp, prfpregset_t *regs)
{
    return fails(ph) || ptrace(PTRACE_GETFPREGS, lwp, NULL, regs) ? PS_ERR : PS_OK;
}

ps_err_e ps_lsetfpregs(struct ps_prochandle *ph, lwpid_t lwp, const prfpregset_t *regs)
{
    return fails(ph) || ptrace(PTRACE_SETFPREGS, lwp, NULL, (void *)(size_t)regs) ? PS_ERR : PS_OK;
}

ps_err_e ps_get_thread_area(struct ps_prochandle *ph, lwpid_t lwp, int index, psaddr_t *address)
{
    struct user_regs_struct regs;
    if (fails(ph) || index != 25 || ptrace(PTRACE_GETREGS, lwp, NULL, &regs))
        return PS_ERR;
    *address = (psaddr_t)regs.fs_base;
    return PS_OK;
}

pid_t ps_getpid(struct ps_prochandle *ph)
{
    return ph->pid;
}

#ifdef WITH_LSTOP
/* Threads run, and are stopped one by one when we are asked to. */
static int lwps_stopped, lwps_continued;

ps_err_e ps_lstop(struct ps_prochandle *ph, lwpid_t lwp)
{
    int status;
    if (fails(ph) || ptrace(PTRACE_SEIZE, lwp, NULL, NULL))
        return PS_BADLID;
    if (ptrace(PTRACE_INTERRUPT, lwp, NULL, NULL))
        return PS_ERR;
    while (waitpid(lwp, &status, __WALL) < 0 && errno == EINTR)
        ;
    lwps_stopped++;
    return PS_OK;
}

ps_err_e ps_lcontinue(struct ps_prochandle *ph, lwpid_t lwp)
{
    if (fails(ph) || ptrace(PTRACE_DETACH, lwp, NULL, NULL))
        return PS_BADLID;
    lwps_continued++;
    return PS_OK;
}
#endif

static char *libc_base(pid_t pid, const char *name)
{
    char path[64], line[512];
    unsigned long start = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, name)) {
            sscanf(line, "%lx", &start);
            break;
        }
    if (maps)
        fclose(maps);
    return (char *)start;
}

static char *random_of(pid_t pid)
{
    char path[64];
    unsigned long pair[2] = { 1, 0 };
    snprintf(path, sizeof path, "/proc/%d/auxv", pid);
    FILE *file = fopen(path, "r");
    while (file && pair[0] != AT_RANDOM && pair[0] && fread(pair, sizeof pair, 1, file) == 1)
        ;
    if (file)
        fclose(file);
    return pair[0] == AT_RANDOM ? (char *)pair[1] : NULL;
}

/* Stops every thread of a process. */
static struct ps_prochandle *debug(pid_t pid, int blind)
{
    struct ps_prochandle *ph = &debugged;
    char path[64];
    Dl_info info;
    int status;

    dladdr(dlsym(RTLD_DEFAULT, "printf"), &info);
    const char *name = strrchr(info.dli_fname, '/');
    *ph = (struct ps_prochandle){ .pid = pid, .blind = blind, .ours = info.dli_fbase, .caller = pthread_self() };
    ph->theirs = libc_base(pid, name);
    ph->random = random_of(pid);
    CHECK(ph->theirs, "no %s in process %d", name, pid);
#ifdef WITH_LSTOP
    (void)path, (void)status;
    return ph;
#else
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    for (struct dirent *entry; (entry = readdir(dir));) {
        pid_t lwp = atoi(entry->d_name);
        if (lwp <= 0 || ph->count == 512)
            continue;
        CHECK(!ptrace(PTRACE_SEIZE, lwp, NULL, NULL), "seize %d: %s", lwp, strerror(errno));
        CHECK(!ptrace(PTRACE_INTERRUPT, lwp, NULL, NULL), "interrupt %d: %s", lwp, strerror(errno));
        while (waitpid(lwp, &status, __WALL) < 0 && errno == EINTR)
            ;
        ph->lwps[ph->count++] = lwp;
    }
    closedir(dir);
    return ph;
#endif
}

__attribute__((unused)) static void let_go(void)
{
    for (int i = 0; i < debugged.count; i++)
        ptrace(PTRACE_DETACH, debugged.lwps[i], NULL, NULL);
}

#endif
