"""Runs a program that imports tasker_core: python -m tasker.compat bin/server.py, or with -m and a module."""

import os
import runpy
import sys

from tasker.compat import install


def main() -> None:
    args = sys.argv[1:]
    if not args or args == ["-m"]:
        sys.exit("usage: python -m tasker.compat PROGRAM.py [ARGUMENT…], or with -m MODULE in the place of PROGRAM.py")
    install()
    if args[0] == "-m":
        sys.argv = args[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(args[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = args
    sys.path.insert(0, os.path.dirname(os.path.abspath(args[0])))
    runpy.run_path(args[0], run_name="__main__")


if __name__ == "__main__":
    main()
