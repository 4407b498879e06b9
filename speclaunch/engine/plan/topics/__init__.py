"""Engine behavior by topic, by version and with sources, one module per topic.

Resolution, rules, memory budget, fit, ladder and diagnosis read engine facts here and do not repeat
them. Functions accept `Settings`: a Plan, or one that is being resolved.
"""
