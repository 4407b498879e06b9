"""Sweeps: many configurations run in sequence or on a cluster, as jobs of Hydra's launchers."""
