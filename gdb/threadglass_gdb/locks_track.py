"""`locks track`: gdb injects the agent, because no other process can while gdb traces the program."""

import os
import subprocess

import gdb

from .look import fail, target, tglass
from .words import safe

# Functions in which a thread may hold a lock that is needed to load a shared object.
BUSY = ("malloc", "calloc", "realloc", "free", "_int_", "sysmalloc", "dl", "_dl_", "__tls_get_addr", "fork")
BUSY += ("pthread_create",)


def may_call():
    """Whether the selected thread can call a function now. It must hold no lock of the allocator or the loader."""
    frame = gdb.newest_frame()
    while frame is not None:
        name = frame.name() or ""
        if name.lstrip("_").startswith(tuple(word.lstrip("_") for word in BUSY)):
            return False
        frame = frame.older()
    return True


def is_patient():
    """Whether the selected thread waits in libc for a lock or a condition. Such a wait can begin again; other system
    calls may return early after gdb has called a function."""
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
    """Start or stop counting the uses of locks.
Usage: locks track on|off
`locks track on' loads the agent into the program and installs its hooks: it calls dlopen in the first thread that
holds no lock of the allocator or the loader. After `continue', `tglass locks --all PID' shows what was counted.
`locks track off' removes the agent's hooks; the agent stays loaded."""

    def __init__(self):
        super().__init__("locks track", gdb.COMMAND_STATUS)

    def complete(self, text, word):
        return [option for option in ("on", "off") if option.startswith(word)]

    def invoke(self, argument, from_tty):
        wanted = argument.strip()
        if wanted not in ("on", "off"):
            fail("locks track takes one word: on or off")
        if len(target()) > 1 or gdb.selected_inferior().connection.type == "core":
            fail("locks track needs a running process: a core file no longer uses its locks")
        # If a gdbserver cannot write all registers, it only prints a warning, and the program crashes.
        if gdb.selected_inferior().connection.type != "native":
            fail("locks track does not work through a gdbserver: detach, and use tglass contend")
        selected = gdb.selected_thread()
        frame = gdb.selected_frame() if selected is not None and not selected.is_running() else None
        try:
            self.switch(wanted == "on")
        finally:
            if selected is not None and selected.is_valid():
                selected.switch()
                if frame is not None and frame.is_valid():
                    frame.select()

    def switch(self, on):
        chosen = None
        stopped = [thread for thread in gdb.selected_inferior().threads() if not thread.is_running()]
        if not stopped:
            fail("the program is running, and gdb cannot call the agent: stop it first (Ctrl-C, or `interrupt`)")
        for thread in stopped:
            thread.switch()
            if not may_call():
                continue
            if is_patient():
                chosen = thread
                break
            chosen = chosen or thread
        if chosen is None:
            fail("every thread is in the allocator or the loader: continue the program for a moment and try again")
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
            fail("the agent is not loaded: use `locks track on`")
        failed = call(symbol)
        if failed:
            fail("the agent refused: %s" % os.strerror(failed))
        gdb.write("counting\n" if on else "no longer counting: the agent's hooks are removed\n")

    @staticmethod
    def agent():
        """Path of the agent's file. tglass writes the file where only this user can change it."""
        command = [tglass(), "generate", "agent"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        path = done.stdout.decode("utf-8", "replace").strip()
        if done.returncode or not path or '"' in path or "\\" in path:
            fail("tglass does not say where its agent is: %s" % safe(done.stderr.decode("utf-8", "replace").strip()))
        return path
