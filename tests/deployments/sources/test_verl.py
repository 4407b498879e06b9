"""verl's overrides, in the shapes in which verl's scripts have them."""

from __future__ import annotations

from itertools import pairwise

from speclaunch.deployments.sources.files import read_shell
from speclaunch.deployments.sources.interface import Invocation, InvocationKind
from tests.support.deployments.sources.helpers import dropped, env, shell, texts
from tests.support.loops import rows

ROLLOUT = "actor_rollout_ref.rollout."
ENGINE = f"+{ROLLOUT}engine_kwargs.sglang."
MTP = "actor_rollout_ref.model.mtp."
SCRIPT = f"""\
DRAFT=${{DRAFT:-d}}
ROLLOUT=(
  {ROLLOUT}name=sglang
  {ROLLOUT}tensor_model_parallel_size=2
  {ROLLOUT}gpu_memory_utilization=0.6
  {ROLLOUT}max_num_seqs=64
  {ENGINE}speculative_algorithm=EAGLE3
  {ENGINE}speculative_draft_model_path="$DRAFT"
  {ENGINE}attention_backend='"fa3"'
  {ENGINE}mem_fraction_static=0.7
  {ENGINE}disable_cuda_graph=False
  {ENGINE}enable_metrics=True
)
python3 -m verl.trainer.main_ppo --config-name=ppo \\
  actor_rollout_ref.model.path=Qwen/Qwen3-4B data.train_batch_size=32 "${{ROLLOUT[@]}}" EXTRA
"""
"""An array of overrides. `EXTRA` stands for the last token of the command."""


def read(text: str) -> Invocation:
    found = shell(text)
    assert found.kind is InvocationKind.ENGINE
    return found


def test_an_array_of_overrides() -> None:
    found = read(SCRIPT.replace("EXTRA", ""))
    assert texts(found) == [
        *("--model-path", "Qwen/Qwen3-4B", "--tp-size", "2", "--mem-fraction-static", "0.7"),
        *("--max-running-requests", "64", "--speculative-algorithm", "EAGLE3"),
        *("--speculative-draft-model-path", "d", "--attention-backend", "fa3"),
        "--enable-metrics",
    ]
    assert [word.text for word in found.program[:3]] == ["python3", "-m", "verl.trainer.main_ppo"]
    assert "disable_cuda_graph=False" in dropped(found)
    backend = next(word for word in found.words if word.text == "fa3")
    assert (backend.place.line, backend.evaluated) == (9, True)


def test_other_overrides_may_replace_these() -> None:
    found = read(SCRIPT.replace("EXTRA", '"$@"'))
    assert (found.words[0].text, found.words[0].evaluated) == ("$@", False)


def test_arguments_that_verl_sets_are_unknown() -> None:
    found = read(f"python3 -m verl.trainer.main_ppo {ENGINE}speculative_algorithm=NGRAM\n")
    unknown = [flag.text for flag, word in pairwise(found.words) if not word.evaluated]
    assert unknown == [
        *("--model-path", "--tp-size", "--mem-fraction-static", "--max-running-requests"),
        "--attention-backend",
    ]


RUN = 'ray job submit --runtime-env-json=\'{"env_vars": {"A": "1"}}\' -- python3 -m verl.main'


def test_data_parallel_ranks_multiply_the_gpus() -> None:
    size = f"{ROLLOUT}tensor_model_parallel_size=2 {ROLLOUT}data_parallel_size=4"
    found = read(f"python3 -m verl.trainer.main_ppo {size} {ENGINE}speculative_algorithm=NGRAM\n")
    values = dict(pairwise(texts(found)))
    assert (values["--tp-size"], values["--dp-size"]) == ("???", "4")


def test_multi_token_prediction() -> None:
    found = read(
        f"{RUN} {ROLLOUT}name=sglang {MTP}enable=True {MTP}enable_rollout=True "
        f"{MTP}speculative_num_steps=4 {ENGINE}speculative_num_steps=2\n"
    )
    its = texts(found)
    values = dict(pairwise(its))
    assert values["--speculative-algorithm"] == "EAGLE"
    assert values["--speculative-num-draft-tokens"] == "4"
    assert (values["--speculative-num-steps"], its.count("--speculative-num-steps")) == ("4", 1)
    assert env(found) == {"A": "1"}


@rows(
    "text",
    [
        f"{ROLLOUT}name=vllm {MTP}enable=True {MTP}enable_rollout=True",
        f"{ROLLOUT}name=sglang {MTP}enable=False {MTP}enable_rollout=True",
        f"{ROLLOUT}name=sglang {ROLLOUT}tensor_model_parallel_size=2",
        f"{ROLLOUT}name=vllm {ENGINE}speculative_algorithm=NGRAM",
    ],
)
def test_no_speculation_on_sglang(text: str) -> None:
    assert not read_shell(f"python3 -m verl.trainer.main_ppo {text}\n", "a.sh").invocations


def test_the_environment_may_choose_sglang() -> None:
    found = read(f"python3 -m verl.main {ROLLOUT}name=$NAME {ENGINE}speculative_algorithm=NGRAM\n")
    assert texts(found)[-2:] == ["--speculative-algorithm", "NGRAM"]
