"""`python -m speclaunch`."""

from speclaunch.cli.app import main

main()
