"""Read and write recipes and server commands, with the place of every value.

Other libraries import only the names below. See README.md.
"""

from speclaunch.core import front_door

NAMES = {
    "recipe.compose": "compose",
    "recipe.find_recipe": """
        find_recipe group_options override_key recipe_names recipe_of_lock recipes
        shown_overrides similar_file split_recipe SUFFIX with_overrides
    """,
    "recipe.hydra_compose": "sweep_words SweepJob",
    "recipe.json_schema": "recipe_schema",
    "recipe.load": """
        fit_limits load load_sound_part Recipe require_host select_role validate of_role
        role_names
    """,
    "recipe.lock": """
        Lock lock_differences LockDifference LockedCertificate LockedCheckpoint LockedEngine
        LockedHardware LockSubject
    """,
    "recipe.lock_file": """
        accept_lengths image_of lock_and_recipe of_this_host read_lock record recipe_differences
        with_lock_differences lock_text
    """,
    "recipe.schema": """
        Agreement Deployment Engine Launch Recovery Restart VerificationSection WatchdogSection
    """,
    "recipe.section_table": "SECTIONS",
    "recipe.sections": "Key plain_class ENV_NAME RecoveryPolicy",
    "recipe.source": """
        compose_node events Composition MAX_FILE_BYTES read_positions read_source
        RecipeProvenance SourceFile
    """,
    "sources": "nodes vllm",
    "sources.comments": "comments_of",
    "sources.deployment": "Imported to_deployment",
    "sources.effective_words": "effective followed settled",
    "sources.files": "read_file read_template read_text read_with_named_files read_words",
    "sources.interface": """
        Default Invocation InvocationKind NothingFoundError Reading recipe_name Word
    """,
    "sources.pods": "byte_count",
    "sources.recipe_text": "closing filled_in group_option options_with recipe_text RecipeLine",
    "sources.requests": "from_invocation from_recipe",
    "sources.sglang_yaml": "read_sglang_yaml",
    "sources.slime": "bare prefixed OWN",
    "sources.source_text": """
        DOCUMENT_SUFFIXES is_dockerfile is_template KUSTOMIZATIONS looks_like_yaml MAX_BYTES
        MAX_PROGRAM_BYTES NOTEBOOK_SUFFIX PYTHON_SUFFIX starts_a_program template_of
        TEMPLATE_SUFFIXES YAML_SUFFIXES Document
    """,
    "sources.wrappers": "image_release image_version tagged_version",
    "targets.assemble": "assemble Assembled settings_of RENDERERS",
    "targets.interface": "Baseline RenderedCommand Renderer Rendering Role ALL_ADDRESSES",
    "targets.launching": "launch_words",
    "targets.one_host": "SET_BY_SLIME",
    "targets.prepare": "prepare Prepared",
}
__all__, __getattr__ = front_door(__name__, NAMES)
