"""TODO"""

from speclaunch.core.front_door import front_door

NAMES = {
    "": "children errors reads resources",
    "front_door": "front_door",
}
__all__, __getattr__ = front_door(__name__, NAMES)
