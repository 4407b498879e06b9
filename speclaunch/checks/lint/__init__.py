"""Checks files: finds the deployments in them, asks the rules, and heeds the ignores."""
