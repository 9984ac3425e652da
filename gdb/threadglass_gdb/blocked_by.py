"""`thread blocked-by`"""

import re

import gdb

from .info_deadlock import InfoDeadlock
from .look import fail, look, target
from .words import doing, plural, safe, say, state

# Maximum number of threads of a chain to show.
LINKS = 16


class ThreadBlockedBy(gdb.Command):
    """Show what a thread waits for, who holds it, what the holder waits for, and so on to the end.
Usage: thread blocked-by [THREAD]
THREAD is a number as `info threads' shows it. The default is the selected thread."""

    def __init__(self):
        super().__init__("thread blocked-by", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        arguments = gdb.string_to_argv(argument)
        if len(arguments) > 1:
            fail("thread blocked-by takes one thread, by its number in `info threads`")
        # Fails first if there is no process at all.
        target()
        thread = self.thread(arguments[0]) if arguments else gdb.selected_thread()
        if thread is None:
            fail("no thread is selected: use `thread blocked-by THREAD`, with a number from `info threads`")
        say(self.chain(look("why"), thread.ptid[1]))

    @staticmethod
    def thread(text):
        if text.startswith("$"):
            try:
                text = str(gdb.parse_and_eval(text))
            except gdb.error as error:
                fail("`%s` is not a thread: %s" % (safe(text), safe(str(error))))
        match = re.fullmatch(r"(?:([0-9]{1,9})\.)?([0-9]{1,9})", text)
        if not match:
            fail("`%s` is not a thread: give a number from `info threads`" % safe(text))
        inferior = gdb.selected_inferior()
        if match.group(1) and int(match.group(1)) != inferior.num:
            fail("thread %s belongs to another inferior: select that with `inferior %s`" % (text, match.group(1)))
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
                if len(seen) == 1:
                    last += ": it waits for no known lock or thread"
                break
            holders = look.holders(thread["waits_for"])
            line = "%s %s" % (look.name(lwp), look.wait(thread))
            if not holders:
                item = look.objects.get(thread["waits_for"]["address"])
                last = line + (" (%s)" % state(item) if item else "") + "; no holder is known"
                break
            held_by = look.held_by(thread["waits_for"])
            line += ", held by " + held_by if held_by else ""
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
        """The holder to go on with: the next thread of a deadlock that was found, else a holder that waits itself."""
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
                heading = InfoDeadlock.HEADINGS[finding["kind"]]
                return "%s, %s: `info deadlock` shows all of it\n" % (heading, safe(finding["certainty"]))
        return ""
