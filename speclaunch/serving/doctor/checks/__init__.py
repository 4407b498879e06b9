"""Checks of `doctor`, one module per family: functions from machine facts to check lines."""
