"""The parts of campaigns/translations.py."""
