"""Runs a program that imports tasker_core: python -m tasker.compat bin/server.py."""

import os
import runpy
import sys

from tasker.compat import install


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: python -m tasker.compat PROGRAM.py [ARGUMENT…]")
    sys.argv = sys.argv[1:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
    install()
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
