"""`info locks`"""

import gdb

from .look import fail, look
from .words import inferred, safe, say, some, state, what

# How many locks are shown.
ROWS = 200


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
            return "No such lock was found: none is waited for, and none was found to be held.\n"
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
