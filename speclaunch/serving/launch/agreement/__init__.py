"""Several ranks agree on settings over a shared directory: `docs/explanation/recovery.md`."""
