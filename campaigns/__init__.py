"""Long searches for defects, and measurements: `python -m campaigns --list`."""
