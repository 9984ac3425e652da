"""`info locks`"""

import gdb

from .look import fail, look
from .words import inferred, safe, say, some, state, what

# Maximum number of locks to show.
ROWS = 200


class InfoLocks(gdb.Command):
    """Show the locks that threads hold or wait for, with holders and waiters.
Usage: info locks [--held] [--waited] [--all]
--held shows only locks that are held, --waited only locks that threads wait for.
--all shows idle locks too, as far as a variable of the program names them."""

    OPTIONS = ("--held", "--waited", "--all")

    def __init__(self):
        super().__init__("info locks", gdb.COMMAND_STATUS)

    def complete(self, text, word):
        # gdb completes the text after the last word break, and a dash is a word break.
        typed = text[: len(text) - len(word)].rsplit(None, 1)[-1] if text.strip() and not text[-1].isspace() else ""
        return [option[len(typed) :] for option in self.OPTIONS if option.startswith(typed + word)]

    def invoke(self, argument, from_tty):
        options = gdb.string_to_argv(argument)
        for option in options:
            if option not in self.OPTIONS:
                fail("`%s` is not an option: info locks [--held] [--waited] [--all]" % safe(option))
        if "--all" in options and len(set(options)) > 1:
            fail("--all also shows the locks that --held and --waited leave out: use one or the other")
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
            return "No lock was found: no thread waits for one, and none was found held.\n"
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
