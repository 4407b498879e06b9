"""Engine behavior by topic, by version and with sources: one module a topic.

The resolution, the rules, the memory budget, the fit, the ladder and the diagnosis read a fact here
and restate none. Functions accept `Settings`: a Plan, or one that is being resolved.
"""
