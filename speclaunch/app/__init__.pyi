# Written by tools/front_doors.py from the table in __init__.py.
from speclaunch.app.verbs.app import main as main
