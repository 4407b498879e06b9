"""The parts of tools/translations.py."""
