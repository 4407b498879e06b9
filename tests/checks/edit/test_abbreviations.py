"""Flags that are shortened, or that only some versions have: read for a version that had them."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclaunch.checks.edit.migrate import Migration, migrate_commands
from speclaunch.deployments.sources.files import read_text
from tests.support.loops import rows

SERVER = "python3 -m sglang.launch_server --model x"


def migrate(text: str, to: str = "0.5.23", source: str | None = None) -> Migration:
    return migrate_commands(text, read_text(text, "x.sh", ".sh"), to, source)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("written", "now"),
    [
        ("--speculative-draft d", "--speculative-draft-model-path d"),
        ("--speculative-draft=d", "--speculative-draft-model-path=d"),
        ("--attention triton", "--attention-backend triton"),
        ("--enable-metric", "--enable-metrics"),
        ("'--attention' triton", "'--attention-backend' triton"),
    ],
)
@pytest.mark.parametrize("source", [None, "0.4.8.post1"])
def test_a_shortened_flag_becomes_the_argument_that_it_stood_for(
    written: str, now: str, source: str | None
) -> None:
    text = f"{SERVER} {written} --tp 2\n"
    migration = migrate(text, source=source)
    assert not migration.problems
    assert migration.text == f"{SERVER} {now} --tp 2\n"


def test_the_draft_stays_the_draft() -> None:
    text = (
        "DRAFT=/models/draft\n"
        f"{SERVER} --speculative-algorithm EAGLE --speculative-draft $DRAFT \\\n  --tp 2\n"
    )
    migration = migrate(text)
    assert migration.text == text.replace("-draft $", "-draft-model-path $")
    (told,) = migration.origins
    assert told.text.startswith(
        "read as a command of SGLang 0.5.1.post3: the newest version that accepts"
    )


def test_what_is_ambiguous_is_the_engines_own_error_and_says_which_version_took_it() -> None:
    migration = migrate(f"{SERVER} --speculative-draft d\n", source="0.5.9")
    (problem,) = migration.problems
    assert problem.message.startswith(
        "SGLang 0.5.9 refuses this: ambiguous option: --speculative-draft could match "
    )
    assert problem.help == (
        "set --from 0.5.1.post3: "
        "SGLang 0.5.1.post3 reads --speculative-draft as --speculative-draft-model-path"
    )
    assert migration.text == f"{SERVER} --speculative-draft d\n"


def test_a_flag_of_other_versions_says_of_which() -> None:
    (problem,) = migrate(f"{SERVER} --enable-ep-moe\n", source="0.5.10.post1").problems
    assert problem.message == (
        "SGLang 0.5.10.post1 has no --enable-ep-moe: it exists from 0.4.6.post5 to 0.5.3.post3"
    )
    assert "removed --enable-ep-moe" in migrate(f"{SERVER} --enable-ep-moe\n").text


def test_the_image_says_the_version_before_anything_is_guessed() -> None:
    text = (
        "docker run lmsysorg/sglang:v0.4.8.post1-cu124 "
        "python3 -m sglang.launch_server --model-path x --attention triton\n"
    )
    migration = migrate(text)
    assert "--attention-backend triton" in migration.text
    assert not migration.origins  # nobody had to guess


def test_a_command_that_the_target_takes_is_left_whatever_it_is_said_to_be_from() -> None:
    text = f"{SERVER} --cuda-graph-max-bs-decode 8\n"
    migration = migrate(text, source="0.5.9")
    assert migration.text == text and not migration.problems
    assert "SGLang 0.5.9 refuses this command, but 0.5.23 accepts it" in migration.steps[0].text


@pytest.mark.parametrize(
    "rest",
    ["--attention-backend nope --cuda-graph-max-bs 8", "--tp two", "--speculative-num-steps"],
)
@pytest.mark.parametrize("source", [None, "0.5.9"])
def test_what_the_target_refuses_is_a_problem_and_changes_nothing(
    rest: str, source: str | None
) -> None:
    text = f"{SERVER} {rest}\n"
    migration = migrate(text, source=source)
    assert migration.problems and migration.text == text


def test_a_choice_that_is_gone_is_a_problem() -> None:
    text = f"{SERVER} --load-balance-method minimum_tokens --cuda-graph-max-bs 8\n"
    migration = migrate(text, source="0.5.3")
    (problem,) = migration.problems
    assert problem.message.startswith("SGLang 0.5.23 refuses this: argument --load-balance-method")
    assert problem.place is not None and problem.place.column == len(SERVER) + 2
    assert migration.text == text


@rows(
    "text, kept",
    [
        (f"X=int4\n{SERVER} --torchao-config $X --tp 2\n", "X=int4\n"),
        (f'X="int4"\n{SERVER} --tp 2 --torchao-config "$X"\n', 'X="int4"\n'),
        (f"A=(--torchao-config int4)\n{SERVER} --tp 2 ${{A[@]}}\n", "A=(--torchao-config int4)\n"),
        (f'O="--torchao-config int4"\n{SERVER} $O --tp 2\n', 'O="--torchao-config int4"\n'),
    ],
)
def test_no_definition_is_emptied(text: str, kept: str) -> None:
    migration = migrate(text)
    assert not migration.problems
    assert migration.text.startswith(kept)
    (invocation,) = read_text(migration.text, "x.sh", ".sh").invocations
    assert [word.text for word in invocation.words] == ["--model", "x", "--tp", "2"]


def test_a_default_that_changed_is_told() -> None:
    steps = migrate(f"{SERVER}\n", source="0.5.3").steps
    (told,) = [step.text for step in steps if step.text.startswith("defaults that changed")]
    assert "load_balance_method round_robin → auto" in told
    steps = migrate(f"{SERVER} --load-balance-method round_robin\n", source="0.5.3").steps
    assert not any("load_balance_method" in step.text for step in steps)


def test_spec_v2_is_set_for_its_own_command_only() -> None:
    eagle = "--speculative-algorithm EAGLE"
    text = f"cd /x &&\nnohup {SERVER} {eagle} &\n{SERVER} --port 1\n"
    migration = migrate(text, "0.5.12", "0.5.7")
    first, second = read_text(migration.text, "x.sh", ".sh").invocations
    assert first.env["SGLANG_ENABLE_SPEC_V2"].text == "False"
    assert not second.env
    assert f"nohup env SGLANG_ENABLE_SPEC_V2=False {SERVER}" in migration.text


def test_commands_that_share_a_definition_stay_one(tmp_path: Path) -> None:
    text = f'A=(--cuda-graph-max-bs 8)\n{SERVER} "${{A[@]}}"\n{SERVER} --port 1 "${{A[@]}}"\n'
    migration = migrate(text)
    assert migration.text == text.replace("-bs", "-bs-decode")


@pytest.mark.parametrize("note", ["", "  # note"])
@pytest.mark.parametrize("quote", ["", '"', "'"])
def test_items_of_a_list_go_with_their_line(quote: str, note: str) -> None:
    kept = (
        "services:\n  s:\n    command:\n      - python3\n      - -m\n      - sglang.launch_server\n"
        "      - --model-path\n      - m\n"
    )
    gone = "".join(
        f"      - {quote}{item}{quote}{note}\n"
        for item in ("--torchao-config", "int4", "--ds-channel-config-path=a")
    )
    text = f"{kept}{gone}      - --tp\n      - '2'\n"
    migration = migrate_commands(text, read_text(text, "x.yaml", ".yaml"), "0.5.23")
    assert not migration.problems
    lines = [line for line in migration.text.splitlines() if "# removed" not in line]
    assert "\n".join(lines) + "\n" == f"{kept}      - --tp\n      - '2'\n"


def test_what_is_added_to_a_definition_may_go() -> None:
    text = f'A=(--tp 2)\nA+=(--torchao-config int4)\n{SERVER} "${{A[@]}}"\n'
    migration = migrate(text)
    assert not migration.problems
    assert "A=(--tp 2)\nA+=()\n" in migration.text


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_end_where_the_shell_ends_them(end: str) -> None:
    above = f"echo a\x0cb\u2028c{end}"
    text = f"{above}{SERVER} --torchao-config int4 --attention triton{end}echo \x0b{end}"
    # bash takes a CRLF for text; the tool that fills in a template may not
    shown = "x.sh" if end == "\n" else "x.sh.example"
    migration = migrate_commands(text, read_text(text, shown), "0.5.23", None)
    assert not migration.problems
    reason = "# removed --torchao-config: 0.5.18 removed torchao quantization"
    assert migration.text == (
        f"{above}{reason}{end}{SERVER} --attention-backend triton{end}echo \x0b{end}"
    )


def test_an_array_of_nothing_but_what_goes_is_not_used_any_more() -> None:
    text = f'V=int4\nA=(\n  --torchao "$V"\n)\n{SERVER} "${{A[@]}}" --tp 2\n'
    migration = migrate(text)
    assert not migration.problems
    assert f"{SERVER} --tp 2\n" in migration.text and migration.text.startswith("V=int4\nA=(\n  --")
    (told,) = [step.text for step in migration.steps if "removed" in step.text]
    assert told.startswith("removed --torchao-config (written --torchao): 0.5.18 removed")


def test_what_a_function_is_given_stays_where_it_is_counted() -> None:
    text = (
        f'serve() {{\n  {SERVER} --torchao-config "$2" --port "$1" "${{@:3}}"\n}}\n'
        "serve 80 int4 --tp 2\n"
    )
    migration = migrate(text)
    assert not migration.problems
    assert migration.text.endswith("serve 80 int4 --tp 2\n")
    assert f'  {SERVER} --port "$1" "${{@:3}}"\n' in migration.text


def test_what_else_an_array_holds_is_not_lost() -> None:
    text = f'R="--tp 2"\nA=(--torchao-config=int4 $R)\n{SERVER} "${{A[@]}}"\n'
    migration = migrate(text)
    assert not migration.problems
    assert "A=($R)\n# removed --torchao-config" in migration.text
    assert f'{SERVER} "${{A[@]}}"\n' in migration.text


@rows(
    "words, becomes",
    [
        ("--tp 8 --enable-ep-moe", "--tp 8 --ep-size=8"),
        ("--ep-size 2 --tp-size=4 --enable-ep-m", "--ep-size 2 --tp-size=4 --ep-size=4"),
        ("--tp $TP --enable-ep-moe", "--tp $TP"),  # nobody knows the number here
        ("--enable-ep-moe", ""),
    ],
)
def test_a_switch_for_the_value_of_another_argument(words: str, becomes: str) -> None:
    """0.5.1 sets ep_size to tp_size for it, whatever was given."""
    migration = migrate(f"{SERVER} {words}\n", to="0.5.23", source="0.5.1")
    assert not migration.problems
    assert migration.text.splitlines()[-1].rstrip() == f"{SERVER} {becomes}".rstrip()
    said = " ".join(step.text for step in migration.steps)
    assert ("set ep_size to the value of tp_size instead" in said) is ("=" not in becomes)
    assert ("is now --ep-size" in said) is ("=" in becomes)


def test_a_switch_that_a_later_word_overrules_is_refused() -> None:
    migration = migrate(f"{SERVER} --tp 8 --enable-ep-moe --ep-size 2\n", source="0.5.1")
    assert migration.problems and migration.text.endswith("--ep-size 2\n")


MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {{name: p}}
spec:
  containers:
  - name: engine
    image: lmsysorg/sglang:v{image}
    command: [python3, -m, sglang.launch_server, --model-path, x]
    args: ["--speculative-draft", "d", "--tp", "2"]
"""
COMPOSE = """\
services:
  engine:
    image: lmsysorg/sglang:v{image}
    command: [python3, -m, sglang.launch_server, --model-path, x, --speculative-draft, d]
"""


@pytest.mark.parametrize("manifest", [MANIFEST, COMPOSE])
@pytest.mark.parametrize(
    ("image", "to", "refused"),
    [
        ("0.5.23", "0.5.9", True),  # ambiguous at both
        ("0.5.9", "0.5.23", True),
        ("0.5.1", "0.5.23", False),  # one thing at the image's
        ("0.5.23", "0.5.1", False),  # a deployment that did not start is mended
        ("0.5.23", "0.5.23", False),  # the image was changed before the words
    ],
)
def test_what_the_version_of_the_image_refuses_is_refused(
    manifest: str, image: str, to: str, refused: bool
) -> None:
    text = manifest.format(image=image)
    migration = migrate_commands(text, read_text(text, "m.yaml", ".yaml"), to)
    assert bool(migration.problems) is refused
    if refused:
        assert "ambiguous option: --speculative-draft" in migration.problems[0].message
        assert migration.text == text
