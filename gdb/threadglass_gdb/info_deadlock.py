"""`info deadlock`"""

import gdb

from .look import fail, look
from .words import frames, inferred, plural, safe, say, some

# Maximum number of findings to show, and of threads in each.
FINDINGS, MEMBERS = 16, 8


class InfoDeadlock(gdb.Command):
    """Show why the program hangs: the deadlock, or the longest chain of waits and its root.
Usage: info deadlock"""

    HEADINGS = {
        "deadlock": "DEADLOCK",
        "self_deadlock": "SELF-DEADLOCK",
        "recursive_read": "DEADLOCK BY READING TWICE",
        "owner_exited": "OWNER GONE",
        "owner_is_fork_parent": "LOCKED BEFORE THE FORK",
        "owner_died": "OWNER DIED",
        "cond_without_signaller": "NOBODY LEFT TO SIGNAL",
        "nobody_left": "NOBODY LEFT TO WAKE THEM",
        "pool_starved": "STARVED POOL",
        "process_circle": "DEADLOCK OF PROCESSES",
        "holder_unknown": "HOLDER NOT KNOWN",
        "handed_over": "CONTENDED",
        "long_chain": "WAITS",
    }
    HANGS = ("deadlock", "self_deadlock", "recursive_read", "owner_exited", "owner_is_fork_parent", "process_circle")
    UNWOKEN = ("cond_without_signaller", "nobody_left", "pool_starved")

    def __init__(self):
        super().__init__("info deadlock", gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        if argument.strip():
            fail("info deadlock takes no argument; `thread blocked-by THREAD` shows one thread")
        answer = look("why")
        findings = answer.answer["findings"]
        out = "".join(self.finding(answer, finding) for finding in findings[:FINDINGS])
        if len(findings) > FINDINGS:
            out += ".. and %d more: tglass why shows all of them\n" % (len(findings) - FINDINGS)
        hangs = self.HANGS + self.UNWOKEN
        if not any(finding["kind"] in hangs for finding in findings):
            if not findings:
                out = "No deadlock: no thread waits for another one.\n"
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
        """One thread: what it waits for, what it holds, and where it is."""
        thread = look.threads.get(lwp)
        if not thread:
            return "  %s\n" % look.full_name(lwp)
        out = "  %s %s\n" % (look.full_name(lwp), look.wait(thread))
        if thread["waits_for"]:
            held_by = look.held_by(thread["waits_for"])
            out += "    held by %s\n" % held_by if held_by else ""
        if thread["holds"]:
            labels = (look.label(one["address"], one["kind"], one["name"]) for one in thread["holds"])
            grades = (inferred(one["evidence"]) for one in thread["holds"])
            out += "    holds %s\n" % some(label + grade for label, grade in zip(labels, grades))
        return out + frames(thread)
