"""Sweeps over many configurations, locally or on a cluster, with Hydra's launchers."""
