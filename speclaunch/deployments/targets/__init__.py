"""Prepare recipes for one engine (`prepare`), and render them for other tools (`targets`)."""
