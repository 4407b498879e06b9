"""What `speclaunch plan` shows: as text, as JSON, a page: one plan, or what differs."""
