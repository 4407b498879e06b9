"""Agreement of ranks on settings, over a shared directory: `docs/explanation/recovery.md`."""
