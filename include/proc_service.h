/*
 * proc_service.h - what a debugger gives to libc_db
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The library reads memory and registers of the inspected process only through the program that loaded
 * it, the client, which defines the ps_ routines declared here and exports them (an executable that
 * links libc_db does; another is linked with -rdynamic). The library calls them with the process handle
 * that was given to td_ta_new().
 *
 *   required  The library calls these. They are the routines that gdb and gdbserver export.
 *   optional  A client that lacks one still works; the comment says what is lost. (All are weak references,
 *             bound when the library is loaded.)
 *   unused    Part of the Solaris interface and declared so that clients written for it compile. The
 *             library never calls them.
 *
 * A client that uses only the ready-made handles of <thread_db.h> (tg_attach_pid, tg_open_core) defines
 * none of them.
 *
 * The routines are called only from inside a td_ call and only on the thread that made this call. They
 * may report an error by throwing a C++ exception: it passes through the library unharmed.
 *
 * This file stands in for the <proc_service.h> of glibc and uses its include guard, so including both is
 * harmless: the first one counts. Types and numbers are glibc's; what only Solaris has is added.
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

/* What a ps_ routine answers. */
typedef enum {
    PS_OK = 0,      /* done */
    PS_ERR = 1,     /* failed for a reason that has no code of its own */
    PS_BADPID = 2,  /* the process handle is not valid */
    PS_BADLID = 3,  /* the process has no such LWP */
    PS_BADADDR = 4, /* the address range is not all accessible */
    PS_NOSYM = 5,   /* there is no such symbol */
    PS_NOFREGS = 6, /* this LWP has no floating-point registers to show */
    PS_NOXREGS = 7  /* this LWP has no extra registers to show (illumos; not in glibc's header) */
} ps_err_e;

/* The client's description of one process or core file. Only the client knows what is inside. */
struct ps_prochandle;

/*
 * Object names with a special meaning on Solaris. This library never passes them: the object name it
 * gives is always a real string.
 */
#ifndef PS_OBJ_EXEC
#define PS_OBJ_EXEC ((const char *)0) /* the executable */
#define PS_OBJ_LDSO ((const char *)1) /* the dynamic linker */
#endif

/* ---- Symbols --------------------------------------------------------------------------------------- */

/*
 * Required. Store the run-time address of the symbol in *sym_addr. The object name is a hint ("libc.so.6",
 * "libpthread.so.0"): a client may search all objects. Answer PS_NOSYM if no object has the symbol.
 */
extern ps_err_e ps_pglobal_lookup(struct ps_prochandle *ph, const char *object_name,
                                  const char *sym_name, psaddr_t *sym_addr);

/* ---- Memory ---------------------------------------------------------------------------------------- */

/*
 * Required. Copy size bytes from or to the memory of the process, all or nothing: any answer but PS_OK
 * means that the bytes are not to be used, and the td_ call ends with TD_DBERR.
 */
extern ps_err_e ps_pdread(struct ps_prochandle *ph, psaddr_t addr, void *buf, size_t size);
/* Required. On a core file answer PS_ERR; the library also takes this as the sign that it is one. */
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
 * thread pointer (fs_base) from here if the client has no ps_get_thread_area() or that fails, as with cores.
 */
extern ps_err_e ps_lgetregs(struct ps_prochandle *ph, lwpid_t lid, prgregset_t gregs);
/* Required; needed by td_thr_setgregs() only, so a client may answer PS_ERR. */
extern ps_err_e ps_lsetregs(struct ps_prochandle *ph, lwpid_t lid, const prgregset_t gregs);

/* Required; needed by td_thr_getfpregs() and td_thr_setfpregs() only. PS_NOFREGS becomes TD_NOFPREGS. */
extern ps_err_e ps_lgetfpregs(struct ps_prochandle *ph, lwpid_t lid, prfpregset_t *fpregs);
extern ps_err_e ps_lsetfpregs(struct ps_prochandle *ph, lwpid_t lid, const prfpregset_t *fpregs);

/*
 * Optional. Size in bytes, and contents, of the extra registers: on x86-64 the XSAVE area as PTRACE_GETREGSET
 * gives it for NT_X86_XSTATE. Without these, or if they answer PS_NOXREGS, the td_ calls give TD_NOXREGS.
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
 * Required. The process id as the client's system knows it, also for a core (then the id the process had).
 * Facts that ps_ routines cannot give are read from /proc under this id, but only after it is proven to
 * be the same live process. Linux only.
 */
extern pid_t ps_getpid(struct ps_prochandle *ph);

/*
 * Optional. Stop every LWP of the process; let the process go on if this client's stop was what held it.
 * If the client has both, the library brackets with them a call that must see several words unchanged; the
 * pairs may nest, and a failing ps_pstop() is TD_DBERR. Without them nothing is stopped.
 */
extern ps_err_e ps_pstop(struct ps_prochandle *ph);
extern ps_err_e ps_pcontinue(struct ps_prochandle *ph);

/*
 * Optional. Stop one LWP and keep it stopped; let it go on. Used by td_thr_dbsuspend(), td_thr_dbresume()
 * and to wake waiters in td_sync_setstate(). Without them the library does it itself where nobody
 * traces the process, else those calls give TD_NOCAPAB.
 */
extern ps_err_e ps_lstop(struct ps_prochandle *ph, lwpid_t lid);
extern ps_err_e ps_lcontinue(struct ps_prochandle *ph, lwpid_t lid);

/*
 * Optional. Data model of the process: 1 for ILP32, 2 for LP64 (PR_MODEL_ILP32 and PR_MODEL_LP64 on
 * Solaris). td_ta_new() gives TD_ERR if it fails and TD_VERSION if it answers anything but LP64.
 */
extern ps_err_e ps_pdmodel(struct ps_prochandle *ph, int *data_model);

/*
 * Unused: send a signal to the process; run an LWP from one address to another. On illumos a client that
 * defines both has tracking of synchronization objects switched on by td_ta_new(); here nothing is
 * switched on before td_ta_sync_tracking_enable() asks for it.
 */
extern ps_err_e ps_kill(struct ps_prochandle *ph, int sig);
extern ps_err_e ps_lrolltoaddr(struct ps_prochandle *ph, lwpid_t lid, psaddr_t go_addr,
                               psaddr_t stop_addr);

/* Optional: a line for the client's log. Used to say why tracking of synchronization objects gives TD_NOCAPAB. */
extern void ps_plog(const char *fmt, ...);

/*
 * Unused, and declared only if <elf.h> came first, because that header's many macros are no business of a
 * program that includes this one: the symbol table entry of a symbol, and the auxiliary vector.
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
