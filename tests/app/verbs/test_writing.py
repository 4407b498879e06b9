"""No verb writes what another refuses: findings, exit codes, and the files afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import program

SERVER = "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct "
DRAFT = "jamesliu1/sglang-EAGLE3-LLaMA3.1-Instruct-8B"


@pytest.mark.thorough
def test_an_abbreviation_does_not_pin_an_old_release(tmp_path: Path) -> None:
    words = f"{SERVER}--speculative-algo EAGLE3 --speculative-draft {DRAFT}".split()
    done = program.run("import", "--", *words, cwd=tmp_path)
    assert done.returncode == 0 and "version: 0.5.23" in done.stdout
    assert f"speculative_draft_model_path: {DRAFT}" in done.stdout
    assert "refuses --speculative-draft" in done.stderr


@pytest.mark.thorough
def test_import_takes_the_nearest_release_of_an_unknown_one(tmp_path: Path) -> None:
    done = program.run("import", "--engine", "0.5.0rc2", "--", *SERVER.split(), cwd=tmp_path)
    assert done.returncode == 0 and "version: 0.5.0rc2" in done.stdout
    assert "note: SGLang 0.5.0rc2 is not a known release; 0.4.10.post2" in done.stderr
    (tmp_path / "run.sh").write_text(f"docker run lmsysorg/sglang:v0.4.3-cu124 {SERVER}\n")
    done = program.run("import", "run.sh", cwd=tmp_path)
    assert done.returncode == 0 and "version: 0.4.3" in done.stdout
    assert "older than every known release" in done.stderr
    (tmp_path / "recipe.yaml").write_text(done.stdout)
    assert program.run("lint", "recipe.yaml", cwd=tmp_path).returncode == 0


@pytest.mark.thorough
def test_an_error_of_the_source_is_reported_and_imported(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"{SERVER}--speculative-algorithm EAGLE3\n")
    assert program.run("lint", "run.sh", cwd=tmp_path).returncode == 1
    for words in (("import", "run.sh"), ("import", "run.sh", "--to-dir", "out")):
        done = program.run(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "error[SPL404]" in done.stderr and "the source already has 1 error" in done.stderr
    assert (tmp_path / "out" / "run.yaml").is_file()
    done = program.run("import", "run.sh", "--to-dir", "out", cwd=tmp_path)
    assert done.returncode == 2 and "--overwrite" in done.stderr
    done = program.run("import", "run.sh", "--to-dir", "out", "--overwrite", cwd=tmp_path)
    assert done.returncode == 0


@pytest.mark.thorough
def test_render_refuses_what_lint_calls_an_error(tmp_path: Path) -> None:
    target = tmp_path / "out.yaml"
    small = ("speculation=ngram", "--hardware", "rtx4090:2")
    for words, code in (
        (["mtp_glm46", "args.mem_fraction_static=83"], "SPL710"),
        (["dflash_llama8b", "args.speculative_algorithm=EAGLE3"], "SPL407"),
        (["pd_mtp_deepseek_v3", "--hardware", "rtx4090:8"], "SPL711"),
        (["mtp_mimo7b", "args.model_path=meta-llama/Llama-3.3-70B-Instruct", *small], "SPL711"),
    ):
        asked = ["render", *words, "--to", "kubernetes", "-o", target]
        done = program.run(*asked, cwd=tmp_path)
        assert done.returncode == 1 and f"error[{code}]" in done.stderr, (words, done.stderr)
        assert not target.exists() and not done.stdout
        done = program.run(*asked, "--force", cwd=tmp_path)
        assert done.returncode == 0 and f"error[{code}]" in done.stderr, (words, done.stderr)
        assert "written despite" in done.stderr and target.read_text()
        target.unlink()


@pytest.mark.thorough
def test_render_refuses_an_image_of_another_release(tmp_path: Path) -> None:
    words = ("render", "ngram_qwen7b", "--to", "kubernetes", "--engine", "0.5.20")
    for image, code in (
        ("lmsysorg/sglang:v0.5.20", 0),
        ("lmsysorg/sglang:v0.5.23-cu129", 1),
        ("mine/sglang:0.5.19", 1),
        ("mine/engine:7", 0),
    ):
        done = program.run(*words, f"deploy.image={image}", cwd=tmp_path)
        assert (done.returncode, "rendered version is 0.5.20" in done.stderr) == (
            code,
            bool(code),
        ), image
        forced = program.run(*words, f"deploy.image={image}", "--force", cwd=tmp_path)
        assert forced.returncode == 0 and image in forced.stdout
    shell = ("render", "ngram_qwen7b", "--to", "shell", "--engine", "0.5.20")
    done = program.run(*shell, "deploy.image=lmsysorg/sglang:v0.5.23", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
def test_render_warns_of_a_server_that_answers_anyone(tmp_path: Path) -> None:
    said = "on all interfaces without an API key"
    for words, is_warned in (
        (["eagle3_llama8b", "--to", "kubernetes"], True),
        (["eagle3_llama8b", "--to", "kubernetes", "+args.api_key=${oc.env:KEY}"], False),
        (["eagle3_llama8b", "--to", "shell"], False),
        (["eagle3_llama8b", "--to", "shell", "args.host=0.0.0.0"], True),
        (["pd_mtp_deepseek_v3", "--to", "kubernetes"], True),
    ):
        done = program.run("render", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert (said in done.stderr) is is_warned, words
        assert done.stderr.count(said) <= 1 and said not in done.stdout


MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {{name: p}}
spec:
  containers:
  - name: engine
    image: {image}   # was lmsysorg/sglang:v0.5.9
    command: [python3, -m, sglang.launch_server, --model-path, x, --cuda-graph-max-bs, "8"]
"""


@pytest.mark.thorough
def test_migrate_carries_an_official_image_and_refuses_any_other(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    old, new = "lmsysorg/sglang:v0.5.9", "lmsysorg/sglang:v0.5.23"
    for image, given in (
        (old, new),
        (f"docker.io/{old}", f"docker.io/{new}"),
        (f"{old}-cu126", new),
        (f"{old}-rocm700-mi35x", f"{new}-rocm700-mi35x"),
        (f"registry.example/{old}", None),
        (f"{old}@sha256:{'0' * 64}", None),
        (f"{old}-npu-a3", None),
        ("lmsysorg/sglang:latest", "lmsysorg/sglang:latest"),
    ):
        file.write_text(MANIFEST.format(image=image))
        done = program.run("migrate", "pod.yaml", "--to", "0.5.23", cwd=tmp_path)
        becomes = given or image
        if given is None:
            assert done.returncode == 1 and "no image of its kind" in done.stderr, (
                image,
                done.stderr,
            )
            assert file.read_text() == MANIFEST.format(image=image)
            done = program.run("migrate", "pod.yaml", "--to", "0.5.23", "--force", cwd=tmp_path)
        assert done.returncode == 0 and "wrote pod.yaml" in done.stderr, (image, done.stderr)
        text = MANIFEST.format(image=becomes).replace("max-bs", "max-bs-decode")
        assert file.read_text() == text
        assert ("check the driver" in done.stderr) is image.endswith("cu126")
    file.write_text(MANIFEST.format(image=old))
    assert program.run("migrate", "pod.yaml", "--to", "0.5.23", cwd=tmp_path).returncode == 0
    assert program.run("lint", "pod.yaml", cwd=tmp_path).returncode == 0


@pytest.mark.thorough
def test_migrate_carries_the_image_of_a_recipe(tmp_path: Path) -> None:
    text = (
        "defaults: [base]\nengine: {version: '%s'}\ndeploy:\n  image: '%s'\nargs: {model_path: x}\n"
    )
    file = tmp_path / "r.yaml"
    file.write_text(text % ("0.5.9", "lmsysorg/sglang:v0.5.9"))
    done = program.run("migrate", "r.yaml", "--to", "0.5.23", cwd=tmp_path)
    assert done.returncode == 0 and "deploy.image is now lmsysorg/sglang:v0.5.23" in done.stderr
    assert file.read_text() == text % ("0.5.23", "lmsysorg/sglang:v0.5.23")
    file.write_text(text % ("0.5.9", "mine/sglang:v0.5.9"))
    done = program.run("migrate", "r.yaml", "--to", "0.5.23", cwd=tmp_path)
    assert done.returncode == 1 and file.read_text() == text % ("0.5.9", "mine/sglang:v0.5.9")


@pytest.mark.thorough
def test_migrate_refuses_a_new_error_and_reports_an_old_one(tmp_path: Path) -> None:
    """NGRAM has no pipeline stages in any release; plain DP attention changed with them."""
    file = tmp_path / "run.sh"
    broken = f"{SERVER}--speculative-algorithm EAGLE3 --cuda-graph-max-bs 8\n"
    file.write_text(broken)
    done = program.run("migrate", "run.sh", "--to", "0.5.23", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "error[SPL404]" in done.stderr and "the source already has 1 error" in done.stderr
    assert file.read_text() == broken.replace("max-bs", "max-bs-decode")
