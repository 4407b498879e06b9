"""Changes to a user's file, proven before they are written: fixes, migration, import, render."""
