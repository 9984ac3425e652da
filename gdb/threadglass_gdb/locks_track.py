"""`locks track`: the agent that counts, loaded by gdb itself, which is the only one who may while it traces."""

import os
import subprocess

import gdb

from .look import fail, target, tglass
from .words import safe

# Functions in which a thread may hold a lock that loading an object needs.
BUSY = ("malloc", "calloc", "realloc", "free", "_int_", "sysmalloc", "dl", "_dl_", "__tls_get_addr", "fork", "pthread_create")


def may_call():
    """Whether the selected thread can call a function now: it must hold no lock of the allocator or the loader."""
    frame = gdb.newest_frame()
    while frame is not None:
        name = frame.name() or ""
        if name.lstrip("_").startswith(tuple(word.lstrip("_") for word in BUSY)):
            return False
        frame = frame.older()
    return True


def is_patient():
    """Whether the selected thread waits in libc for a lock or a condition, which does not mind to begin anew: other
    system calls may come to return early, in programs that gdb calls functions of."""
    frame = gdb.newest_frame()
    for _ in range(3):
        if frame is None:
            return False
        if any(word in (frame.name() or "") for word in ("futex", "lll_lock", "pthread_cond_", "pthread_mutex_")):
            return True
        frame = frame.older()
    return False


def call(expression):
    """The value of an expression that calls a function of the program."""
    try:
        return int(gdb.parse_and_eval(expression))
    except gdb.error as error:
        fail("gdb could not call the agent: %s" % safe(str(error)))


class Locks(gdb.Command):
    """Act on the locks of the program."""

    def __init__(self):
        super().__init__("locks", gdb.COMMAND_STATUS, prefix=True)


class LocksTrack(gdb.Command):
    """Count what the program does with its locks, or no longer.
Usage: locks track on|off
Loads an agent into the program, by a call of dlopen in the first thread that holds no lock of the allocator or the
loader, and patches the slots by which objects call the C library. `info locks --all' then shows what was counted.
`locks track off' restores the slots; the agent stays loaded."""

    def __init__(self):
        super().__init__("locks track", gdb.COMMAND_STATUS)

    def complete(self, text, word):
        return [option for option in ("on", "off") if option.startswith(word)]

    def invoke(self, argument, from_tty):
        wanted = argument.strip()
        if wanted not in ("on", "off"):
            fail("locks track takes one word: on or off")
        if len(target()) > 1 or gdb.selected_inferior().connection.type == "core":
            fail("a core file does nothing any more that could be counted")
        # A gdbserver that cannot write all registers says so only in a warning, and the program is lost.
        if gdb.selected_inferior().connection.type != "native":
            fail("locks track needs the program under gdb itself, without a gdbserver: detach, and use tglass contend")
        selected, frame = gdb.selected_thread(), gdb.selected_frame()
        try:
            self.switch(wanted == "on")
        finally:
            selected.switch()
            if frame.is_valid():
                frame.select()

    def switch(self, on):
        chosen = None
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            if not may_call():
                continue
            if is_patient():
                chosen = thread
                break
            chosen = chosen or thread
        if chosen is None:
            fail("every thread is in the allocator or the loader: continue for a moment, and try again")
        chosen.switch()
        if on:
            path = self.agent()
            handle = call('((void *(*)(const char *, int)) dlopen)("%s", 2)' % path)
            if not handle:
                fail("the program's loader refused the agent (%s)" % safe(path))
        symbol = "((int (*)(int)) threadglass_track)(%d)" % (1 if on else 0)
        try:
            gdb.parse_and_eval("&threadglass_track")
        except gdb.error:
            fail("the agent is not loaded: locks track on")
        failed = call(symbol)
        if failed:
            fail("the agent refused: %s" % os.strerror(failed))
        gdb.write("counting\n" if on else "no longer counting: all slots are restored\n")

    @staticmethod
    def agent():
        """Path of the agent's file, which tglass writes where only this user can change it."""
        done = subprocess.run([tglass(), "generate", "agent"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        path = done.stdout.decode("utf-8", "replace").strip()
        if done.returncode or not path or '"' in path or "\\" in path:
            fail("tglass does not say where its agent is: %s" % safe(done.stderr.decode("utf-8", "replace").strip()))
        return path
