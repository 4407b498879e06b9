"""Start, supervise, recover, diagnose; doctor; the CPU engine.

Other libraries import only these names. See README.md.
"""

from speclaunch.core import front_door

NAMES = {
    "cpu_engine.install": "install is_installed",
    "cpu_engine.process": "InstallStep StepState",
    "doctor.check_line": "CheckLine CheckSection CheckState count worst",
    "doctor.examine": "examine_machine",
    "doctor.gather": "DoctorRequest gather",
    "doctor.machine_facts": "RecipeNeeds",
    "doctor.target": "RecipeResults",
    "launch": "unfinished_work",
    "launch.apart": "hand_over Handed is_apart plan_apart ReopenedPlanner",
    "launch.attempts": "Conclusion exit_code",
    "launch.client": "EngineClient EngineError EngineResponse Verification",
    "launch.detach": "Announcer detach OUTPUT",
    "launch.diagnosis.diagnose": "diagnose proof",
    "launch.diagnosis.interface": "Diagnosis",
    "launch.diagnosis.known_bugs": "known_bugs",
    "launch.diagnosis.remedy": "meaning steps turns",
    "launch.free_port": "free_port",
    "launch.inputs": "engine_environment ensure_cpu_models new_run_dir",
    "launch.journal": "FILE LaunchState",
    "launch.journal_header": "command document recipe_diff",
    "launch.last_good": "LastGood",
    "launch.launch_run": "LaunchRun",
    "launch.log.lines": "Follower lines_of log_files read_log",
    "launch.log.marks": "Phase",
    "launch.log.phases": "PhaseStep PhaseTracker",
    "launch.preflight": """
        absent_paths here preflight PreflightResult require_predicted_fit with_other_roles
    """,
    "launch.process": "drop_guard prepare_guard",
    "launch.runs": "again default_directory find_run list_runs living prune Run",
    "launch.session": "Session",
    "launch.start": "PlannedLaunch Planner Rung",
    "launch.supervisor": "Ending",
}
__all__, __getattr__ = front_door(__name__, NAMES)
