"""Bench, prove, tune, sweep, and the advice of init, drafts and plan --fit.

Other libraries import only the names below. See README.md.
"""

from speclaunch.core import front_door

NAMES = {
    "advice.checkpoints": """
        check CheckpointSources ComparedFacts FACTS FactsState pulled read_stored sources_of
        fact_value checkpoints_to_pull inspect_checkpoint Inspection
    """,
    "advice.drafts": "DraftListing find_target ListedWay listing WayMemory Way",
    "advice.new_recipe": """
        file_stem forced_recipe ForcedRecipe new_recipe NewRecipe NotWrittenError RecipeRequest
        version_for
    """,
    "advice.placing": "in_gib",
    "advice.plan_requests": """
        compared_in_turn PlanComparison DeploymentPlan exit_code planned_side plans_of_roles
        RolePlan roles_exit_code sides unanswered requested_load with_roles
    """,
    "advice.planned_deployment": """
        Advice Fitting EngineCheck BatchCoverage BatchSpan Coverage NoCoverage PlannedDeployment
    """,
    "bench.certificate": "certificate single cost_of read write",
    "bench.comparison": """
        measure Schedule Serving Step steps WARM_UP estimate seconds_left starts_due
        TimeEstimate
    """,
    "bench.engines": """
        end_on_signals EngineOrder MeasuredEngine next_log Running RunningSide server_info
    """,
    "bench.load_generators": """
        Aiperf find_aiperf require_aiperf require_measurable EnginePython generator_interpreter
        SglangGenerator Generators LoadGenerator
    """,
    "bench.measurement": "Objection objections bounds Round Interval LEAST_PAIRS",
    "bench.published": "speculation_profile with_published",
    "bench.schema": """
        arguments difference CellDifferenceRecord CellRecord CertificateDocument
        DifferenceDocument MeasuredRecord NumbersRecord RatioRecord SideMemory SideRecord
        SingleCellRecord SingleDocument
    """,
    "bench.sides": """
        AnySide baseline candidate LaunchedSide NONE require_baseline server SideOptions
        with_room
    """,
    "bench.stored": """
        begin_bench BenchListing find_certificate find_measured stored_benches stored_documents
        key_of require_cells StoredBench certificates_of
    """,
    "bench.stored_names": "directory stored_names LAST",
    "bench.workload": "Prompts RANDOM shipped workload",
    "prove.answers": "ProofPrompt ProofServer PROOF StoredAnswers StoredProof",
    "prove.contract": "FIELDS served_contract",
    "prove.contract_servers": """
        CONTRACT ContractDocument ContractProgress FieldResult FieldRow StoredContract
    """,
    "prove.proof": """
        LevelRecord Proof ProofDocument prove_answers reference sampled samples_agree
        served_dtype WrongRecord
    """,
    "releases.bisect": """
        BisectProgress BisectTask releases_between search StoredBisect bisect_document
        BisectDocument DependencyRecord
    """,
    "releases.launched": "plan_here recipe_for EngineSupply interpreters",
    "releases.search": "check_of most_starts SearchOutcome",
    "releases.upgrade": """
        DeploymentUpgrade directory_upgrades file_upgrades recipe_upgrades UpgradeSettings
        Aspect UpgradeReason UpgradeVerdict
    """,
    "releases.upgrade_run": """
        DeploymentRecord RunRecord upgrade_document UpgradeDocument ValueRecord run_reasons
        run_releases StoredUpgrade UpgradeProgress
    """,
    "sweep_jobs": "Folder Job JobOptions JobVerdict LOCAL Planned Row check_jobs",
    "sweep_run": "refused_row require_launcher run_sweep",
    "tune.model": """
        Trial Aim objective trial_models TuningObjective algorithm_of DraftSetting order_of
        override_words own_setting possible published_setting
    """,
    "tune.trials": """
        budget Expectation expectation first_settings next_trial ranked TuningBudget Compared
        stored_starts StoredStarts LoadRatio measure_setting OWN Protocol TrialStart
        TuningVerdict verdict Verified
    """,
    "tune.writing": """
        adaptive_words checked configuration require_adaptive elsewhere require_own Tuned tuned
    """,
    "watch": "wait_for_polls watch_targets watched_once watching WatchTarget",
    "watch_history": "WatchDocument WatchedEngine RankSpan",
}
__all__, __getattr__ = front_door(__name__, NAMES)
