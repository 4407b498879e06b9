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
        key_of require_cells StoredBench
    """,
    "bench.stored_names": "directory stored_names LAST",
    "bench.workload": "Prompts RANDOM shipped workload",
    "certificates": "certificates_of",
    "contract.contract": "FIELDS served_contract",
    "contract.records": """
        CONTRACT ContractDocument ContractProgress FieldResult FieldRow StoredContract
    """,
    "prove.answers": "ProofPrompt ProofServer",
    "prove.proof": """
        LevelRecord Proof ProofDocument prove_answers reference sampled samples_agree
        served_dtype WrongRecord
    """,
    "prove.stored": "PROOF StoredAnswers StoredProof",
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
    "sweep.course": "refused_row require_launcher run_sweep",
    "sweep.jobs": "Folder Job JobOptions JobVerdict LOCAL Planned Row",
    "sweep.judging": "check_jobs",
    "tune.adaptive": "adaptive_words checked configuration require_adaptive",
    "tune.model": "Trial",
    "tune.objective": "Aim objective trial_models TuningObjective",
    "tune.search": "budget Expectation expectation first_settings next_trial ranked TuningBudget",
    "tune.space": """
        algorithm_of DraftSetting order_of override_words own_setting possible published_setting
    """,
    "tune.trials": """
        Compared stored_starts StoredStarts LoadRatio measure_setting OWN Protocol TrialStart
        TuningVerdict verdict Verified
    """,
    "tune.writing": "elsewhere require_own Tuned tuned",
    "watch.document": "WatchDocument WatchedEngine",
    "watch.history": "RankSpan",
    "watch.watcher": "wait_for_polls watch_targets watched_once watching WatchTarget",
}
__all__, __getattr__ = front_door(__name__, NAMES)
