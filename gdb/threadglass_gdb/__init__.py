"""Commands for gdb: who holds which lock, who waits for whom, and the deadlock named.

The looking is done by tglass, which is asked for JSON about the process (or core file) of the selected
inferior. Nothing is concluded here: numbers of LWPs become threads of gdb, and the rest is text.
"""

import gdb

from .blocked_by import ThreadBlockedBy
from .info_deadlock import InfoDeadlock
from .info_locks import InfoLocks
from .locks_track import Locks, LocksTrack
from .look import fail


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
    for command in (InfoLocks, InfoDeadlock, ThreadBlockedBy, Locks, LocksTrack):
        command()
