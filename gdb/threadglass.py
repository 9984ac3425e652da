# Commands for gdb 13 and newer; `source` this file.
#
#   info locks [--held] [--waited] [--all]    locks with their holders and waiters
#   info deadlock                             what hangs, and why
#   thread blocked-by [THREAD]                what a thread waits for, who holds it, and so on to the end


def _load_threadglass(here):
    """All sourced files share one name space, so only this name is put there: the rest are modules."""
    import sys

    # Sourced again, perhaps after an upgrade: read again.
    for name in [name for name in sys.modules if name.split(".")[0] == "threadglass_gdb"]:
        del sys.modules[name]
    # Debugging as root is to leave no compiled files in the installation.
    path, compiled = sys.path[:], sys.dont_write_bytecode
    sys.path.insert(0, here)
    sys.dont_write_bytecode = True
    try:
        import threadglass_gdb

        threadglass_gdb.register()
    finally:
        sys.path[:], sys.dont_write_bytecode = path, compiled


_load_threadglass(__import__("os").path.dirname(__import__("os").path.abspath(__file__)))
