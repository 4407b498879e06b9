"""Recipes prepared for one engine (`prepare`), and rendered for other tools (`targets`)."""
