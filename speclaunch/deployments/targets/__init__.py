"""A recipe made ready for one engine (`prepare`), and as text for other tools (`targets`)."""
