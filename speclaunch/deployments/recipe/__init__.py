"""Recipes: composition, places of values, validation."""
