"""Advisories: known engine bugs by release and configuration.

Each is in `advisories/ID.yaml`. For fast loading, `data/advisories.json` has all of them
(`tools/advisories.py build`). An advisory is a rule: lint, plan, doctor, launch and the language
server report it, and ignore comments and baselines accept its ID.
"""
