"""Proven edits and translations of users' files: fix, migrate, import, render."""
