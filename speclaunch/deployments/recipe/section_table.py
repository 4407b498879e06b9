"""The keys of a recipe by section: made by `tools/section_table.py` from `schema.py`.

A row a key: the kind of its values, its default (null: it may be null, `...`: it is required), and
the bounds, options, predicate or section of its kind. `sections.py` reads them.
"""

from __future__ import annotations

from typing import Any

# ruff: noqa: E501
# fmt: off
SECTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    'Engine': {
        'version': ('form', None, 'is_plain_version'),
        'requires': ('form', None, 'is_plain_version'),
        'python': ('text', None),
        'catalogue': ('text', None),
        'env': ('variables', {}),
    },
    'HardwareSection': {
        'name': ('hardware', 'auto'),
    },
    'VerificationSection': {
        'enabled': ('flag', True),
        'prompt': ('text', 'The capital of France is'),
        'max_new_tokens': ('integer', 32, {'ge': 2, 'le': 4096}),
        'timeout_seconds': ('number', 120, {'gt': 0}),
    },
    'EngineLog': {
        'max_mb': ('number', 256, {'gt': 0}),
        'keep': ('integer', 3, {'ge': 0, 'le': 1000}),
    },
    'Restart': {
        'policy': ('option', 'auto', ('auto', 'on-failure', 'never')),
        'first_delay_seconds': ('number', 1, {'ge': 0}),
        'longest_delay_seconds': ('number', 60, {'ge': 0}),
        'limit': ('integer', 5, {'ge': 1}),
        'window_seconds': ('number', 900, {'gt': 0}),
    },
    'WatchdogSection': {
        'enabled': ('flag', True),
        'interval_seconds': ('number', 20, {'gt': 0}),
        'timeout_seconds': ('number', 20, {'gt': 0}),
        'failures': ('integer', 3, {'ge': 1}),
    },
    'Agreement': {
        'directory': ('text', None),
        'job': ('text', None),
        'part': ('text', None),
        'parts': ('sizes', {}),
        'lease_seconds': ('number', 30, {'ge': 1}),
        'timeout_seconds': ('number', 600, {'gt': 0}),
    },
    'Launch': {
        'ready_timeout_seconds': ('number', 3600, {'gt': 0}),
        'grace_seconds': ('number', 8, {'ge': 0}),
        'log_dir': ('text', None),
        'keep_runs': ('integer', 100, {'ge': 0}),
        'share_gpus': ('flag', False),
        'log': ('section', {}, 'EngineLog'),
        'verify': ('section', {}, 'VerificationSection'),
        'watchdog': ('section', {}, 'WatchdogSection'),
        'restart': ('section', {}, 'Restart'),
        'agreement': ('section', {}, 'Agreement'),
    },
    'ServingSection': {
        'on_degraded': ('option', 'log', ('log', 'stop')),
    },
    'Floors': {
        'mem_fraction_static': ('number', 0.2, {'gt': 0, 'lt': 1}),
        'cuda_graph_max_bs_decode': ('integer', 2, {'ge': 1}),
        'speculative_num_steps': ('integer', 1, {'ge': 1}),
        'max_running_requests': ('integer', 4, {'ge': 1}),
        'chunked_prefill_size': ('integer', 1024, {'ge': 64}),
        'max_total_tokens': ('integer', 1024, {'ge': 1}),
    },
    'RecoveryLimits': {
        'mem_fraction_static': ('number', 0.98, {'gt': 0, 'lt': 1}),
    },
    'Objective': {
        'tokens_within': ('number', 0.2, {'ge': 0, 'lt': 1}),
    },
    'Recovery': {
        'policy': ('policy', 'off'),
        'max_attempts': ('integer', 8, {'ge': 1, 'le': 100}),
        'order': ('order', ('mem_fraction_static', 'cuda_graph_max_bs_decode', 'draft_tree', 'max_running_requests')),
        'floors': ('section', {}, 'Floors'),
        'limits': ('section', {}, 'RecoveryLimits'),
        'objective': ('section', {}, 'Objective'),
        'fraction_step': ('number', 0.1, {'gt': 0, 'lt': 1}),
        'minimal': ('arguments', {}),
    },
    'RoleSection': {
        'replicas': ('integer', 1, {'ge': 1, 'le': 1000}),
        'args': ('arguments', None),
        'engine': ('overlay', None),
        'hardware': ('overlay', None),
        'launch': ('overlay', None),
        'serving': ('overlay', None),
        'recovery': ('overlay', None),
    },
    'RouterSection': {
        'args': ('arguments', {}),
        'port': ('integer', 8000, {'ge': 1, 'le': 65535}),
        'replicas': ('integer', 1, {'ge': 1, 'le': 1000}),
    },
    'DeploySection': {
        'image': ('form', None, 'is_image'),
        'speclaunch': ('option', None, ('image', 'wheel', 'mounted')),
        'speclaunch_source': ('form', None, 'is_store'),
        'namespace': ('form', None, 'is_label'),
        'rdma': ('form', None, 'is_resource'),
        'models': ('form', None, 'is_model_store'),
        'model_cache': ('form', None, 'is_store'),
        'jit_cache': ('form', None, 'is_store'),
        'shared_dir': ('form', None, 'is_store'),
        'drain_seconds': ('integer', 120, {'ge': 0, 'le': 86400}),
        'monitoring': ('option', None, ('operator', 'annotations')),
        'slurm': ('arguments', {}),
    },
    'Deployment': {
        'name': ('text', ..., {'min_length': 1}),
        'args': ('arguments', ...),
        'description': ('text', ''),
        'engine': ('section', {}, 'Engine'),
        'hardware': ('section', {}, 'HardwareSection'),
        'launch': ('section', {}, 'Launch'),
        'serving': ('section', {}, 'ServingSection'),
        'recovery': ('section', {}, 'Recovery'),
        'roles': ('sections', {}, 'RoleSection'),
        'router': ('section', None, 'RouterSection'),
        'deploy': ('section', {}, 'DeploySection'),
        'lock': ('lock', None),
    },
}
