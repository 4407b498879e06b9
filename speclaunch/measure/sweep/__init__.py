"""Sweeps: many configurations in sequence or on a cluster, as jobs of Hydra's launchers."""
