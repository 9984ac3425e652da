//! The first code of ours in a program that runs: machine code that is copied there. It makes a proper thread, which
//! loads the agent and goes on in it.
//!
//! It is position independent and finds everything in a [`Mail`]. Two threads run it, in turn. The first has no
//! descriptor of the C library's own, only zeros and a few fields; it calls `pthread_create`, and then what a thread
//! calls at its end: an allocator may have noted that this thread exists. The second is a thread like any other.

use core::arch::global_asm;
use core::mem::offset_of;
use table::control::{KEYS, Mail, go, step};

/// Code that finds members of the [`Mail`] and steps by their names.
macro_rules! stub {
    (members: $($member:ident)*; steps: $($step:ident)*; $($line:literal,)*) => {
        global_asm!(
            $($line,)*
            $($member = const offset_of!(Mail, $member),)*
            $($step = const step::$step,)*
            KEYS = const KEYS,
            ON = const go::ON,
        );
    };
}

stub! {
    members: region region_size code code_size syscall_ret raw_tid state error go file create attr_init set_stack_size
        set_detach_state open open_mode symbol attach mask nap naps thread attributes path name file_name end_objects
        keys values payload payload_size;
    steps: RAW REAL FILE LOADING NO_THREAD NO_FILE NOT_LOADED ABANDONED;

    ".pushsection .rodata.threadglass_stub, \"a\"",
    ".balign 16",
    ".globl threadglass_stub_begin",
    ".hidden threadglass_stub_begin",
    "threadglass_stub_begin:",
    // --- the raw thread: rbx is the mail, all memory is still read-only. It comes from a system call of the C library's,
    // by the return behind that, as does the thread that was stopped. That one must not come here: whoever is served
    // may have given this memory back before it wakes.
    "mov rdi, [rbx + {region}]",
    "mov rsi, [rbx + {region_size}]",
    "mov edx, 3",
    "mov eax, 10", // mprotect
    "syscall",
    "test eax, eax",
    "jnz 19f",
    "mov eax, 186", // gettid
    "syscall",
    "mov rdx, [rbx + {raw_tid}]",
    "mov [rdx], eax",
    "mov dword ptr [rbx + {state}], {RAW}",
    "mov r12d, 0x80000",
    "11:",
    "lea rdi, [rbx + {attributes}]",
    "call [rbx + {attr_init}]",
    "lea rdi, [rbx + {attributes}]",
    "mov rsi, r12",
    "call [rbx + {set_stack_size}]",
    "lea rdi, [rbx + {attributes}]",
    "mov esi, 1",
    "call [rbx + {set_detach_state}]",
    "lea rdi, [rbx + {thread}]",
    "lea rsi, [rbx + {attributes}]",
    "lea rdx, [rip + 20f]",
    "mov rcx, rbx",
    "call [rbx + {create}]",
    "test eax, eax",
    "jz 18f",
    "mov [rbx + {error}], eax",
    // So much thread-local data that the stack is too small: once more with a large one.
    "cmp r12, 0x800000",
    "mov r12d, 0x800000",
    "jne 11b",
    "mov dword ptr [rbx + {state}], {NO_THREAD}",
    "call 40f",
    "call 50f",
    "mov rdi, [rbx + {region}]",
    "mov rsi, [rbx + {region_size}]",
    "mov eax, 11", // munmap: the stack goes with it
    "syscall",
    "jmp 19f",
    "18:",
    "call 50f",
    "19:",
    "xor edi, edi",
    "mov eax, 60", // exit
    "syscall",
    "ud2",
    // --- the real thread: rdi is the mail
    "20:",
    "push rbx",
    "mov rbx, rdi",
    // All signals are blocked, those of the C library itself too, for which others may wait.
    "mov edi, 2",
    "lea rsi, [rbx + {mask}]",
    "xor edx, edx",
    "mov r10d, 8",
    "mov eax, 14", // rt_sigprocmask
    "syscall",
    "mov dword ptr [rbx + {state}], {REAL}",
    "mov rax, [rbx + {attach}]",
    "test rax, rax",
    "jnz 29f",
    // A table of descriptors of its own, with nothing in it: no other thread can put a file of the program's in the place
    // of ours, and no child inherits ours. Kernels before 5.9 cannot.
    "xor edi, edi",
    "mov esi, -1",
    "mov edx, 2",
    "mov eax, 436", // close_range
    "syscall",
    "lea rdi, [rbx + {file_name}]",
    "mov esi, 0x11", // close-on-exec, may be executed
    "mov eax, 319",  // memfd_create
    "syscall",
    "test eax, eax",
    "jns 21f",
    "lea rdi, [rbx + {file_name}]",
    "mov esi, 1", // kernels before 6.3
    "mov eax, 319",
    "syscall",
    "test eax, eax",
    "jns 21f",
    "mov ecx, {NO_FILE}",
    "jmp 30f",
    "21:",
    "mov [rbx + {file}], eax",
    "mov dword ptr [rbx + {state}], {FILE}",
    "call 40f",
    "xor eax, eax",
    "mov ecx, {ABANDONED}",
    "cmp dword ptr [rbx + {go}], {ON}",
    "jne 28f",
    "mov dword ptr [rbx + {go}], 0",
    "call 60f",
    "test eax, eax",
    "mov eax, 0",
    "mov ecx, {ABANDONED}",
    "jnz 28f",
    "mov dword ptr [rbx + {state}], {LOADING}",
    "lea rdi, [rbx + {path}]",
    "mov rsi, [rbx + {open_mode}]",
    "call [rbx + {open}]",
    "mov ecx, {NOT_LOADED}",
    "test rax, rax",
    "jz 28f",
    "mov rdi, rax",
    "lea rsi, [rbx + {name}]",
    "call [rbx + {symbol}]",
    "mov ecx, {NOT_LOADED}",
    "test rax, rax",
    "jz 28f",
    "mov [rbx + {attach}], rax",
    "28:",
    "push rax",
    "push rcx",
    "mov edi, [rbx + {file}]",
    "mov eax, 3", // close
    "syscall",
    "pop rcx",
    "pop rax",
    "test rax, rax",
    "jz 30f",
    "29:",
    "mov rdi, rbx",
    "pop rbx",
    "jmp rax",
    // --- it failed: told, waited until that is read, cleaned up
    "30:",
    "mov [rbx + {error}], eax",
    "mov [rbx + {state}], ecx",
    "call 40f",
    "mov rdx, [rbx + {raw_tid}]",
    // The raw thread must have ended before its stack goes.
    "31:",
    "cmp dword ptr [rdx], 0",
    "je 32f",
    "push rdx",
    "lea rdi, [rbx + {nap}]",
    "xor esi, esi",
    "mov eax, 35", // nanosleep
    "syscall",
    "pop rdx",
    "jmp 31b",
    "32:",
    // All of it at once, this code too, by a call from the C library, which returns to where this thread came from.
    "mov rdi, [rbx + {code}]",
    "mov rsi, [rbx + {code_size}]",
    "add rsi, [rbx + {region_size}]",
    "mov rdx, [rbx + {syscall_ret}]",
    "pop rbx",
    "mov eax, 11",
    "jmp rdx",
    // --- waits until it is told to go on, for a time
    "40:",
    "push r12",
    "mov r12, [rbx + {naps}]",
    "41:",
    "cmp dword ptr [rbx + {go}], 0",
    "jne 42f",
    "lea rdi, [rbx + {nap}]",
    "xor esi, esi",
    "mov eax, 35",
    "syscall",
    "dec r12",
    "jnz 41b",
    "42:",
    "pop r12",
    "ret",
    // --- fills the file; eax is 0 if all of it is there
    "60:",
    "push r12",
    "push r13",
    "mov r12, [rbx + {payload}]",
    "mov r13, [rbx + {payload_size}]",
    "61:",
    "mov edi, [rbx + {file}]",
    "mov rsi, r12",
    "mov rdx, r13",
    "mov eax, 1", // write
    "syscall",
    "cmp rax, -4", // interrupted
    "je 61b",
    "test rax, rax",
    "jle 62f",
    "add r12, rax",
    "sub r13, rax",
    "jnz 61b",
    "62:",
    "mov eax, r13d",
    "pop r13",
    "pop r12",
    "ret",
    // --- what a thread does at its end, for the raw one: destructors, again while they leave new values behind
    "50:",
    "sub rsp, 8",
    "mov rax, [rbx + {end_objects}]",
    "test rax, rax",
    "jz 51f",
    "call rax",
    "51:",
    "mov r12d, 4",
    "52:",
    "xor ebp, ebp",
    "mov r13, [rbx + {values}]",
    "mov r14, [rbx + {keys}]",
    "mov r15d, {KEYS}",
    "53:",
    "mov rdi, [r13 + 8]",
    "test rdi, rdi",
    "jz 54f",
    "mov qword ptr [r13 + 8], 0",
    "mov rax, [r14]",
    "cmp rax, [r13]", // set in this life of the key
    "jne 54f",
    "mov rax, [r14 + 8]",
    "test rax, rax",
    "jz 54f",
    "inc ebp",
    "call rax",
    "54:",
    "add r13, 16",
    "add r14, 16",
    "dec r15d",
    "jnz 53b",
    "test ebp, ebp",
    "jz 55f",
    "dec r12d",
    "jnz 52b",
    "55:",
    "add rsp, 8",
    "ret",
    ".globl threadglass_stub_end",
    ".hidden threadglass_stub_end",
    "threadglass_stub_end:",
    ".popsection",
}

unsafe extern "C" {
    static threadglass_stub_begin: u8;
    static threadglass_stub_end: u8;
}

/// The code. The raw thread begins with its first instruction, its stack aligned as for a call.
pub(crate) fn stub() -> &'static [u8] {
    let (begin, end) = (&raw const threadglass_stub_begin, &raw const threadglass_stub_end);
    // SAFETY: two labels of the block above, in this order, with initialised bytes between them.
    unsafe { std::slice::from_raw_parts(begin, end.addr() - begin.addr()) }
}
