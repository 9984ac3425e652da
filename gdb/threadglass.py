# Commands for gdb 13 and newer: who holds which lock, who waits for whom, and the deadlock named.
#
#   info locks [--held] [--waited] [--all]    locks with their holders and waiters
#   info deadlock                             what hangs, and why
#   thread blocked-by [THREAD]                what a thread waits for, who holds it, and so on to the end
#
# `source` this file. The looking is done by tglass, which is asked for JSON about the process (or core
# file) of the selected inferior. Nothing is concluded here: numbers of LWPs become threads of gdb, and
# the rest is text. Everything in the answer may come from a hostile program, so it is cut and escaped.

import json
import os
import re
import shlex
import shutil
import struct
import subprocess

import gdb

SCHEMA = "threadglass/1"
# A look takes milliseconds; a core of many gigabytes on a slow disk takes longer.
PATIENCE_SECONDS = 300
# What is shown of long lists.
ROWS, FINDINGS, MEMBERS, FRAMES, LISTED, LINKS, GAPS = 200, 16, 8, 6, 4, 16, 16
# Longest text that is taken from the target.
WIDTH = 200

HERE = os.path.dirname(os.path.abspath(__file__)) if "__file__" in globals() else None


def fail(text):
    """One line, without a Python trace."""
    raise gdb.GdbError(text)


def safe(text):
    """Text of the target's own making: cut, and with control characters written out."""
    text = str(text)
    if len(text) > WIDTH:
        text = text[:WIDTH] + ".."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def say(text):
    charset = gdb.host_charset() if hasattr(gdb, "host_charset") else "utf-8"
    gdb.write(text.encode(charset, "backslashreplace").decode(charset, "replace"))


def plural(number, word):
    return "%d %s%s" % (number, word, "" if number == 1 else "s")


def some(items):
    """A few of many."""
    items = list(items)
    if len(items) <= LISTED:
        return ", ".join(items)
    return "%s .. (%d)" % (", ".join(items[:LISTED]), len(items))


# What is looked at


def tglass():
    """The tool: the one that the user names, the one installed with this file, or the one in PATH."""
    named = os.environ.get("TGLASS")
    if named:
        found = shutil.which(named)
        return found or fail("TGLASS names %s, which is no program: set it to the path of tglass" % safe(named))
    # PREFIX/share/threadglass/gdb/threadglass.py
    beside = os.path.join(HERE, "..", "..", "..", "bin", "tglass") if HERE else None
    if beside and os.access(beside, os.X_OK):
        return os.path.normpath(beside)
    return shutil.which("tglass") or fail(
        "tglass was not found: put it in PATH, or set TGLASS to its path (`python os.environ['TGLASS'] = ..`)"
    )


def core_file(inferior):
    """Where the core file of the selected inferior is."""
    known = getattr(inferior, "corefile", None)
    if known is not None:
        return known.filename
    # Before gdb 17 only its own screen tells.
    text = gdb.execute("info files", to_string=True)
    section = re.search(r"core dump file:\s+`(.*)', file type", text)
    return section.group(1) if section else fail("gdb does not say where the core file is: use tglass why CORE")


def is_local(inferior):
    """Whether the process that a gdbserver has is the one of that number here: only one process has the
    16 random bytes that the kernel gave it at its start."""
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
    """What tglass is given for the selected inferior."""
    inferior = gdb.selected_inferior()
    connection = inferior.connection
    if not inferior.pid or connection is None:
        fail("there is no process to look at: start the program, or use `attach PID` or `core-file FILE`")
    if connection.type == "core":
        arguments = [os.path.abspath(core_file(inferior))]
        program = inferior.progspace.filename
        if program and os.path.isfile(program):
            arguments += ["--exe", program]
        sysroot = gdb.parameter("sysroot") or ""
        if sysroot.strip("/") and not sysroot.startswith(("target:", "remote:")):
            arguments += ["--sysroot", sysroot]
        return arguments
    if connection.type != "native" and not is_local(inferior):
        where = safe(" ".join(filter(None, [connection.type, connection.details])))
        fail("process %d is not one of this machine (%s): run tglass why %d there" % (inferior.pid, where, inferior.pid))
    return [str(inferior.pid)]


def look(verb, options=()):
    """The answer of `tglass VERB`."""
    arguments = target()
    tool = tglass()
    command = [tool, verb, *arguments, *options, "--json"]
    shown = " ".join(shlex.quote(word) for word in command[:3])
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE_SECONDS
        )
    except OSError as error:
        fail("%s cannot be run: %s (TGLASS names another one)" % (safe(tool), error.strerror))
    except subprocess.TimeoutExpired:
        fail("tglass did not end within %d s: try %s in a shell" % (PATIENCE_SECONDS, safe(shown)))
    # 1 is a certain deadlock.
    if done.returncode not in (0, 1):
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        fail(safe(said[0]) if said else "tglass failed (status %d): try %s in a shell" % (done.returncode, safe(shown)))
    try:
        answer = json.loads(done.stdout.decode("utf-8", "replace"))
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or answer.get("schema") != SCHEMA:
        fail("%s does not answer as this file expects (%s): install both from the same release" % (safe(tool), SCHEMA))
    return Look(answer)


class Look:
    """One answer, with the threads as gdb numbers them."""

    def __init__(self, answer):
        self.answer = answer
        self.threads = {thread["lwp"]: thread for thread in answer["threads"] if thread["lwp"] is not None}
        self.objects = {item["address"]: item for item in answer["objects"]}
        self.is_core = answer["target"]["core"] is not None
        # tglass may not read the memory of the process: nothing is known of its locks.
        self.is_blind = answer["target"]["libc"]["kind"] == "unread"
        self.known = {thread.ptid[1]: thread for thread in gdb.selected_inferior().threads()}

    def number(self, lwp):
        """`2`, as `info threads` has it; with several inferiors `1.2`."""
        thread = self.known.get(lwp)
        return number(thread) if thread else "LWP %d" % lwp

    def name(self, lwp):
        """`2 "alpha"`."""
        thread = self.known.get(lwp)
        own = self.threads.get(lwp)
        # gdb has the names that its user gave; of a core it has none.
        name = (thread.name if thread else None) or (own["name"] if own else None)
        return '%s "%s"' % (self.number(lwp), safe(name)) if name else self.number(lwp)

    def full_name(self, lwp):
        """`2 "alpha" (LWP 4144)`."""
        return "%s (LWP %d)" % (self.name(lwp), lwp) if lwp in self.known else self.name(lwp)

    def label(self, address, kind="object", name=None):
        """`mutex Session::lock_ at 0x5634b566fa20`."""
        item = self.objects.get(address)
        if item:
            kind, name = what(item), item["name"]
        return "%s%s at %s" % (kind, " " + safe(name) if name else "", safe(address))

    def holder(self, holder):
        """A holder, and what it is if it is not a living thread of this process."""
        lwp, pid = holder["lwp"], holder["pid"]
        alive = holder["status"] == "alive"
        who = self.name(lwp) if lwp is not None and alive else "LWP %d" % lwp if lwp is not None else "somebody"
        status = {
            "alive": "",
            "gone": ", which does not exist any more",
            "fork_parent": " of the parent process%s, from before the fork" % (" %d" % pid if pid else ""),
            "other_process": " of process %d" % pid if pid else " of another process",
        }.get(holder["status"], ", of which nothing is known")
        side = " (reads)" if holder["side"] == "read" else ""
        return who + status + side + inferred(holder["evidence"], holder["why"])

    def wait(self, thread):
        """`waits 14m02s for mutex ..`, or what it does instead."""
        waits = thread["waits_for"]
        if not waits:
            return doing(thread, self.answer["target"])
        since = " " + duration(waits["since_ms"]) if waits["since_ms"] is not None else ""
        side = {"read": "to read", "write": "to write"}.get(waits["side"], "for")
        timed = " (with a time limit)" if waits["timed"] else ""
        label = self.label(waits["address"], waits["kind"], waits["name"])
        return "waits%s %s %s%s%s" % (since, side, label, timed, inferred(waits["evidence"]))

    def holders(self, waits):
        item = self.objects.get(waits["address"])
        return item["holders"] if item else []

    def gaps(self, lwps=None):
        """What could not be seen; of some threads only, where these are given."""
        out = ""
        gaps = [gap for gap in self.answer["gaps"] if lwps is None or not gap["lwps"] or lwps & set(gap["lwps"])]
        for gap in gaps[:GAPS]:
            whose = " of " + some(self.number(lwp) for lwp in gap["lwps"]) if gap["lwps"] else ""
            out += "not seen: %s%s: %s\n" % (safe(gap["what"]), whose, safe(gap["why"]))
        if len(gaps) > GAPS:
            out += "not seen: %d more\n" % (len(gaps) - GAPS)
        if self.is_blind and not self.is_core:
            out += "gdb may read it nevertheless: `generate-core-file FILE`, then tglass why FILE\n"
        return out


# Words


def number(thread):
    several = len(gdb.inferiors()) > 1 or thread.inferior.num != 1
    return "%d.%d" % (thread.inferior.num, thread.num) if several else str(thread.num)


def inferred(evidence, why=None):
    if evidence != "inferred":
        return ""
    return " (inferred: %s)" % safe(why) if why else " (inferred)"


def what(item):
    """The kind, with whose it is where that is not plain."""
    family = {"libc": "libc ", "rust_std": "Rust ", "parking_lot": "parking_lot ", "cxx": "C++ "}
    return family.get(item["family"], "") + safe(item["kind"])


def state(item):
    """The state with what belongs to it: `locked, recursive x3`, `read-locked by 2, writer queued`."""
    kind, word = item["kind"], item["state"]
    parts = [{"read_locked": "read-locked", "write_locked": "write-locked"}.get(word, safe(word).replace("_", " "))]
    if kind == "mutex" and "recursion" in item:
        if item["type"] == "recursive" and item["recursion"]:
            parts.append("recursive x%d" % (item["recursion"] + 1))
        elif item["type"] != "normal":
            parts.append(safe(item["type"]))
        parts += ["robust"] if item["robust"] else []
        parts += ["PI"] if item["protocol"] == "inherit" else []
        parts += ["ceiling %d" % item["ceiling"]] if item["ceiling"] is not None else []
    elif kind == "rwlock" and "readers" in item:
        if word == "read_locked":
            parts[0] += " by %d" % item["readers"]
        parts += ["writer queued"] if item["writer_queued"] else []
        if item["family"] == "pthread" and item["preference"] != "reader":
            parts.append("prefers writers")
    elif kind == "semaphore" and "count" in item:
        parts[0] = "count %d" % item["count"]
    elif kind == "barrier" and "needed" in item:
        parts[0] = "%d of %d arrived" % (item["arrived"], item["needed"])
    elif kind == "cond" and item.get("inside"):
        parts[0] = "%d inside" % item["inside"]
    elif word == "unknown" and "value" in item:
        parts[0] = "value %#x" % item["value"]
    return ", ".join(parts + (["process-shared"] if item["shared"] else []))


def doing(thread, target):
    """What a thread does that waits for no object."""
    if thread["state"] in ("sleep", "stopped_asleep") and thread["syscall"]:
        return "is asleep in %s" % safe(thread["syscall"]["name"])
    if thread["state"] == "stopped" and target["tracer"]:
        return "was running when it was stopped"
    words = {"run": "is runnable", "active": "is running", "zombie": "has ended", "sleep": "is asleep"}
    return words.get(thread["state"], "is in a state that is not known" if thread["state"] == "unknown" else "is stopped")


def duration(ms):
    seconds = ms // 1000
    if seconds < 1:
        return "%dms" % ms
    if seconds < 60:
        return "%d.%ds" % (seconds, ms % 1000 // 100)
    if seconds < 3600:
        return "%dm%02ds" % (seconds // 60, seconds % 60)
    if seconds < 86400:
        return "%dh%02dm" % (seconds // 3600, seconds % 3600 // 60)
    return "%dd%02dh" % (seconds // 86400, seconds % 86400 // 3600)


def frames(thread):
    """Its frames outside libc, as gdb writes them."""
    libc = ("libc.so", "libc-2", "libpthread")
    out = ""
    for frame in [frame for frame in thread["frames"] if not (frame["module"] or "").startswith(libc)][:FRAMES]:
        where = ""
        if frame["file"]:
            where = " at %s%s" % (safe(frame["file"]), ":%d" % frame["line"] if frame["line"] else "")
        elif frame["module"]:
            where = " from %s" % safe(frame["module"])
        function = safe(frame["function"]) + " ()" if frame["function"] else safe(frame["pc"]) + " in ??"
        out += "      %s%s%s\n" % (function, where, inferred(frame["evidence"]))
    return out


# Commands


class InfoLocks(gdb.Command):
    """Show the locks that threads hold or wait for, with holders and waiters.
Usage: info locks [--held] [--waited] [--all]
--held shows only those that are held, --waited only those that are waited for, --all idle ones too, as
far as variables name them."""

    OPTIONS = ("--held", "--waited", "--all")

    def __init__(self):
        super().__init__("info locks", gdb.COMMAND_STATUS)

    def complete(self, text, word):
        # gdb completes what stands after the last break of a word, and dashes are breaks.
        typed = text[: len(text) - len(word)].rsplit(None, 1)[-1] if text.strip() and not text[-1].isspace() else ""
        return [option[len(typed) :] for option in self.OPTIONS if option.startswith(typed + word)]

    def invoke(self, argument, from_tty):
        options = gdb.string_to_argv(argument)
        for option in options:
            if option not in self.OPTIONS:
                fail("`%s` is no option: info locks [--held] [--waited] [--all]" % safe(option))
        if "--all" in options and len(set(options)) > 1:
            fail("--all shows also those that --held and --waited leave out: use one or the other")
        answer = look("locks", dict.fromkeys(options))
        say(self.table(answer) + answer.gaps())

    @staticmethod
    def table(look):
        rows = [("Address", "Type", "State", "Held by", "Waiters", "Name")]
        items = look.answer["objects"]
        for item in items[:ROWS]:
            is_held = item["state"] in ("locked", "read_locked", "write_locked", "inconsistent", "in_progress")
            held = some(look.holder(holder) for holder in item["holders"]) or ("unknown" if is_held else "-")
            rows.append((
                safe(item["address"]),
                what(item) + inferred(item["evidence"]),
                state(item),
                held,
                some(InfoLocks.waiter(look, waiter) for waiter in item["waiters"]) or "-",
                safe(item["name"] or "-"),
            ))
        if len(rows) == 1:
            return "Nothing can be told of its locks.\n" if look.is_blind else "No lock was found to be held or waited for.\n"
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        if len(items) > ROWS:
            lines.append(".. and %d more: tglass locks shows all of them" % (len(items) - ROWS))
        return "\n".join(lines) + "\n"

    @staticmethod
    def waiter(look, waiter):
        side = " (%s)" % safe(waiter["side"]) if waiter["side"] else ""
        if waiter["pid"]:
            return "LWP %d of process %d%s" % (waiter["lwp"], waiter["pid"], side)
        return look.number(waiter["lwp"]) + side


class InfoDeadlock(gdb.Command):
    """Say why the program hangs: the deadlock, or the longest chain of waits and what is at its end.
Usage: info deadlock"""

    HEADINGS = {
        "deadlock": "DEADLOCK",
        "self_deadlock": "SELF-DEADLOCK",
        "recursive_read": "DEADLOCK BY READING TWICE",
        "owner_exited": "OWNER GONE",
        "owner_is_fork_parent": "LOCKED BEFORE THE FORK",
        "owner_died": "OWNER DIED",
        "cond_without_signaller": "NOBODY LEFT TO SIGNAL",
        "long_chain": "WAITS",
    }
    HANGS = ("deadlock", "self_deadlock", "recursive_read", "owner_exited", "owner_is_fork_parent")

    def __init__(self):
        super().__init__("info deadlock", gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        if argument.strip():
            fail("info deadlock takes no argument; `thread blocked-by THREAD` tells of one thread")
        answer = look("why")
        findings = answer.answer["findings"]
        out = "".join(self.finding(answer, finding) for finding in findings[:FINDINGS])
        if len(findings) > FINDINGS:
            out += ".. and %d more: tglass why shows all of them\n" % (len(findings) - FINDINGS)
        if not any(finding["kind"] in self.HANGS for finding in findings):
            if answer.is_blind:
                out = "It cannot be told whether threads wait for each other.\n" + out
            elif not findings:
                out = "No deadlock: no thread was found to wait for another one.\n"
            else:
                out = "No deadlock was found.\n" + out
        say(out + answer.gaps())

    def finding(self, look, finding):
        heading = self.HEADINGS.get(finding["kind"], safe(finding["kind"]))
        lwps = finding["threads"]
        if finding["kind"] == "deadlock":
            numbers = [look.number(lwp) for lwp in lwps]
            shown = numbers if len(numbers) <= MEMBERS else numbers[:MEMBERS] + [".."]
            text = "%s  (%s)" % (" -> ".join(shown + numbers[:1]), plural(len(lwps), "thread"))
        else:
            text = safe(finding["text"])
        out = "%s, %s: %s\n" % (heading, safe(finding["certainty"]), text)
        if finding["kind"] in self.HANGS or finding["kind"] == "long_chain":
            out += "".join(self.member(look, lwp) for lwp in lwps[:MEMBERS])
            if len(lwps) > MEMBERS:
                out += "  .. and %s more\n" % plural(len(lwps) - MEMBERS, "thread")
        if finding["behind"]:
            behind = some(look.number(lwp) for lwp in finding["behind"])
            out += "  behind it: %s\n" % behind
        return out

    @staticmethod
    def member(look, lwp):
        """One thread: what it wants, what it holds, and where it is."""
        thread = look.threads.get(lwp)
        if not thread:
            return "  %s\n" % look.full_name(lwp)
        out = "  %s %s\n" % (look.full_name(lwp), look.wait(thread))
        if thread["waits_for"]:
            holders = some(look.holder(holder) for holder in look.holders(thread["waits_for"]))
            out += "    held by %s\n" % holders if holders else ""
        if thread["holds"]:
            held = some(look.label(one["address"], one["kind"], one["name"]) + inferred(one["evidence"]) for one in thread["holds"])
            out += "    holds %s\n" % held
        return out + frames(thread)


class ThreadBlockedBy(gdb.Command):
    """Say what a thread waits for, who holds it, what that one waits for, and so on to the end.
Usage: thread blocked-by [THREAD]
THREAD is a number as `info threads' shows it; the selected thread if it is left out."""

    def __init__(self):
        super().__init__("thread blocked-by", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        arguments = gdb.string_to_argv(argument)
        if len(arguments) > 1:
            fail("thread blocked-by takes one thread: its number as `info threads` shows it")
        # Says first what is missing altogether.
        target()
        thread = self.thread(arguments[0]) if arguments else gdb.selected_thread()
        if thread is None:
            fail("no thread is selected: thread blocked-by THREAD, with a number that `info threads` shows")
        say(self.chain(look("why"), thread.ptid[1]))

    @staticmethod
    def thread(text):
        if text.startswith("$"):
            text = str(gdb.parse_and_eval(text))
        match = re.fullmatch(r"(?:([0-9]{1,9})\.)?([0-9]{1,9})", text)
        if not match:
            fail("`%s` is no thread: give a number as `info threads` shows it" % safe(text))
        inferior = gdb.selected_inferior()
        if match.group(1) and int(match.group(1)) != inferior.num:
            fail("thread %s is not of the selected inferior: `inferior %s` selects its own" % (text, match.group(1)))
        found = [thread for thread in inferior.threads() if thread.num == int(match.group(2))]
        return found[0] if found else fail("there is no thread %s: `info threads` lists them" % text)

    def chain(self, look, lwp):
        """A line for each thread of the chain."""
        out, seen, hidden = "", [], 0
        while True:
            seen.append(lwp)
            thread = look.threads.get(lwp)
            if not thread:
                last = "%s was not seen: it may have ended, or just begun" % look.name(lwp)
                break
            if not thread["waits_for"]:
                last = "%s %s" % (look.name(lwp), doing(thread, look.answer["target"]))
                if look.is_blind:
                    last = "It cannot be told what %s waits for." % look.name(lwp)
                elif len(seen) == 1:
                    last += ": it waits for no lock or thread that is known"
                break
            holders = look.holders(thread["waits_for"])
            line = "%s %s" % (look.name(lwp), look.wait(thread))
            if not holders:
                item = look.objects.get(thread["waits_for"]["address"])
                last = line + (" (%s)" % state(item) if item else "") + "; no holder is known"
                break
            line += ", held by " + some(look.holder(holder) for holder in holders)
            following = self.next(look, lwp, holders)
            if following is None:
                last = line
                break
            if following in seen:
                size = len(seen) - seen.index(following)
                last = "%s  (%s)" % (line, "by itself" if size == 1 else "cycle of %d" % size)
                return out + self.skipped(hidden) + last + "\n" + self.verdict(look, seen)
            if len(seen) <= LINKS:
                out += line + "\n"
            else:
                hidden += 1
            lwp = following
        return out + self.skipped(hidden) + last + "\n" + self.verdict(look, seen) + look.gaps(set(seen))

    @staticmethod
    def skipped(number):
        return ".. %s more ..\n" % plural(number, "thread") if number else ""

    @staticmethod
    def next(look, lwp, holders):
        """The holder to go on with: the next one of a circle that was found, else one that waits itself."""
        lwps = [one["lwp"] for one in holders if one["status"] == "alive" and one["lwp"] is not None and not one["pid"]]
        for finding in look.answer["findings"]:
            circle = finding["threads"]
            if finding["kind"] == "deadlock" and lwp in circle:
                after = circle[(circle.index(lwp) + 1) % len(circle)]
                if after in lwps:
                    return after
        waiting = [one for one in lwps if one in look.threads and look.threads[one]["waits_for"]]
        return next(iter(waiting or lwps), None)

    @staticmethod
    def verdict(look, seen):
        for finding in look.answer["findings"]:
            if finding["kind"] in InfoDeadlock.HANGS and set(finding["threads"]) & set(seen):
                heading = InfoDeadlock.HEADINGS[finding["kind"]].lower()
                return "This is a %s, %s: `info deadlock` shows it.\n" % (heading, safe(finding["certainty"]))
        return ""


def register():
    if not hasattr(gdb, "TargetConnection"):
        fail("threadglass needs gdb 13 or newer; this is %s" % gdb.VERSION)
    # `info lo` and `info loc` have always been `info locals`: a second word with these letters must not take them.
    for short in ("info lo", "info loc"):
        try:
            gdb.execute("alias -a %s = info locals" % short, to_string=True)
        except gdb.error:
            # The user has one already.
            pass
    for command in (InfoLocks, InfoDeadlock, ThreadBlockedBy):
        command()


register()
