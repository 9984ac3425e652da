# Commands for gdb 13 and newer; `source` this file.
#
#   info locks [--held] [--waited] [--all]    locks that threads hold or wait for
#   info deadlock                             why the program hangs
#   thread blocked-by [THREAD]                what a thread waits for, who holds it, and so on to the end
#   locks track on|off                        count the uses of locks


def _load_threadglass(here):
    """All sourced files share one name space, so this function is the only name in it. The rest are modules."""
    import sys

    # If this file is sourced again, perhaps after an upgrade, load the modules again.
    for name in [name for name in sys.modules if name.split(".")[0] == "threadglass_gdb"]:
        del sys.modules[name]
    # Debugging as root must not leave compiled files in the installation.
    path, compiled = sys.path[:], sys.dont_write_bytecode
    sys.path.insert(0, here)
    sys.dont_write_bytecode = True
    try:
        import threadglass_gdb

        threadglass_gdb.register()
    finally:
        sys.path[:], sys.dont_write_bytecode = path, compiled


_load_threadglass(__import__("os").path.dirname(__import__("os").path.abspath(__file__)))
