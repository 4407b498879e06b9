"""TODO"""

from speclaunch.core import front_door

NAMES = {
    "verbs.app": "main",
}
__all__, __getattr__ = front_door(__name__, NAMES)
