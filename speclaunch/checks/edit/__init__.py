"""Proven changes to a user's file: fixes, migration, import, render."""
