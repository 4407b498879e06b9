"""What the engine does about a topic, by version and with its sources: one module a topic.

The resolution, the rules, the memory budget, the fit, the ladder and the diagnosis read a fact here
and restate none. A topic is asked with `Settings`: a Plan, or one that is still being resolved.
"""
