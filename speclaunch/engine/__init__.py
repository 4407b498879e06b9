"""Behavior of an SGLang release: catalogue, facts, topics, resolution, memory.

Other libraries import only the names below. See README.md.
"""

from speclaunch.core import front_door

NAMES = {
    "facts.checkpoint_file": """
        CheckpointFile read_file facts_file home_of_facts is_outside stored_names models_folders
        project_root upward
    """,
    "facts.cpu_engine": """
        cpu_engine_home CpuEngine installation_key is_installed read_manifest RELEASES
        REQUIREMENTS requirements SGLANG_VERSION SHIM site_packages TORCH why_not_on_cpu
    """,
    "facts.engines": """
        choose_hardware Machine installed_catalogue declared listed named names overrides_pin
    """,
    "facts.facts": """
        Checkpoint FactSource merged Origin PartialConfig SHORT_DTYPES checkpoint_fact Facts
        UNKNOWN_HARDWARE UnknownFact UnknownValueError
    """,
    "facts.find_checkpoint": """
        expanded find_checkpoint gather hub_cache hub_home checkpoint_sources NOWHERE_ELSE
        Sources
    """,
    "facts.hardware": "AUTO declare Gpu Hardware hardware_names OtherProcess Vendor",
    "facts.hardware_probe": "probe_hardware",
    "facts.hub": "fetch_facts fetch_tensors revision_of HubRefusedError MAIN OFFLINE REFUSALS TRUE",
    "facts.known_models": """
        drafts_for foundation HUB_NAME ModelPair near_names partners_of targets_of
    """,
    "facts.missing_paths": "missing_paths MissingPath",
    "facts.packages": "InstalledPackage read_distributions Packages read_packages",
    "facts.project_settings": """
        assumption Assumptions EngineCheckMode Override PlacedText PROJECT_KEYS ProjectSettings
        read_settings SettingsFrom shown_path
    """,
    "facts.published_acceptance": """
        acceptance_reference acceptance_score AcceptanceReference published_acceptance
        published_summary PublishedAcceptance start_setting
    """,
    "facts.read_checkpoint": "from_config",
    "facts.record_checkpoint": "recorded store_facts",
    "facts.runtime": """
        download_wheel find_runtime NoEngineError pip_command pip_environment probe Runtime
        trust trust_all
    """,
    "facts.tensors": "TensorFacts",
    "facts.weight_files": "hash_files HashedFile revision_of_files TensorHeader",
    "plan": "division",
    "plan.about": "argument_names argument_values suggested_values About about value_kind",
    "plan.architectures": "architectures in_transformers LATENT",
    "plan.budget": """
        Fit MemoryBudget MemoryPhase MemoryShare MemoryUse RankBudget DEFAULT_LIMITS FitFloors
        FitLimits Steppable
    """,
    "plan.division": "Undivided",
    "plan.effective_arguments": """
        ArgumentOutcome BudgetNumber compare_budgets compare_rows effective_arguments
        EffectiveArgument is_idle PlanDifference
    """,
    "plan.fit": """
        Best best_for load_of RequestLoad Alternative alternatives binding cheapest needs
        suggest_fit Suggestion
    """,
    "plan.fit_predictor": """
        arguments steps_down Bounds BudgetOf Choice key Margins margins memory_at_start
        PlanWith Predictor shares tightest with_fraction
    """,
    "plan.fit_search": """
        cost format_setting format_settings WHY best candidate_of FitCandidate levels OBJECTIVE
        Search
    """,
    "plan.memory.budget": "budget memory_verdict",
    "plan.memory.phases": "EXPECTED",
    "plan.memory.terms": "context_length",
    "plan.placement": "beyond_the_gpus gpu_ranks gpus_needed local_gpus visible_gpus",
    "plan.plan": "ChangeKind Reason Plan",
    "plan.refusals": "refusals",
    "plan.request": """
        ArgvToken ENGINE_VARIABLES Request RequestedValue RequestOrigin Group Pod Probe
        ProbeKind Router Scrape Service Setting ServerContext Upstream Volume
    """,
    "plan.resolution.graphs": "captured_sizes",
    "plan.resolution.models": "dtype_of_both",
    "plan.resolution.working": "counted Working",
    "plan.resolve": "resolve",
    "plan.startup": """
        expected_start ExpectedStart start_time weight_files exists exists_on_worker generates
        LEAST_SECONDS least_seconds needs_key PATIENCE patience USUAL_PATIENCE waits_for_warmup
    """,
    "plan.topics": "attention gpu parallel spec_v2 speculation",
    "plan.topics.algorithms": """
        algorithm_names BLOCK_FAMILY BLOCKS blocks_need_rejection EAGLE_FAMILY EAGLE_HANDLER
        FIRST_WITH REJECTION RUNNING SPECULATIVE WHEN_SPECULATING
    """,
    "plan.topics.attention": """
        BACKENDS BEFORE_RENAMED BOTH DECODE DRAFT FA3_GIVES_WAY PHASES RENAMED_IN
        AMD_DROPS_CACHE backend_buffers BUFFERED CHOSEN has_states NEEDS_A_STATE STRATEGY
    """,
    "plan.topics.gpu": """
        DECODE_BACKEND DECODE_SWITCH MOST PREFILL_BY_DEFAULT SIZES draft_in_pool FIRST_IN_POOL
        FRACTION IN_POOL
    """,
    "plan.topics.parallel": """
        ATTENTION_RANKS attention_ranks beginning CONTEXT DFLASH DFLASH_CONTEXT DFLASH_HEAD
        DSPARK_CONTEXT DSPARK_HEAD dspark_is_spread HEAD HEAD_ALONE KnownRefusal NO_RANKS NODES
        OWN_ARGUMENT REPLICAS replicas REPLICAS_TOO
    """,
    "plan.topics.spec_v2": "FIRST_BY_DEFAULT FIRST_ONLY VARIABLE",
    "plan.topics.speculation": """
        ADAPTIVE_ALGORITHMS ASSISTANTS_SINCE COMPARES_VOCABULARIES draft_checkpoint draft_of
        own_path DRAFT_PATH STEPS TOKENS TOPK
    """,
    "plan.topics.target": """
        serves_adapters Absence absence method_of NAME architecture_of halved has_architecture
        target_of
    """,
    "releases": "catalogue forks",
    "releases.argument": "Argument ArgumentKind EngineVariable is_negation name_of",
    "releases.argv": "args_of ArgvProblem parse_argv ParsedArgument ParsedArguments",
    "releases.catalogue": """
        every_name remove_added add_fork add_from_package Ambiguous Catalogue FALSE_TEXTS
        held_versions history is_released_variable load released_names resolve_version
        TRUE_TEXTS
    """,
    "releases.command": """
        is_secret_argument is_secret_key is_secret_text is_written_secret MODULE render_args
        RenderedArgs RenderedArgument from_environment FromEnvironment Template unset_in
        VariableReference
    """,
    "releases.entrypoint": """
        CONFIG config_is_switch config_mapping config_refuses CONFIG_SINCE CONFIG_SUFFIXES
        dispatch since
    """,
    "releases.forks": "MARK",
    "releases.images": """
        official_image REPOSITORY ROUTER_IMAGE fork_with fork_with_algorithm KnownFork
    """,
    "releases.metrics": "Metric METRICS_PATH series_of",
    "releases.nearest": "distance nearest suggest",
    "releases.renames": """
        canonical current_name value_of BORROWED conversion dead_variable forwarded_variable
        other_names REMOVALS
    """,
    "releases.shell": "check_values argument_text exports shell_command Address nodes_of",
    "releases.versions": """
        ascending is_of_its_line is_version precedes ResolvedVersion UnknownVersion within
    """,
}
__all__, __getattr__ = front_door(__name__, NAMES)
