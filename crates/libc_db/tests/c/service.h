/*
 * A client's own ps_ routines for a process that is our fork (target.h): memory by process_vm_readv, symbols
 * by our own dlsym, registers by ptrace. Each call is counted, and any of them can be made to fail.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef SERVICE_H
#define SERVICE_H

#include <dlfcn.h>
#include <errno.h>
#include <proc_service.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

struct ps_prochandle {
    pid_t pid, claimed; /* the process, and the id that ps_getpid gives */
};

static struct service {
    long calls;     /* since the last reset */
    long fail_at;   /* this call fails; 0: none */
    int fail_on;    /* and so do all later ones */
    int refuse_writes, no_thread_area;
    int stopped, continued, bad_order; /* ps_pstop and ps_pcontinue that succeeded */
    int lwps_stopped, lwps_continued;
    const char *failed; /* name of the routine that failed last */
} service;

__attribute__((unused)) static void reset_service(long fail_at, int fail_on)
{
    service.calls = 0;
    service.fail_at = fail_at;
    service.fail_on = fail_on;
    service.failed = "";
}

#ifndef BEFORE_CALL
#define BEFORE_CALL(name)
#endif
#ifndef FIND_SYMBOL
#define FIND_SYMBOL(name) dlsym(RTLD_DEFAULT, name)
#endif

static int fails(const char *name)
{
    BEFORE_CALL(name);
    long call = ++service.calls;
    int failing = service.fail_at && (call == service.fail_at || (service.fail_on && call > service.fail_at));
    if (failing)
        service.failed = name;
    return failing;
}

ps_err_e ps_pglobal_lookup(struct ps_prochandle *ph, const char *object, const char *name, psaddr_t *address)
{
    (void)ph;
    if (fails("ps_pglobal_lookup") || !object)
        return PS_ERR;
    *address = FIND_SYMBOL(name);
    return *address ? PS_OK : PS_NOSYM;
}

ps_err_e ps_pdread(struct ps_prochandle *ph, psaddr_t address, void *buffer, size_t size)
{
    if (fails("ps_pdread"))
        return PS_ERR;
    struct iovec local = { buffer, size }, remote = { address, size };
    return process_vm_readv(ph->pid, &local, 1, &remote, 1, 0) == (ssize_t)size ? PS_OK : PS_ERR;
}

ps_err_e ps_pdwrite(struct ps_prochandle *ph, psaddr_t address, const void *buffer, size_t size)
{
    if (fails("ps_pdwrite") || service.refuse_writes)
        return PS_ERR;
    struct iovec local = { (void *)(size_t)buffer, size }, remote = { address, size };
    return process_vm_writev(ph->pid, &local, 1, &remote, 1, 0) == (ssize_t)size ? PS_OK : PS_ERR;
}

/* Stops the LWP, runs a request on it, lets it go on. */
static ps_err_e on_lwp(lwpid_t lwp, int request, void *data)
{
    int status;
    if (ptrace(PTRACE_SEIZE, lwp, NULL, NULL))
        return PS_BADLID;
    if (ptrace(PTRACE_INTERRUPT, lwp, NULL, NULL))
        return PS_ERR;
    while (waitpid(lwp, &status, __WALL) < 0 && errno == EINTR)
        ;
    long rc = ptrace((enum __ptrace_request)request, lwp, NULL, data);
    ptrace(PTRACE_DETACH, lwp, NULL, NULL);
    return rc ? PS_ERR : PS_OK;
}

ps_err_e ps_lgetregs(struct ps_prochandle *ph, lwpid_t lwp, prgregset_t regs)
{
    (void)ph;
    return fails("ps_lgetregs") ? PS_ERR : on_lwp(lwp, PTRACE_GETREGS, regs);
}

ps_err_e ps_lsetregs(struct ps_prochandle *ph, lwpid_t lwp, const prgregset_t regs)
{
    (void)ph;
    return fails("ps_lsetregs") ? PS_ERR : on_lwp(lwp, PTRACE_SETREGS, (void *)(size_t)regs);
}

ps_err_e ps_lgetfpregs(struct ps_prochandle *ph, lwpid_t lwp, prfpregset_t *regs)
{
    (void)ph;
#ifdef NO_FPREGS
    (void)lwp, (void)regs;
    return PS_NOFREGS;
#else
    return fails("ps_lgetfpregs") ? PS_ERR : on_lwp(lwp, PTRACE_GETFPREGS, regs);
#endif
}

ps_err_e ps_lsetfpregs(struct ps_prochandle *ph, lwpid_t lwp, const prfpregset_t *regs)
{
    (void)ph;
#ifdef NO_FPREGS
    (void)lwp, (void)regs;
    return PS_NOFREGS;
#else
    return fails("ps_lsetfpregs") ? PS_ERR : on_lwp(lwp, PTRACE_SETFPREGS, (void *)(size_t)regs);
#endif
}

ps_err_e ps_get_thread_area(struct ps_prochandle *ph, lwpid_t lwp, int index, psaddr_t *address)
{
    struct user_regs_struct regs;
    (void)ph;
    if (fails("ps_get_thread_area") || service.no_thread_area || index != 25)
        return PS_ERR;
    ps_err_e rc = on_lwp(lwp, PTRACE_GETREGS, &regs);
    *address = (psaddr_t)regs.fs_base;
    return rc;
}

pid_t ps_getpid(struct ps_prochandle *ph)
{
    BEFORE_CALL("ps_getpid");
    return ph->claimed;
}

#ifdef WITH_STOP
ps_err_e ps_pstop(struct ps_prochandle *ph)
{
    (void)ph;
    if (fails("ps_pstop"))
        return PS_ERR;
    service.stopped++;
    return PS_OK;
}

ps_err_e ps_pcontinue(struct ps_prochandle *ph)
{
    (void)ph;
    service.continued++;
    service.bad_order += service.continued > service.stopped;
    return PS_OK;
}

ps_err_e ps_lstop(struct ps_prochandle *ph, lwpid_t lwp)
{
    (void)ph, (void)lwp;
    if (fails("ps_lstop"))
        return PS_ERR;
    service.lwps_stopped++;
    return PS_OK;
}

ps_err_e ps_lcontinue(struct ps_prochandle *ph, lwpid_t lwp)
{
    (void)ph, (void)lwp;
    if (fails("ps_lcontinue"))
        return PS_ERR;
    service.lwps_continued++;
    return PS_OK;
}
#endif

#ifdef WITH_XREGS
/* Registers beyond the usual ones: any bytes will do. */
static char extra_registers[64] = "extra";

ps_err_e ps_lgetxregsize(struct ps_prochandle *ph, lwpid_t lwp, int *size)
{
    (void)ph, (void)lwp;
    if (fails("ps_lgetxregsize"))
        return PS_ERR;
    *size = sizeof extra_registers;
    return PS_OK;
}

ps_err_e ps_lgetxregs(struct ps_prochandle *ph, lwpid_t lwp, char *xregs)
{
    (void)ph, (void)lwp;
    if (fails("ps_lgetxregs"))
        return PS_ERR;
    memcpy(xregs, extra_registers, sizeof extra_registers);
    return PS_OK;
}

ps_err_e ps_lsetxregs(struct ps_prochandle *ph, lwpid_t lwp, char *xregs)
{
    (void)ph, (void)lwp;
    if (fails("ps_lsetxregs"))
        return PS_ERR;
    memcpy(extra_registers, xregs, sizeof extra_registers);
    return PS_OK;
}
#endif

#endif
