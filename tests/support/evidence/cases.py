"""All cases. What the engine makes of each is not written here: tools/load_evidence.py runs them, and
stores it."""

from __future__ import annotations

from . import case_files, case_models, case_others, case_settings
from .case import Case

CASES: tuple[Case, ...] = (
    *case_settings.sound(),
    *case_settings.parameters(),
    *case_models.drafts(),
    *case_models.sizes(),
    *case_models.layers(),
    *case_settings.types(),
    *case_settings.contexts(),
    *case_models.targets(),
    *case_models.classes(),
    *case_files.files(),
    *case_settings.devices(),
    *case_files.blocks(),
    *case_others.others(),
)
BY_KEY = {case.key: case for case in CASES}
