"""What `speclaunch plan` shows, worked out: plans with everything about them, and compared."""
