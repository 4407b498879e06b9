"""Diagnosis of a failed engine from its log."""
