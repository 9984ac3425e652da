/*
 * proc_service.h - the routines that a debugger supplies to libc_db
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The library reads memory and registers of the inspected process only through the client, the program
 * that loaded it. The client defines the ps_ routines declared here and exports them (an executable that
 * links libc_db does so; others must be linked with -rdynamic). The library calls the routines with the
 * process handle that the client gave to td_ta_new().
 *
 *   required  The library calls these. They are the routines that gdb and gdbserver export.
 *   optional  The library works without these; the comment says what is lost. (All are weak references,
 *             bound when the library is loaded.)
 *   unused    The library never calls these. They are part of the Solaris interface and declared so that
 *             clients written for it compile.
 *
 * A client that uses only the ready-made handles of <thread_db.h> (tg_attach_pid, tg_open_core) defines
 * none of them.
 *
 * The library calls the routines only inside a td_ call, and only on the thread that made this call. They
 * may report an error by throwing a C++ exception, which passes through the library unharmed.
 *
 * This file replaces the <proc_service.h> of glibc and uses its include guard, so including both is
 * harmless: the first one counts. Types and numbers are glibc's; names that only Solaris has are added.
 */
#ifndef _PROC_SERVICE_H
#define _PROC_SERVICE_H 1

/* psaddr_t (void *), lwpid_t (pid_t), prgregset_t (27 words of 8 bytes), prfpregset_t (512 bytes). */
#include <sys/procfs.h>
#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Result of a ps_ routine. */
typedef enum {
    PS_OK = 0,      /* done */
    PS_ERR = 1,     /* failed for another reason */
    PS_BADPID = 2,  /* the process handle is not valid */
    PS_BADLID = 3,  /* the process has no such LWP */
    PS_BADADDR = 4, /* part of the address range is not accessible */
    PS_NOSYM = 5,   /* there is no such symbol */
    PS_NOFREGS = 6, /* this LWP has no floating-point registers to show */
    PS_NOXREGS = 7  /* this LWP has no extra registers to show (illumos; not in glibc's header) */
} ps_err_e;

/* One process or core file of the client. Only the client knows what is in it. */
struct ps_prochandle;

/*
 * Object names with a special meaning on Solaris. This library never passes them: its object names are
 * always real strings.
 */
#ifndef PS_OBJ_EXEC
#define PS_OBJ_EXEC ((const char *)0) /* the executable */
#define PS_OBJ_LDSO ((const char *)1) /* the dynamic linker */
#endif

/* ---- Symbols --------------------------------------------------------------------------------------- */

/*
 * Required. Store the run-time address of the symbol in *sym_addr. The object name is a hint ("libc.so.6",
 * "libpthread.so.0"): a client may search all objects. Return PS_NOSYM if no object has the symbol.
 */
extern ps_err_e ps_pglobal_lookup(struct ps_prochandle *ph, const char *object_name,
                                  const char *sym_name, psaddr_t *sym_addr);

/* ---- Memory ---------------------------------------------------------------------------------------- */

/*
 * Required. Copy size bytes from or to the memory of the process, all or nothing. If the result is not
 * PS_OK, the library does not use the bytes, and the td_ call returns TD_DBERR.
 */
extern ps_err_e ps_pdread(struct ps_prochandle *ph, psaddr_t addr, void *buf, size_t size);
/*
 * Required by td_ calls that change something. On a core file return PS_ERR: the library acts on the process only if it can
 * be written to. A look calls it never.
 */
extern ps_err_e ps_pdwrite(struct ps_prochandle *ph, psaddr_t addr, const void *buf, size_t size);

/* Unused: the newer Solaris names of the two above. */
extern ps_err_e ps_pread(struct ps_prochandle *ph, psaddr_t addr, void *buf, size_t size);
extern ps_err_e ps_pwrite(struct ps_prochandle *ph, psaddr_t addr, const void *buf, size_t size);

/* Unused: the same for the text of the process. */
extern ps_err_e ps_ptread(struct ps_prochandle *ph, psaddr_t addr, void *buf, size_t size);
extern ps_err_e ps_ptwrite(struct ps_prochandle *ph, psaddr_t addr, const void *buf, size_t size);

/* ---- Registers of one LWP -------------------------------------------------------------------------- */

/*
 * Required. The general registers, in the order of struct user_regs_struct. The library also takes the
 * thread pointer (fs_base) from here if ps_get_thread_area() is missing or fails, as with core files, and compares
 * them with /proc to prove that the process is the same (see ps_getpid()). Of a thread that its tracer lets run, the
 * registers are not asked for.
 */
extern ps_err_e ps_lgetregs(struct ps_prochandle *ph, lwpid_t lid, prgregset_t gregs);
/* Required; used by td_thr_setgregs() only, so a client may return PS_ERR. */
extern ps_err_e ps_lsetregs(struct ps_prochandle *ph, lwpid_t lid, const prgregset_t gregs);

/* Required; used by td_thr_getfpregs() and td_thr_setfpregs() only. PS_NOFREGS becomes TD_NOFPREGS. */
extern ps_err_e ps_lgetfpregs(struct ps_prochandle *ph, lwpid_t lid, prfpregset_t *fpregs);
extern ps_err_e ps_lsetfpregs(struct ps_prochandle *ph, lwpid_t lid, const prfpregset_t *fpregs);

/*
 * Optional. Size in bytes, and contents, of the extra registers: on x86-64 the XSAVE area as PTRACE_GETREGSET
 * gives it for NT_X86_XSTATE. Without these, or if they return PS_NOXREGS, the td_ calls give TD_NOXREGS.
 */
extern ps_err_e ps_lgetxregsize(struct ps_prochandle *ph, lwpid_t lid, int *size);
extern ps_err_e ps_lgetxregs(struct ps_prochandle *ph, lwpid_t lid, char *xregs);
extern ps_err_e ps_lsetxregs(struct ps_prochandle *ph, lwpid_t lid, char *xregs);

/*
 * Optional, because some clients lack it (gdb has it). Store the base address of a segment register of the
 * LWP: index 25 is FS, the thread pointer; 26 is GS. Linux only.
 */
extern ps_err_e ps_get_thread_area(struct ps_prochandle *ph, lwpid_t lid, int index, psaddr_t *addr);

/* ---- The process ----------------------------------------------------------------------------------- */

/*
 * Required. The process id as the client's system knows it; for a core file, the id that the process had.
 * The library reads facts that ps_ routines cannot give from /proc under this id, but only after it has
 * proven that this is the same running process. Linux only.
 */
extern pid_t ps_getpid(struct ps_prochandle *ph);

/*
 * Optional. Stop every LWP of the process; let the process go on if this client had stopped it. If the client
 * has both, the library calls them around a call that must see several words unchanged. What the kernel says of threads
 * is told as it was before the stop. The pairs may nest,
 * and a failing ps_pstop() gives TD_DBERR. Without them nothing is stopped.
 */
extern ps_err_e ps_pstop(struct ps_prochandle *ph);
extern ps_err_e ps_pcontinue(struct ps_prochandle *ph);

/*
 * Optional. Stop one LWP and keep it stopped; let it go on. Used by td_thr_dbsuspend(), td_thr_dbresume()
 * and to wake waiters in td_sync_setstate(). Without them the library stops threads itself if nobody
 * traces the process; otherwise those calls give TD_NOCAPAB.
 */
extern ps_err_e ps_lstop(struct ps_prochandle *ph, lwpid_t lid);
extern ps_err_e ps_lcontinue(struct ps_prochandle *ph, lwpid_t lid);

/*
 * Unused: the data model of the process, 1 for ILP32, 2 for LP64 (PR_MODEL_ILP32 and PR_MODEL_LP64 on Solaris). Some
 * clients have a stub that aborts.
 */
extern ps_err_e ps_pdmodel(struct ps_prochandle *ph, int *data_model);

/*
 * Unused: send a signal to the process; run an LWP from one address to another. On illumos, td_ta_new()
 * switches tracking of synchronization objects on if the client defines both. Here only
 * td_ta_sync_tracking_enable() does.
 */
extern ps_err_e ps_kill(struct ps_prochandle *ph, int sig);
extern ps_err_e ps_lrolltoaddr(struct ps_prochandle *ph, lwpid_t lid, psaddr_t go_addr,
                               psaddr_t stop_addr);

/* Optional: a line for the client's log. Used to say why tracking of synchronization objects gives TD_NOCAPAB. */
extern void ps_plog(const char *fmt, ...);

/*
 * Unused: the symbol table entry of a symbol, and the auxiliary vector. Declared only if <elf.h> was
 * included before, because this header must not force the many macros of <elf.h> on a program.
 */
#ifdef _ELF_H
typedef Elf64_Sym ps_sym_t;
extern ps_err_e ps_pglobal_sym(struct ps_prochandle *ph, const char *object_name,
                               const char *sym_name, ps_sym_t *sym);
extern ps_err_e ps_pauxv(struct ps_prochandle *ph, const Elf64_auxv_t **auxv);
#endif

#ifdef __cplusplus
}
#endif

#endif /* _PROC_SERVICE_H */
