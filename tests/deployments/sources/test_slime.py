"""slime's `--sglang-…` options, in the shapes in which slime's scripts and documents have them."""

from __future__ import annotations

from pathlib import Path

from speclaunch.deployments.sources.files import read_markdown, read_shell, read_words
from speclaunch.deployments.sources.interface import InvocationKind
from speclaunch.engine.releases.catalogue import held_versions, load
from tests.support.deployments.sources.helpers import at, dropped, env, lint_text, shell, texts
from tests.support.loops import rows

ARRAY = """\
SGLANG_ARGS=(
   --rollout-num-gpus-per-engine 8
   --sglang-mem-fraction-static 0.7
   --sglang-cuda-graph-bs 1 2 4 8 $(seq 16 8 32)

   # mtp
   --sglang-speculative-algorithm EAGLE
   --sglang-dtype=float16  # as the draft
   --sglang-server-concurrency 1024
   --sglang-router-ip 10.0.0.1
   --sglang-config groups.yaml
   --debug-rollout-only
)
"""
WORDS = [
    "--mem-fraction-static",
    "0.7",
    "--cuda-graph-bs",
    "1",
    "2",
    "4",
    "8",
    "16",
    "24",
    "32",
    "--speculative-algorithm",
    "EAGLE",
    "--dtype=float16",
]
EXTRAS = {
    "--rollout-num-gpus-per-engine": "8",
    "--sglang-server-concurrency": "1024",
    "--sglang-router-ip": "10.0.0.1",
    "--sglang-config": "groups.yaml",
    "--debug-rollout-only": "--debug-rollout-only",
}


def test_an_array_that_nothing_uses() -> None:
    found = shell(ARRAY)
    assert found.kind is InvocationKind.SLIME
    assert texts(found) == WORDS
    assert {name: word.text for name, word in found.extras.items()} == EXTRAS
    assert [comment.text for comment in found.comments] == ["mtp", "as the draft"]
    assert (found.place.line, found.place.column) == (3, 4)
    assert at(found.words[0]) == (3, 4)
    assert at(found.words[1]) == (3, 33)
    assert at(found.extras["--rollout-num-gpus-per-engine"]) == (2, 34)


def test_a_training_command() -> None:
    script = (
        "export CUDA_LAUNCH_BLOCKING=1\n"
        "CKPT=(\n  --hf-checkpoint /m\n  --load /m_slime\n)\n"
        + ARRAY
        + """\
RUNTIME_ENV_JSON="{
  \\"env_vars\\": {
    \\"SGLANG_ENABLE_SPEC_V2\\": \\"1\\",
    \\"NVLS\\": \\"${HAS_NVLINK}\\"
  }
}"
ray job submit --address="http://127.0.0.1:8265" --runtime-env-json="${RUNTIME_ENV_JSON}" \\
   -- python3 train.py --colocate --lr 1e-6 \\
   ${MODEL_ARGS[@]} ${CKPT[@]} ${SGLANG_ARGS[@]}
"""
    )
    found = shell(script)
    assert texts(found) == WORDS
    assert at(found.words[0]) == (8, 4)
    extras = {name: word.text for name, word in found.extras.items()}
    assert extras == {"--colocate": "--colocate", "--hf-checkpoint": "/m"} | EXTRAS
    assert env(found) == {
        "CUDA_LAUNCH_BLOCKING": "1", "SGLANG_ENABLE_SPEC_V2": "1", "NVLS": "${HAS_NVLINK}",
    }  # fmt: skip
    assert at(found.env["SGLANG_ENABLE_SPEC_V2"]) == (21, 34)
    assert not found.env["NVLS"].evaluated
    assert "--lr 1e-6" in dropped(found)
    assert "${MODEL_ARGS[@]}" in dropped(found)
    assert [word.text for word in found.program][-2:] == ["python3", "train.py"]


def test_the_draft_without_the_prefix_is_a_problem() -> None:
    script = "A=(\n  --sglang-speculative-algorithm EAGLE\n  --speculative-draft-model-path /d\n)\n"
    reading = read_shell(script, "x.sh")
    (found,), (problem,) = reading.invocations, reading.problems
    assert texts(found) == ["--speculative-algorithm", "EAGLE"]
    assert problem.place is not None
    assert (problem.place.line, problem.place.column) == (3, 3)
    assert "`--sglang-speculative-draft-model-path`" in problem.message
    assert dropped(found) == ["--speculative-draft-model-path /d"]


def test_a_guide_with_fragments() -> None:
    guide = """\
# Guide

Run with:

```bash
--sglang-speculative-algorithm EAGLE
--sglang-speculative-num-steps 3
```

and also pass:

```bash
--speculative-draft-model-path /your/draft
```

```bash
# this can help debug
--debug-rollout-only

# use fa3
--sglang-attention-backend fa3
```
"""
    reading = read_markdown(guide, "guide.md")
    first, second = reading.invocations
    assert texts(first) == ["--speculative-algorithm", "EAGLE", "--speculative-num-steps", "3"]
    assert at(first.words[0]) == (6, 1)
    assert texts(second) == ["--attention-backend", "fa3"]
    assert list(second.extras) == ["--debug-rollout-only"]
    (problem,) = reading.problems
    assert problem.place is not None
    assert problem.place.line == 13


def test_a_text_variable_and_a_command_line() -> None:
    found = shell('SGLANG_ARGS="--sglang-dtype half\n --sglang-tp-size 2"\n')
    assert texts(found) == ["--dtype", "half", "--tp-size", "2"]
    assert at(found.words[2]) == (2, 2)
    (given,) = read_words(["python", "train.py", "--sglang-dtype", "half", "--x"]).invocations
    assert texts(given) == ["--dtype", "half"]


def test_an_option_about_a_server_is_none_for_an_engine() -> None:
    for words in (
        "profile.py --sglang-url http://x:30000",
        "diff.py --sglang-dir /tmp/x --limit 3",
        "smoke.py --sglang-url http://x:30000 --sglang-model a/b",
        "smoke.py --sglang-model a/b",
        "bench.py --sglang-host x --sglang-port 30000",
        "bench.py --sglang-api python --sglang-batch-mode grouped --sglang-pipeline-x 1",
    ):
        assert not read_words(["python", *words.split()]).invocations
    script = "A=(--out x)\nif [ $S ]; then A+=(--sglang-source $S); fi\ncollect.py ${A[@]}\n"
    assert not read_shell(script, "x.sh").invocations
    for words in (
        "train.py --sglang-new x",
        "rl.py --sglang-tp 2",
        "rl.py --sglang-mem-fraction 0.7",
        "rl.py --no-sglang-enable-mixed-chunk",
        "rl.py --sglang-router-port 1",
    ):
        assert len(read_words(["python", *words.split()]).invocations) == 1


def test_an_array_used_twice_is_not_told_a_third_time() -> None:
    script = ARRAY + "python train.py ${SGLANG_ARGS[@]}\npython train.py --y ${SGLANG_ARGS[@]}\n"
    assert len(read_shell(script, "x.sh").invocations) == 2


def test_options_without_sglang_are_nothing() -> None:
    assert (
        read_shell("A=(--lr 1 --speculative-x 2)\npython train.py ${A[@]}\n", "x").invocations == ()
    )


def test_the_trainers_own_options_are_no_server_arguments() -> None:
    own = (
        "--sglang-router-ip=10.0.0.1",
        "--sglang-router-port 3333",
        "--sglang-router-policy consistent_hashing",
        "--sglang-router-request-timeout-secs 60",
        "--sglang-server-concurrency 512",
        "--sglang-config groups.yaml",
        "--no-sglang-lora-use-virtual-experts",
    )
    text = f"ARGS=(\n{chr(10).join(own)}\n--sglang-tp-size 2\n)\npython3 train.py ${{ARGS[@]}}\n"
    found = shell(text)
    assert texts(found) == ["--tp-size", "2"]
    assert {option.split()[0].partition("=")[0] for option in own} <= set(found.extras)


def test_the_checkpoint_that_the_engines_of_relax_serve() -> None:
    arrays = "A=(--sglang-hf-checkpoint /a --hf-checkpoint /b)\nB=(--sglang-dp-size 2)\n"
    found = shell(f"{arrays}python3 train.py ${{A[@]}} ${{B[@]}}\n")
    assert texts(found) == ["--dp-size", "2"]
    assert found.extras["--hf-checkpoint"].text == "/a"


def test_arguments_of_the_engines_for_evaluation_are_said_not_to_be_judged() -> None:
    found = shell(
        "ARGS=(\n  --sglang-tp-size 2\n  --eval-sglang-mem-fraction-static 0.9\n"
        "  --no-eval-sglang-enable-dp-attention\n)\npython3 train.py ${ARGS[@]}\n"
    )
    assert texts(found) == ["--tp-size", "2"]
    why = {item.text: item.why for item in found.dropped}
    assert "evaluation engines only" in why["--eval-sglang-mem-fraction-static 0.9"]
    assert "evaluation engines only" in why["--no-eval-sglang-enable-dp-attention"]
    assert not any("eval" in name for name in found.extras)


@rows(
    "command",
    [
        'python -u "${ROOT}/train_diffusion.py" ${SGLANG_ARGS[@]} --hf-checkpoint /m',
        "python3 train.py --diffusion-model-family wan ${SGLANG_ARGS[@]}",
        "python3 train.py ${SGLANG_ARGS[@]} --rollout-function-path "
        "miles.rollout.sglang_diffusion_rollout.generate_rollout",
        "ray job submit -- python3 train_diffusion.py ${SGLANG_ARGS[@]}",
    ],
)
def test_the_server_of_images_is_no_engine_of_ours(command: str) -> None:
    """miles' `--sglang-…` are arguments of `sglang.multimodal_gen` there."""
    text = f"SGLANG_ARGS=(--sglang-dit-precision bf16 --sglang-server-concurrency 4)\n{command}\n"
    reading = read_shell(text, "x.sh")
    assert (reading.invocations, reading.problems) == ((), ())


def test_lines_of_options_for_the_server_of_images() -> None:
    text = "--diffusion-kl-beta 0.02 \\\n--sglang-dit-precision bf16\n"
    assert read_shell(text, "x.sh").invocations == ()


def test_no_release_has_an_argument_for_the_router() -> None:
    flags = {flag for v in held_versions() for a in load(v).arguments.values() for flag in a.flags}
    assert not [flag for flag in flags if flag.startswith(("--router-", "--server-concurrency"))]


def test_the_engines_flags_without_the_prefix_do_not_reach_it() -> None:
    script = (
        "python3 train.py --hf-checkpoint /m --sglang-dtype half \\\n"
        "  --tp-size 8 --max-running-requests=5 --mem-fraction-static 0.7 --cuda-graph-bs 1 2 \\\n"
        "  --lr 1e-6 --seed 1 --attention-backend flash --tensor-model-parallel-size 2 --bf16\n"
    )
    reading = read_shell(script, "x.sh")
    (found,) = reading.invocations
    lost = ["--tp-size 8", "--max-running-requests=5", "--mem-fraction-static 0.7"]
    lost += ["--cuda-graph-bs 1 2"]
    said = {one.text: one.why for one in found.dropped}
    for whole in lost:
        assert "does not reach the engine" in said[whole]
    for whole in ("--lr 1e-6", "--attention-backend flash", "--tensor-model-parallel-size 2"):
        assert "slime-only" in said[whole]
    assert [problem.help for problem in reading.problems] == [
        "use --rollout-num-gpus-per-engine",
        "use --sglang-max-running-requests",
        "use --sglang-mem-fraction-static",
        "use --sglang-cuda-graph-bs",
    ]
    assert [problem.place.column for problem in reading.problems if problem.place] == [
        3,
        15,
        40,
        66,
    ]


def test_what_megatron_or_torchrun_may_have_too_is_no_problem() -> None:
    words = (
        "--attention-backend flash --context-length 8 --dtype x --port 1 --nnodes 2 --log-level x"
    )
    reading = read_shell(f"python3 train.py --sglang-dtype half {words}\n", "x.sh")
    assert not reading.problems


def test_a_part_of_a_guide_does_not_say_how_many_gpus_an_engine_has(tmp_path: Path) -> None:
    options = "--sglang-enable-dp-attention --sglang-dp-size 8"
    part = lint_text(f"```bash\n{options.replace(' --', chr(10) + '--')}\n```\n", "x.md", tmp_path)
    assert not [finding for finding in part if finding.code == "SPL256"]
    complete = lint_text(f"python train.py {options}\n", "x.sh", tmp_path)
    assert [finding for finding in complete if finding.code == "SPL256"]
