"""How the hub calls a model."""

from __future__ import annotations

import re

from speclaunch.patterns import lazy

HUB_NAME = lazy(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?\Z", re.ASCII)
"""How the hub calls a model: without `..`, a leading dot or anything that leaves a folder."""
