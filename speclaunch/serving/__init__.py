"""Launch, supervision, recovery and diagnosis of engines; machine checks; the CPU engine.

Other libraries import only the names below. See README.md.
"""

from speclaunch.core import front_door

NAMES = {
    "cpu_engine.install": "install",
    "cpu_engine.on_demand": "make_room mark_on_demand note_use on_demand_engines remove_engine",
    "cpu_engine.programs": "InstallStep StepState",
    "doctor.checks": "check_machine",
    "doctor.facts": "CheckLine CheckSection CheckState count worst RecipeNeeds",
    "doctor.gather": "DoctorRequest gather RecipeResults",
    "launch": "unfinished_work",
    "launch.attempts": "Conclusion exit_code",
    "launch.client": "EngineClient EngineError EngineRefusalError Verification",
    "launch.diagnosis.diagnose": "diagnose proof",
    "launch.diagnosis.interface": "Diagnosis",
    "launch.diagnosis.known_bugs": "known_bugs",
    "launch.diagnosis.remedy": "meaning remedy_steps setting_changes",
    "launch.engine_log": "Follower lines_of log_files read_log Phase",
    "launch.inputs": """
        engine_environment ensure_cpu_models new_run_dir command document recipe_diff
    """,
    "launch.journal": "default_directory FILE LaunchState LastGood",
    "launch.launch_run": "LaunchRun",
    "launch.lock": "differences_now lock_request LockRequest write_lock",
    "launch.phases": "PhaseStep PhaseTracker",
    "launch.planner": """
        fork_planner hand_over in_planner_process PlannerResult ReopenedPlanner PlannedLaunch
        Planner Rung
    """,
    "launch.preflight": """
        absent_paths local_lookup preflight PreflightResult require_predicted_fit
        with_other_roles
    """,
    "launch.process": "Announcer detach OUTPUT drop_guard prepare_guard",
    "launch.runs": """
        free_port find_run list_runs prune reread_run Run running_launches
    """,
    "launch.session": "Session",
    "launch.supervisor": "Ending",
    "metrics": """
        AcceptanceChange AcceptanceSample AcceptanceTest decode_batch EngineMetrics
        NoMetricsError RankMetrics read_loads read_metrics USUAL_INTERVAL
    """,
}
__all__, __getattr__ = front_door(__name__, NAMES)
