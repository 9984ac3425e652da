/* Walks all threads of a process through a thread_db library and prints how long each walk took.
 *
 *   walk_threads PID LIBRARY WALKS
 *
 * The routines a debugger would provide are as cheap as can be: one system call to read memory, and symbol
 * addresses from this program's own libc, moved to where the target has it (both run on the same file). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <proc_service.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <thread_db.h>
#include <time.h>

struct ps_prochandle {
    pid_t pid;
    unsigned long libc, ld; /* where the target has them */
};

static unsigned long base_of(pid_t pid, const char *name) {
    char line[512];
    unsigned long base = 0;
    snprintf(line, sizeof line, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(line, "r");
    while (maps && !base && fgets(line, sizeof line, maps))
        if (strstr(line, name))
            base = strtoul(line, NULL, 16);
    if (maps)
        fclose(maps);
    return base;
}

ps_err_e ps_pdread(struct ps_prochandle *ph, psaddr_t at, void *to, size_t size) {
    struct iovec here = {to, size}, there = {at, size};
    return process_vm_readv(ph->pid, &here, 1, &there, 1, 0) == (ssize_t)size ? PS_OK : PS_ERR;
}

ps_err_e ps_pdwrite(struct ps_prochandle *ph, psaddr_t at, const void *from, size_t size) {
    struct iovec here = {(void *)from, size}, there = {at, size};
    return process_vm_writev(ph->pid, &here, 1, &there, 1, 0) == (ssize_t)size ? PS_OK : PS_ERR;
}

ps_err_e ps_pglobal_lookup(struct ps_prochandle *ph, const char *object, const char *name, psaddr_t *at) {
    Dl_info info;
    char *here = dlvsym(RTLD_DEFAULT, name, "GLIBC_PRIVATE");
    (void)object;
    if (!here || !dladdr(here, &info))
        return PS_NOSYM;
    unsigned long base = strstr(info.dli_fname, "libc.so") ? ph->libc : ph->ld;
    *at = (psaddr_t)(base + (unsigned long)(here - (char *)info.dli_fbase));
    return PS_OK;
}

pid_t ps_getpid(struct ps_prochandle *ph) { return ph->pid; }

#define NOT_OFFERED(name, type) \
    ps_err_e name(struct ps_prochandle *ph, lwpid_t lwp, type regs) { \
        (void)ph, (void)lwp, (void)regs; \
        return PS_ERR; \
    }
NOT_OFFERED(ps_lgetregs, prgregset_t)
NOT_OFFERED(ps_lsetregs, const prgregset_t)
NOT_OFFERED(ps_lgetfpregs, prfpregset_t *)
NOT_OFFERED(ps_lsetfpregs, const prfpregset_t *)

ps_err_e ps_get_thread_area(struct ps_prochandle *ph, lwpid_t lwp, int index, psaddr_t *at) {
    (void)ph, (void)lwp, (void)index, (void)at;
    return PS_ERR;
}

static td_err_e (*get_info)(const td_thrhandle_t *, td_thrinfo_t *);

static int count(const td_thrhandle_t *th, void *data) {
    td_thrinfo_t info;
    *(int *)data += get_info(th, &info) == TD_OK;
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    struct ps_prochandle ph = {.pid = atoi(argv[1])};
    ph.libc = base_of(ph.pid, "/libc.so.6");
    ph.ld = base_of(ph.pid, "/ld-linux");
    void *library = dlopen(argv[2], RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    td_err_e (*new_agent)(struct ps_prochandle *, td_thragent_t **) = dlsym(library, "td_ta_new");
    td_err_e (*iterate)(const td_thragent_t *, td_thr_iter_f *, void *, td_thr_state_e, int, sigset_t *, unsigned) =
        dlsym(library, "td_ta_thr_iter");
    get_info = dlsym(library, "td_thr_get_info");
    td_thragent_t *agent;
    if (new_agent(&ph, &agent) != TD_OK)
        return 2;
    for (int walk = atoi(argv[3]); walk > 0; walk--) {
        struct timespec before, after, cpu, cpu_after;
        int threads = 0;
        clock_gettime(CLOCK_MONOTONIC, &before);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
        if (iterate(agent, count, &threads, TD_THR_ANY_STATE, TD_THR_LOWEST_PRIORITY, TD_SIGNO_MASK,
                    TD_THR_ANY_USER_FLAGS) != TD_OK)
            return 2;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_after);
        clock_gettime(CLOCK_MONOTONIC, &after);
        printf("%d %.4f %.4f\n", threads, (after.tv_sec - before.tv_sec) * 1e3 + (after.tv_nsec - before.tv_nsec) / 1e6,
               (cpu_after.tv_sec - cpu.tv_sec) * 1e3 + (cpu_after.tv_nsec - cpu.tv_nsec) / 1e6);
    }
    return 0;
}
