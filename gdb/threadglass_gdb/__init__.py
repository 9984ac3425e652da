"""Commands for gdb that show who holds which lock, who waits for whom, and why the program hangs.

The commands run tglass on the process (or core file) of the selected inferior and read its JSON. They infer
nothing themselves: they turn LWPs into gdb's thread numbers, and print the rest as text.
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
    # `info lo` and `info loc` have always meant `info locals`. `info locks` must not make them ambiguous.
    for short in ("info lo", "info loc"):
        try:
            gdb.execute("alias -a %s = info locals" % short, to_string=True)
        except gdb.error:
            # The user already has such an alias.
            pass
    for command in (InfoLocks, InfoDeadlock, ThreadBlockedBy, Locks, LocksTrack):
        command()
