"""Shared basics for all libraries: places, problems, bounded reads, processes, files and secrets.

Other libraries import only the names below. See README.md.
"""

from speclaunch.core.front_door import front_door

NAMES = {
    "": "children errors reads resources",
    "errors": """
        COMMAND_LINE ExitCode from_here InputError LaunchError Place Problem SpeclaunchError
    """,
    "files": """
        EntryFiles locked make_private json_value replace_file replacing try_lock undone_on_error
        write_json write_temporary advisories_home distrust expand_user JUDGE_RECORD judges_home
        require_own speclaunch_home
    """,
    "heartbeat": "amount announced_bytes beating duration EVERY_SECONDS Growth Heartbeat",
    "http_reader": "collect HttpError HttpReader LateError UnboundedError",
    "reads": "bounded Reads",
    "reads.bounded": """
        is_endless open_regular read_or_none read_regular read_stream reason TooLargeError
    """,
    "reads.safe_json": """
        is_directory is_file is_shallow LARGEST mapping MAX_CONFIG_BYTES MAX_INDEX_BYTES
        MAX_TOKENIZER_BYTES MOST_BYTES number parse_document parse_object read_json read_object
        read_start size sizes text texts UnreadableFileError
    """,
    "reads.states": "Now digest",
    "resources": "conf_dir docs_url models_dir recipes_dir rule_pages_dir shipped",
    "safe_text": """
        CommandGuard obeys_commands single_line printable without_colors lazy HIDDEN
        holds_secret is_literal_secret is_secret_flag is_secret_variable literals masked redact
        Redactor VALUE_PATTERNS
    """,
}
__all__, __getattr__ = front_door(__name__, NAMES)
