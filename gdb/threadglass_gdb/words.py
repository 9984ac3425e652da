"""Turns parts of an answer into words. All text may come from a hostile program, so it is cut and escaped."""

import re

import gdb

# Maximum number of items of a list, frames of a stack, and characters of a text.
LISTED, FRAMES, WIDTH = 4, 6, 200

# Characters that Python calls printable but a terminal does not show: fillers, variation selectors, joiners.
UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]")


def is_seen(c):
    """Whether a character may be written to a terminal as it is."""
    return c.isprintable() and not UNSEEN.match(c)


def safe(text):
    """Text of the target, cut, with control characters escaped."""
    text = str(text)
    if len(text) > WIDTH:
        text = text[:WIDTH] + ".."
    return "".join(c if is_seen(c) else c.encode("unicode_escape").decode("ascii") for c in text)


def say(text):
    charset = gdb.host_charset() if hasattr(gdb, "host_charset") else "utf-8"
    gdb.write(text.encode(charset, "backslashreplace").decode(charset, "replace"))


def plural(number, word):
    return "%d %s%s" % (number, word, "" if number == 1 else "s")


def some(items):
    """The first items of a list, and their number if some are left out."""
    items = list(items)
    if len(items) <= LISTED:
        return ", ".join(items)
    return "%s .. (%d)" % (", ".join(items[:LISTED]), len(items))


def number(thread):
    several = len(gdb.inferiors()) > 1 or thread.inferior.num != 1
    return "%d.%d" % (thread.inferior.num, thread.num) if several else str(thread.num)


def inferred(evidence, why=None):
    if evidence != "inferred":
        return ""
    return " (inferred: %s)" % safe(why) if why else " (inferred)"


def what(item):
    """The kind, with the family where it is not pthread."""
    family = {"libc": "libc ", "rust_std": "Rust ", "parking_lot": "parking_lot ", "cxx": "C++ "}
    return family.get(item["family"], "") + safe(item["kind"])


def state(item):
    """The state with its details: `locked, recursive x3`, `read-locked by 2, writer queued`."""
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
    """What a thread does if it waits for no lock."""
    if thread["state"] in ("sleep", "stopped_asleep") and thread["syscall"]:
        return "is asleep in %s" % safe(thread["syscall"]["name"])
    if thread["state"] in ("stopped", "run", "active") and target["tracer"]:
        return "is not blocked: it runs when gdb lets it"
    words = {"run": "is runnable", "active": "is running", "zombie": "has ended", "sleep": "is asleep"}
    words.update(stopped="is stopped", stopped_asleep="is stopped while asleep")
    return words.get(thread["state"], "is in an unknown state")


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
    """The frames outside libc, as gdb prints them."""
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
