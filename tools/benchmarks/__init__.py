"""What speclaunch costs, as ratios to reference commands on the same files, in one run."""
