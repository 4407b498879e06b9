"""Engine behavior by version, with sources, in one module per topic.

Resolution, rules, memory budget, fit, ladder and diagnosis read engine facts here and do not repeat
them. Functions accept `Settings`: a Plan, or a plan that is being resolved.
"""
