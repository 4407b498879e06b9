"""Diagnosis of an engine's failure from its log."""
