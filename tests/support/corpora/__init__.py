"""Files that lint reads, as people write them: seeded, and the same on every machine."""
