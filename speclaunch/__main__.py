"""`python -m speclaunch`."""

# ruff: noqa: PTH109  what is imported here is imported from the current directory
import os
import sys

if not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()]):
    del sys.path[0]  # `-m` searches the current directory first: a json.py there would run

from speclaunch.app import main

main()
