"""Tuning of speculation settings, with a model of cost and acceptance instead of a grid search."""
