"""A model of the engine's memory, to hold the recovery ladder against.

It is written from the engine's sources, apart from `speclaunch.engine.plan.memory`, and draws what the
budget can only estimate (graphs, activations, what CUDA and other processes take) at random, so
that the ladder is not tested against its own assumptions.
"""
