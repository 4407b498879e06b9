"""Many configurations, one after the other or on a cluster: jobs of Hydra's own launchers."""
