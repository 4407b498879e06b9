"""Engine behavior by topic and version, with its sources: one module per topic.

Resolution, rules, memory budget, fit, ladder and diagnosis read engine facts here and do not
restate them. The functions accept `Settings`: a Plan, or a plan that is still being resolved.
"""
