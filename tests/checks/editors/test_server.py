"""The language server, asked through the protocol by a client that is not ours."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from lsprotocol import types

from tests.checks.editors.editor import UTF_8, UTF_16, UTF_32, Editor, applied, edit
from tests.support import program

RECIPE = """\
defaults:
  - base
  - model: meta_llama31_8b
  - speculation: eagle3_tree
  - _self_
engine:
  version: "0.5.9"
args:
  mem_fraction_statik: 0.7
"""
SCRIPT = """\
#!/bin/bash
python3 -m sglang.launch_server \\
  --model-path m --speculative-nun-steps 3
"""


@pytest.mark.thorough
def test_the_same_findings_as_lint_at_the_same_places(tmp_path: Path) -> None:
    texts = {
        "recipe.yaml": RECIPE,
        "serve.sh": SCRIPT,
        "compose.yaml": "services:\n  a:\n    image: lmsysorg/sglang:v0.5.9\n    command: python3 -m"
        " sglang.launch_server --model-path m --tp-sise 2\n",
        "README.md": "# Serving\n\n```bash\npython -m sglang.launch_server --model-path m --tp-sise 2\n```\n",
    }

    async def script(editor: Editor) -> None:
        for name, text in texts.items():
            editor.open(name, text)  # nothing is on the disk
        for name, text in texts.items():
            shown = await editor.shown(name, bool)
            (tmp_path / name).write_text(text)
            done = program.run("lint", name, "--output-format", "json", cwd=tmp_path)
            told = [
                # what a group says is shown where the recipe chooses its option
                (
                    one["code"],
                    *((one["line"] - 1, one["column"] - 1) if one["path"] == name else (3, 17)),
                )
                for file in json.loads(done.stdout)["files"]
                for one in file["findings"]
            ]
            found = [(one.code, one.range.start.line, one.range.start.character) for one in shown]
            assert sorted(found) == sorted(told) and found, name
            (tmp_path / name).unlink()

    edit(tmp_path, script)


@pytest.mark.thorough
@pytest.mark.parametrize("encoding", [UTF_8, UTF_16, UTF_32], ids=str)
def test_columns_are_in_the_units_that_were_agreed_on(
    tmp_path: Path, encoding: types.PositionEncodingKind
) -> None:
    line = "python -m sglang.launch_server --served-model-name 'ä€😀' --model-path m --tp-sise 2\n"
    before = line[: line.index("--tp-sise")]
    widths = {
        UTF_8: len(before.encode()),
        UTF_16: len(before.encode("utf-16-le")) // 2,
        UTF_32: len(before),
    }

    async def script(editor: Editor) -> None:
        editor.open("a.sh", line, "shellscript")
        (one,) = [d for d in await editor.shown("a.sh", bool) if d.code == "SPL001"]
        start, end = one.range.start, one.range.end
        assert (start.line, start.character) == (0, widths[encoding])
        assert end.character - start.character == len("--tp-sise")
        assert "SPL001" in await editor.hover("a.sh", 0, start.character + 1)

    edit(tmp_path, script, encodings=(encoding,))


@pytest.mark.thorough
def test_what_is_typed_counts_and_not_what_is_on_the_disk(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(SCRIPT.replace("--speculative-nun-steps 3", ""))

    async def script(editor: Editor) -> None:
        editor.open("a.sh", SCRIPT, "shellscript")
        assert "SPL001" in await editor.codes("a.sh", "SPL001")
        editor.change("a.sh", SCRIPT.replace("--speculative-nun-steps 3", ""))
        await editor.shown("a.sh", lambda some: not any(one.code == "SPL001" for one in some))
        for text in ("python3 -m sg", "python3 -m sglang.launch_server --", SCRIPT):
            editor.change("a.sh", text)  # faster than anything is checked
        await editor.codes("a.sh", "SPL001")
        editor.close("a.sh")
        await editor.shown("a.sh", lambda some: not some)

    edit(tmp_path, script)


@pytest.mark.thorough
def test_a_group_that_is_not_saved_counts_for_a_recipe(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    group = "# @package args\nmodel_path: m\n"
    (tmp_path / "model" / "ours.yaml").write_text(group)
    recipe = "defaults:\n  - model: ours\n  - _self_\nargs:\n  port: 1\n"
    needs_hydra = recipe.replace("port: 1", "port: ${oc.decode:'2'}")

    async def script(editor: Editor) -> None:
        for name, text in (("r.yaml", recipe), ("hydra.yaml", needs_hydra)):
            editor.open(name, text)
            await editor.shown(name, lambda some: all(one.code != "SPL001" for one in some))
        editor.open("model/ours.yaml", group + "tp_sise: 2\n")
        for name in ("r.yaml", "hydra.yaml"):
            editor.save(name)
            found = await editor.shown(name, lambda some: any(one.code == "SPL001" for one in some))
            (one,) = [d for d in found if d.code == "SPL001"]
            assert one.range.start.line == 1 and one.related_information is not None
            where = one.related_information[0].location
            assert where.uri == editor.uri("model/ours.yaml") and where.range.start.line == 2

    edit(tmp_path, script)


@pytest.mark.thorough
def test_a_finding_says_what_why_and_what_to_do(tmp_path: Path) -> None:
    async def script(editor: Editor) -> None:
        editor.open("a.sh", SCRIPT, "shellscript")
        (one,) = [d for d in await editor.shown("a.sh", bool) if d.code == "SPL001"]
        assert one.severity is types.DiagnosticSeverity.Error and one.source == "speclaunch"
        assert "why: " in one.message and "--speculative-num-steps" in one.message
        assert one.code_description is None  # no address of the documentation is configured

    edit(tmp_path, script)


@pytest.mark.thorough
def test_hovers_tell_of_rules_arguments_variables_and_keys(tmp_path: Path) -> None:
    recipe = (
        RECIPE.replace("mem_fraction_statik", "cuda_graph_max_bs") + "launch:\n  grace_seconds: 9\n"
    )
    recipe = recipe.replace('"0.5.9"\n', '"0.5.14"\n  env:\n    SGLANG_ENABLE_SPEC_V2: "1"\n')

    async def script(editor: Editor) -> None:
        editor.open("r.yaml", recipe)
        await editor.shown("r.yaml", bool)
        lines = recipe.splitlines()
        at = lines.index("  cuda_graph_max_bs: 0.7")
        told = await editor.hover("r.yaml", at, 5)
        assert "whole number" in told and "`cuda_graph_max_bs_decode`" in told and "0.5.14" in told
        assert "SPL003" in told  # the finding there, with its rule
        at = lines.index('    SGLANG_ENABLE_SPEC_V2: "1"')
        assert "SPL203" in await editor.hover("r.yaml", at, 8)
        at = lines.index("  grace_seconds: 9")
        assert "SIGTERM" in await editor.hover("r.yaml", at, 4)
        assert await editor.hover("r.yaml", 0, 0) == ""
        editor.open("a.sh", SCRIPT.replace("nun", "num"), "shellscript")
        await editor.shown("a.sh", bool)
        assert "speculative_num_steps" in await editor.hover("a.sh", 2, 20)
        assert await editor.hover("a.sh", 0, 3) == ""

    edit(tmp_path, script)


@pytest.mark.thorough
def test_completion_in_recipes(tmp_path: Path) -> None:
    async def script(editor: Editor) -> None:
        editor.open("r.yaml", RECIPE)
        await editor.shown("r.yaml", bool)
        text = RECIPE.replace("  mem_fraction_statik: 0.7\n", "  spec\n")
        editor.change("r.yaml", text)
        line = text.splitlines().index("  spec")
        found = await editor.complete("r.yaml", line, 6)
        one = found["speculative_num_steps"]
        assert one.detail == "whole number"
        assert one.text_edit is not None and one.text_edit.new_text == "speculative_num_steps: "
        assert one.text_edit.range.start.character == 2  # type: ignore[union-attr]
        assert "speculative_use_block_verification" not in found  # 0.5.9 does not have it
        for word, wanted in (("attention_backend: fl", "flashinfer"), ("trust_remote_code: ", "true"),
                             ("speculative_algorithm: ", "EAGLE3")):  # fmt: skip
            editor.change("r.yaml", text.replace("  spec\n", f"  {word}\n"))
            assert wanted in await editor.complete("r.yaml", line, len(word) + 2), word
        for written, line_, column, wanted in (
            ("defaults:\n  - \nargs: {}\n", 1, 4, "model"),
            ("defaults:\n- \nargs: {}\n", 1, 2, "override model"),
            ("defaults:\n  - speculation: eag\nargs: {}\n", 1, 20, "eagle3_tree"),
            ("defaults: []\nargs: {}\nlaunch:\n  gra\n", 3, 5, "grace_seconds"),
            ("args: {}\nlaunch:\n  verify:\n    enabled: \n", 3, 13, "true"),
            ("args: {}\nrec\n", 1, 3, "recovery"),
            ("args: {}\nrecovery:\n  policy: \n", 2, 10, "budget"),
            ("args: {}\nrecovery:\n  order:\n    - \n", 3, 6, "draft_tree"),
            ("args: {}\nengine:\n  env:\n    SGL\n", 3, 7, "SGLANG_ENABLE_SPEC_V2"),
            ("args: {}\nengine:\n  version: \n", 2, 11, '"0.5.9"'),
        ):
            editor.change("r.yaml", written)
            assert wanted in await editor.complete("r.yaml", line_, column), written
        editor.change("r.yaml", "args: {}\n# args: sp\n")
        assert await editor.complete("r.yaml", 1, 10) == {}
        editor.open("model/ours.yaml", "# @package args\nspec\n")
        assert "speculative_num_steps" in await editor.complete("model/ours.yaml", 1, 4)

    edit(tmp_path, script)


@pytest.mark.thorough
def test_completion_of_flags(tmp_path: Path) -> None:
    async def script(editor: Editor) -> None:
        editor.open(
            "a.sh", "python3 -m sglang.launch_server --model-path m \\\n  --spec\n", "shellscript"
        )
        found = await editor.complete("a.sh", 1, 8)
        one = found["--speculative-num-steps"].text_edit
        assert isinstance(one, types.TextEdit) and one.new_text == "--speculative-num-steps"
        assert one.range == types.Range(types.Position(1, 2), types.Position(1, 8))
        editor.change("a.sh", "python3 -m sglang.launch_server --attention-backend fl")
        assert "flashinfer" in await editor.complete("a.sh", 0, 54)
        editor.change("a.sh", "python3 -m sglang.launch_server --attention-backend=fl")
        assert "flashinfer" in await editor.complete("a.sh", 0, 54)
        editor.change("a.sh", "python3 train.py --sglang-spec")
        assert "--sglang-speculative-num-steps" in await editor.complete("a.sh", 0, 30)
        editor.change("a.sh", "ls --spec")
        assert await editor.complete("a.sh", 0, 9) == {}
        compose = "services:\n  a:\n    command:\n      - sglang.launch_server\n      - --attention-backend\n      - fl\n"
        editor.open("compose.yaml", compose)
        assert "flashinfer" in await editor.complete("compose.yaml", 5, 10)

    edit(tmp_path, script)


@pytest.mark.thorough
def test_quick_fixes_mend_and_a_comment_ignores(tmp_path: Path) -> None:
    script_text = "#!/bin/bash\npython3 -m sglang.launch_server --model-path m \\\n  --tp-sise 2\n"

    async def script(editor: Editor) -> None:
        for name, text, code in (
            ("r.yaml", RECIPE, "SPL001"),
            ("a.sh", script_text, "SPL001"),
            ("README.md", f"# A\n\n```bash\n{script_text}```\n", "SPL001"),
            ("one.sh", "python3 -m sglang.launch_server --model-path m --tp-sise 2\n", "SPL001"),
        ):
            editor.open(name, text)
            found = [d for d in await editor.shown(name, bool) if d.code == code]
            ignore = [a for a in await editor.actions(name, found) if a.title.startswith("Ignore")]
            assert len(ignore) == 1, name
            after = applied(text, ignore[0])
            assert "# speclaunch: ignore[SPL001] TODO: why" in after
            editor.change(name, after)
            gone = {code, "SPL091", "SPL092"}
            await editor.shown(name, lambda some, gone=gone: not gone & {str(d.code) for d in some})  # type: ignore[misc]

    edit(tmp_path, script)


@pytest.mark.thorough
def test_settings_of_the_editor_count_and_wrong_ones_are_told(tmp_path: Path) -> None:
    async def script(editor: Editor) -> None:
        editor.open("a.sh", SCRIPT, "shellscript")
        found = await editor.shown("a.sh")
        assert not [one for one in found if one.code == "SPL001"]
        said = " ".join(one.message for one in editor.client.messages)
        assert "unknown option 'hardwre': did you mean `hardware`" in said and "engine" in said

    edit(tmp_path, script, options={"ignore": ["SPL001"], "hardwre": "h100", "engine": "9.9.nine"})


@pytest.mark.thorough
def test_nothing_that_is_no_deployment_is_complained_about(tmp_path: Path) -> None:
    async def script(editor: Editor) -> None:
        for name, text in (
            ("mkdocs.yml", "plugins: [search\n"), ("empty.yaml", ""), ("a.json", "{"),
            ("notes.md", "sglang is mentioned here\n"), ("values.yaml", "args: 3\nfoo: {{ x }}\n"),
        ):  # fmt: skip
            editor.open(name, text)
            shown = await editor.shown(name)
            assert name == "values.yaml" or shown == [], name

    edit(tmp_path, script)


@pytest.mark.thorough
def test_broken_huge_and_odd_documents_leave_it_running(tmp_path: Path) -> None:
    async def script(editor: Editor) -> None:
        for name, text in (
            ("deep.yaml", "args: " + "[" * 5000), ("quote.sh", "sglang.launch_server --model-path 'm\n"),
            ("cr.sh", "python3 -m sglang.launch_server \\\r  --tp-sise 2\r"),
            ("odd.sh", "python3 -m sglang.launch_server --model-path \ud7ff\u2028 --tp-sise 2\n"),
            ("big.sh", "# sglang\n" + "echo a\n" * 400_000),
        ):  # fmt: skip
            editor.open(name, text)
            await editor.shown(name)
            assert await editor.hover(name, 10**6, 10**6) == ""
            await editor.complete(name, 10**6, 5)
        editor.open("a.sh", SCRIPT, "shellscript")
        await editor.codes("a.sh", "SPL001")

    edit(tmp_path, script)


@pytest.mark.thorough
def test_requests_for_what_is_not_open_have_an_answer(tmp_path: Path) -> None:
    async def script(editor: Editor) -> None:
        assert await editor.hover("never.yaml", 3, 3) == ""
        await editor.complete("never.yaml", 0, 0)
        editor.client.text_document_did_close(
            types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(editor.uri("never.yaml")))
        )
        editor.open("a.sh", SCRIPT, "shellscript")
        await editor.codes("a.sh", "SPL001")

    edit(tmp_path, script)


def serve(given: bytes, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "speclaunch", "lsp", "--stdio"],
        input=given,
        cwd=cwd,
        capture_output=True,
        timeout=60,
    )


def framed(**message: object) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.thorough
def test_it_ends_when_its_input_does(tmp_path: Path) -> None:
    assert serve(b"", tmp_path).returncode == 0
    capabilities = {"capabilities": {}, "processId": None, "rootUri": None}
    begun = framed(id=1, method="initialize", params=capabilities)
    done = serve(begun, tmp_path)
    assert done.returncode == 0 and done.stdout.startswith(b"Content-Length: ")
    ended = serve(begun + framed(id=2, method="shutdown") + framed(method="exit"), tmp_path)
    assert ended.returncode == 0
    abrupt = serve(begun + framed(method="exit"), tmp_path)
    assert abrupt.returncode == 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    "noise",
    [b"hello\r\n\r\n", b"Content-Length: x\r\n\r\n{}", b"Content-Length: 9\r\n\r\n{not json"],
)
def test_what_is_no_message_is_no_crash(tmp_path: Path, noise: bytes) -> None:
    capabilities = {"capabilities": {}, "processId": None, "rootUri": None}
    begun = framed(id=1, method="initialize", params=capabilities)
    done = serve(noise + begun + framed(id=2, method="shutdown") + framed(method="exit"), tmp_path)
    assert done.returncode in (0, 1)
    assert b"Traceback" not in done.stdout


def test_a_crash_in_one_request_is_logged_and_the_next_is_answered() -> None:
    from speclaunch.checks.editors import server as module

    async def run() -> None:
        async def broken(server: object, params: object) -> str:
            raise RuntimeError("odd")

        assert await module._guarded(broken)(None, None) is None  # type: ignore[arg-type]

    asyncio.run(run())


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from speclaunch.app.verbs import integrations
    from speclaunch.app.verbs.change_options import LspOptions
    from speclaunch.core.errors import InputError

    monkeypatch.setattr(integrations, "find_spec", lambda name: None)
    with pytest.raises(InputError) as caught:
        integrations.lsp(LspOptions())
    assert caught.value.problems[0].help == "pip install 'speclaunch[lsp]'"


FIXABLE = """\
engine: {version: "0.5.23"}
args:
  model_path: meta-llama/Llama-3.1-8B-Instruct  # ours
  speculative_algorithm: EAGLE3
  speculative_draft_model_path: jamesliu1/sglang-EAGLE3-Llama-3.1-Instruct-8B
  speculative_num_steps: 3
  speculative_eagle_topk: 1
  speculative_num_draft_tokens: 9
"""


@pytest.mark.thorough
def test_a_quick_fix_is_the_fix_of_lint_for_the_text_that_is_typed(tmp_path: Path) -> None:
    script_text = (
        "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct \\\n"
        "  --served-model-name 'ä€' --speculative-algorithm EAGLE3 --speculative-num-steps 3 \\\n"
        "  --speculative-draft-model-path jamesliu1/sglang-EAGLE3-Llama-3.1-Instruct-8B \\\n"
        "  --speculative-eagle-topk 1 --speculative-num-draft-tokens 9\n"
    )
    (tmp_path / "r.yaml").write_text("args: {model_path: something-else}\n")  # not what is typed

    async def script(editor: Editor) -> None:
        for name, text, after in (
            ("r.yaml", FIXABLE, FIXABLE.replace("tokens: 9", "tokens: 4")),
            ("new.yaml", FIXABLE, FIXABLE.replace("tokens: 9", "tokens: 4")),
            ("a.sh", script_text, script_text.replace("tokens 9", "tokens 4")),
        ):
            editor.open(name, text)
            found = [d for d in await editor.shown(name, bool) if d.code == "SPL105"]
            (fix,) = [a for a in await editor.actions(name, found) if a.is_preferred]
            assert fix.title.startswith("Set it to 4") and fix.kind == "quickfix"
            assert applied(text, fix) == after
            every = await editor.actions(name, found, "source.fixAll")
            assert [one.kind for one in every] == ["source.fixAll.speclaunch"]
            assert applied(text, every[0]) == after
            editor.change(name, after)
            await editor.shown(name, lambda some: all(d.code != "SPL105" for d in some))
            assert await editor.actions(name, found, "source.fixAll") == []

    edit(tmp_path, script)
    assert (tmp_path / "r.yaml").read_text() == "args: {model_path: something-else}\n"


@pytest.mark.thorough
def test_the_settings_of_the_repository_count(tmp_path: Path) -> None:
    settings = tmp_path / "speclaunch.toml"
    settings.write_text('ignore = ["SPL001"]\n')

    async def script(editor: Editor) -> None:
        editor.open("a.sh", SCRIPT, "shellscript")
        found = await editor.shown("a.sh")
        assert "SPL001" not in {one.code for one in found}
        settings.write_text('exclude = ["a.sh"]\n')
        editor.save("a.sh")
        await editor.shown("a.sh", lambda some: not some)
        settings.write_text('ignore = ["SPL903"]\nhardwre = "h100"\n')
        editor.save("a.sh")
        found = await editor.shown("a.sh", lambda some: [d.code for d in some] == ["SPL000"])
        (one,) = found
        assert "hardwre" in one.message and one.related_information is not None
        assert one.related_information[0].location.uri == editor.uri("speclaunch.toml")

    edit(tmp_path, script)


@pytest.mark.thorough
def test_an_option_of_a_group_is_checked_through_its_recipes(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "ours.yaml").write_text("# @package args\nmodel_path: m\n")
    (tmp_path / "speclaunch.toml").write_text('config-dir = "conf"\n')
    recipe = "defaults:\n  - base\n  - model: ours\n  - _self_\nargs: {port: 1}\n"
    (tmp_path / "r.yaml").write_text(recipe)

    async def script(editor: Editor) -> None:
        editor.open("conf/model/ours.yaml", "# @package args\nmodel_path: m\ntp_sise: 2\n")
        (one,) = [d for d in await editor.shown("conf/model/ours.yaml", bool) if d.code == "SPL001"]
        assert one.range.start == types.Position(2, 0)
        editor.change("conf/model/ours.yaml", "# @package args\nmodel_path: m\n")
        await editor.shown(
            "conf/model/ours.yaml", lambda some: "SPL001" not in {d.code for d in some}
        )

    edit(tmp_path, script)


@pytest.mark.thorough
def test_what_the_baseline_knows_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.sh").write_text(SCRIPT)
    assert (
        program.run("lint", "a.sh", "--write-baseline", "known.json", cwd=tmp_path).returncode == 0
    )
    (tmp_path / "speclaunch.toml").write_text('baseline = "known.json"\n')

    async def script(editor: Editor) -> None:
        editor.open("a.sh", SCRIPT, "shellscript")
        assert await editor.shown("a.sh") == []
        editor.change("a.sh", SCRIPT.replace("nun-steps 3", "nun-steps 3 --tp-sise 2"))
        await editor.codes("a.sh", "SPL001")

    edit(tmp_path, script)
