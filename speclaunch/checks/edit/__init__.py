"""Fixes, migration, import and render, with results verified before they are written."""
