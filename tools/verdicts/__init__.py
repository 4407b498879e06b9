"""The parts of tools/engine_verdicts.py."""
