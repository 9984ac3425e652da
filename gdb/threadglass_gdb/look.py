"""Finds the target of the selected inferior, runs tglass on it, and reads the answer."""

import json
import os
import re
import shlex
import shutil
import struct
import subprocess

import gdb

from .words import doing, duration, inferred, number, safe, some, what

SCHEMA = "threadglass/1"
# A look takes milliseconds. A core file of many gigabytes on a slow disk takes longer.
PATIENCE_SECONDS = 300
# Maximum number of gaps to show.
GAPS = 16
# PREFIX/share/threadglass/gdb/threadglass_gdb
HERE = os.path.dirname(os.path.abspath(__file__))


def fail(text):
    """Prints one line, without a Python traceback."""
    raise gdb.GdbError(text)


def tglass():
    """Path of tglass: the one that TGLASS names, else the one installed with this file, else the one in PATH."""
    named = os.environ.get("TGLASS")
    if named:
        found = shutil.which(named)
        return found or fail("TGLASS names %s, which is not a program: set it to the path of tglass" % safe(named))
    beside = os.path.normpath(os.path.join(HERE, "..", "..", "..", "..", "bin", "tglass"))
    if os.access(beside, os.X_OK):
        return beside
    return shutil.which("tglass") or fail(
        "tglass was not found: put it in PATH or set TGLASS (here: `python import os; os.environ['TGLASS'] = '/..'`)"
    )


def core_file(inferior):
    """Path of the core file of the selected inferior."""
    known = getattr(inferior, "corefile", None)
    if known is not None:
        return known.filename
    # Before gdb 17 only `info files` shows the path.
    text = gdb.execute("info files", to_string=True)
    section = re.search(r"core dump file:\s+`(.*)', file type", text)
    return section.group(1) if section else fail("gdb does not say where the core file is: use `tglass why CORE`")


def is_local(inferior):
    """Whether the process under gdbserver is the process with the same pid on this machine. The kernel gives every
    process 16 random bytes at its start; equal bytes mean the same process."""
    try:
        with open("/proc/%d/auxv" % inferior.pid, "rb") as auxv:
            vector = auxv.read()
        entries = dict(struct.iter_unpack("=QQ", vector[: len(vector) // 16 * 16]))
        address = entries[25]  # AT_RANDOM
        with open("/proc/%d/mem" % inferior.pid, "rb", buffering=0) as memory:
            memory.seek(address)
            here = memory.read(16)
        return len(here) == 16 and bytes(inferior.read_memory(address, 16)) == here
    except (OSError, KeyError, OverflowError, ValueError, gdb.error):
        return False


def target():
    """Arguments of tglass for the selected inferior."""
    inferior = gdb.selected_inferior()
    connection = inferior.connection
    if not inferior.pid or connection is None:
        fail("there is no process to look at: start the program, or use `attach PID` or `core-file FILE`")
    if connection.type == "core":
        arguments = [os.path.abspath(core_file(inferior))]
        program = inferior.progspace.filename
        if program and os.path.isfile(program):
            arguments.append("--exe=" + program)
        sysroot = gdb.parameter("sysroot") or ""
        if sysroot.strip("/") and not sysroot.startswith(("target:", "remote:")):
            arguments.append("--sysroot=" + sysroot)
        return arguments
    if connection.type != "native" and not is_local(inferior):
        where = safe(" ".join(filter(None, [connection.type, connection.details])))
        fail("process %d does not run on this machine (%s): run tglass where it does" % (inferior.pid, where))
    return [str(inferior.pid)]


def look(verb, options=()):
    """Runs `tglass VERB` and returns its answer."""
    arguments = target()
    tool = tglass()
    command = [tool, verb, *arguments, *options, "--json"]
    shown = " ".join(shlex.quote(word) for word in command[:3])
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE_SECONDS
        )
    except OSError as error:
        fail("%s cannot be run: %s (set TGLASS to use another one)" % (safe(tool), error.strerror))
    except subprocess.TimeoutExpired:
        fail("tglass did not finish within %d s: try %s in a shell" % (PATIENCE_SECONDS, safe(shown)))
    # Status 1 means a certain hang, 3 a likely one.
    if done.returncode not in (0, 1, 3):
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        # tglass may not read the memory of the process, but a debugger that started the process always may.
        is_denied = said and "cannot see the locks" in said[0]
        way_out = "; gdb may read it: use `generate-core-file FILE`, then tglass why FILE" if is_denied else ""
        if said:
            fail(safe(said[0]) + way_out)
        fail("tglass failed (status %d): try %s in a shell" % (done.returncode, safe(shown)))
    try:
        answer = json.loads(done.stdout.decode("utf-8", "replace"))
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or answer.get("schema") != SCHEMA:
        expected = "the JSON that these commands expect (%s)" % SCHEMA
        fail("%s does not print %s: install both from the same release" % (safe(tool), expected))
    return Look(answer)


class Look:
    """One answer of tglass, with gdb's thread numbers."""

    def __init__(self, answer):
        self.answer = answer
        self.threads = {thread["lwp"]: thread for thread in answer["threads"] if thread["lwp"] is not None}
        self.objects = {item["address"]: item for item in answer["objects"]}
        self.known = {thread.ptid[1]: thread for thread in gdb.selected_inferior().threads()}

    def number(self, lwp):
        """`2`, as `info threads` has it; with several inferiors `1.2`."""
        thread = self.known.get(lwp)
        return number(thread) if thread else "LWP %d" % lwp

    def name(self, lwp):
        """`2 "alpha"`."""
        thread = self.known.get(lwp)
        own = self.threads.get(lwp)
        # gdb knows the names that its user gave. It has no names for a core file.
        name = (thread.name if thread else None) or (own["name"] if own else None)
        return '%s "%s"' % (self.number(lwp), safe(name)) if name else self.number(lwp)

    def full_name(self, lwp):
        """`2 "alpha" (LWP 4144)`."""
        return "%s (LWP %d)" % (self.name(lwp), lwp) if lwp in self.known else self.name(lwp)

    def label(self, address, kind="object", name=None):
        """`mutex Session::lock_ at 0x5634b566fa20`."""
        item = self.objects.get(address)
        if kind == "join":
            lwps = [one["lwp"] for one in item["holders"]] if item else []
            return "the end of %s" % (self.name(lwps[0]) if lwps and lwps[0] is not None else safe(name or "a thread"))
        if item:
            kind, name = what(item), item["name"]
        return "%s%s at %s" % (kind, " " + safe(name) if name else "", safe(address))

    def holder(self, holder):
        """A holder, with a remark if it is not a living thread of this process."""
        lwp, pid = holder["lwp"], holder["pid"]
        alive = holder["status"] == "alive"
        who = self.name(lwp) if lwp is not None and alive else "LWP %d" % lwp if lwp is not None else "somebody"
        status = {
            "alive": "",
            "gone": ", which no longer exists",
            "fork_parent": " of the parent process%s, from before the fork" % (" %d" % pid if pid else ""),
            "other_process": " of process %d" % pid if pid else " of another process",
        }.get(holder["status"], ", about which nothing is known")
        side = " (reads)" if holder["side"] == "read" else ""
        return who + status + side + inferred(holder["evidence"], holder["why"])

    def wait(self, thread):
        """`waits at least 14m02s for mutex ..`, or what it does instead."""
        waits = thread["waits_for"]
        if not waits:
            return doing(thread, self.answer["target"])
        since = " at least " + duration(waits["since_ms"]) if waits["since_ms"] is not None else ""
        side = {"read": "to read", "write": "to write"}.get(waits["side"], "for")
        timed = " (with a time limit)" if waits["timed"] else ""
        label = self.label(waits["address"], waits["kind"], waits["name"])
        return "waits%s %s %s%s%s" % (since, side, label, timed, inferred(waits["evidence"]))

    def holders(self, waits):
        item = self.objects.get(waits["address"])
        return item["holders"] if item else []

    def held_by(self, waits):
        """The holders in words. For a join this is empty: the label already names the thread."""
        return "" if waits["kind"] == "join" else some(self.holder(holder) for holder in self.holders(waits))

    def gaps(self, lwps=None):
        """The gaps: all of them, or only those of the given threads."""
        out = ""
        gaps = [gap for gap in self.answer["gaps"] if lwps is None or not gap["lwps"] or lwps & set(gap["lwps"])]
        for gap in gaps[:GAPS]:
            whose = " of " + some(self.number(lwp) for lwp in gap["lwps"]) if gap["lwps"] else ""
            out += "not seen: %s%s: %s\n" % (safe(gap["what"]), whose, safe(gap["why"]))
        if len(gaps) > GAPS:
            out += "not seen: %d more\n" % (len(gaps) - GAPS)
        return out
