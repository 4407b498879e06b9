"""Contents of `speclaunch plan`: plans with all details, and comparisons of plans."""
