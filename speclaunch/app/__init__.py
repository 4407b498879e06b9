"""The command line: verbs, options, and output in every form.

Other libraries import only the names below. See README.md.
"""

from speclaunch.core import front_door

NAMES = {
    "verbs.app": "main",
}
__all__, __getattr__ = front_door(__name__, NAMES)
