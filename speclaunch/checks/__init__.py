"""Rules, lint, proven edits, the engine check, and editor support.

Other libraries import only the names below. See README.md.
"""

from speclaunch.core import front_door

NAMES = {
    "advisory": "Advisory advisory_of all_advisories",
    "advisory_database": "encode_advisories update_advisories osv_document",
    "advisory_records": "RequestField Symptom",
    "edit.checked_text": """
        composed data_of fixed_recipe against check_source check_text configured OutputCheck
    """,
    "edit.edits": """
        apply Edit FileEdits Insertion lines_of shown_diff ShownDiff write_atomically
        write_together NotFixableError
    """,
    "edit.fix_files": """
        edits_of FixedFile counted fixable_paths fixed_files in_bytes independent_files written
    """,
    "edit.import_recipes": "chosen import_all import_command",
    "edit.migrate": "is_outdated Migration",
    "edit.migrate_file": "file_bytes migrate_data",
    "edit.migrate_recipe": "is_recipe migrate_recipe",
    "edit.render_check": "check_rendering exposed plan_rendering rendered",
    "editors.server": "run_and_leave",
    "engine_check.add_judge": "add",
    "engine_check.engine_judge": "JsonWorker WorkerError",
    "engine_check.installed_judges": "added_judges AddedJudge cpu_judge remove",
    "engine_check.mode": "ask_mode querier_for has_judges identity interpreter",
    "engine_check.opinions": "Contradiction with_engine_values EngineQuerier",
    "lint.baseline": "all_findings Covered without_known write_baseline",
    "lint.cache": "FOLDER installed_engine opened remembered_engine",
    "lint.collect": "LintedFile read_found",
    "lint.configuration": """
        Configuration find_files FoundFile LintSettings Options options STDIN STDIN_SHOWN
    """,
    "lint.engine_findings": "engine_findings",
    "lint.left_out": "LeftOut",
    "lint.lint_files": "LintRun",
    "lint.recipe_findings": "findings_across unsilenced",
    "lint.report": """
        fingerprints fingerprints_by_message deduplicate FileReport for_versions KnownCheckpoint
        Report ReportedFinding
    """,
    "lint.run": "check",
    "rules.examine": """
        check_plan check_request check_rules CheckedRequest Lookup PreflightError
    """,
    "rules.interface": """
        Applicability Finding Fix in_order RuleResults Severity SkippedRule Rule Page page
        page_url
    """,
    "rules.loading": "TensorComparison",
    "rules.messages": "rule_of",
    "rules.model_loaders": "drafts_itself",
    "rules.performance": "decodes_without_graphs",
    "rules.registry": """
        all_rules by_code codes FILE_CODES FileCode is_selected REFUSES selected
    """,
    "rules.table": "RULES",
    "rules.tensors": "subject",
    "rules.values": "OVERWRITE runs_on_cpu tree_capacity",
}
__all__, __getattr__ = front_door(__name__, NAMES)
