"""Recipes prepared for an engine (`prepare`) and rendered for other tools (`targets`)."""
