"""Agreement of ranks on settings through a shared directory; see `docs/explanation/recovery.md`."""
