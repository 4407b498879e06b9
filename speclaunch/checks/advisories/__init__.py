"""Advisories: known engine bugs by release and configuration.

`advisories/ID.yaml` holds each, `data/advisories.json` all of them, for quick reading
(`tools/advisories.py build`). An advisory is a rule: lint, plan, doctor, launch and the language
server report it, and ignore comments and baselines accept its ID.
"""
