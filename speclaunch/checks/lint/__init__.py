"""Lint: finds the deployments in files, runs the rules, and applies ignore comments."""
