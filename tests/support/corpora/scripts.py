"""Launch scripts of 1 to 2 KB, as people write them, and YAML manifests of the same size."""

from __future__ import annotations

import random

MODELS: tuple[tuple[str, str, str], ...] = (
    ("meta-llama/Llama-3.1-8B-Instruct", "EAGLE3", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"),
    ("meta-llama/Meta-Llama-3.1-8B-Instruct", "EAGLE3", "lmsys/sglang-EAGLE3-LLaMA3.1-8B"),
    ("meta-llama/Llama-2-7b-chat-hf", "EAGLE", "lmsys/sglang-EAGLE-llama2-chat-7B"),
    ("Qwen/Qwen2.5-7B-Instruct", "STANDALONE", "Qwen/Qwen2.5-1.5B-Instruct"),
    ("Qwen/Qwen2.5-7B-Instruct", "NGRAM", ""),
    ("zai-org/GLM-4.6", "EAGLE", ""),
    ("deepseek-ai/DeepSeek-V3", "EAGLE", ""),
    ("XiaomiMiMo/MiMo-7B-RL", "EAGLE", ""),
    ("Qwen/Qwen3-235B-A22B", "EAGLE3", "lmsys/Qwen3-235B-A22B-EAGLE3"),
)
NOTES = (
    "Measured on the evaluation set of last week: 2.6 tokens are accepted on average.",
    "The draft is float16 and the target bfloat16; left alone, the capture of the graphs fails.",
    "Do not raise this above 0.85: the activations of long prompts need the rest.",
    "Keep the port in line with the proxy's configuration, or health checks fail.",
    "One node only; the script beside this one starts the other ranks.",
    "A chain is enough at this batch size; a tree gains nothing above 32 requests.",
    "Logs go to a file of their own, because the collector cuts long lines.",
    "TODO: try the newer draft as soon as it is published.",
    "Works with the image of the platform team; the other one lacks the kernels.",
)
EXPORTS = (
    "export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7",
    "export NCCL_DEBUG=WARN",
    "export OMP_NUM_THREADS=8",
    "export SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
    "export TOKENIZERS_PARALLELISM=false",
    "export NCCL_IB_DISABLE=1",
    "export HF_HUB_OFFLINE=1",
)


def script(number: int, seed: int = 13) -> str:
    """The text of the script of this number."""
    dice = random.Random(f"{seed}/script/{number}")
    model, options = _settings(number, dice)
    lines = ["#!/usr/bin/env bash", f"# Serves {model} (deployment {number:04})."]
    lines += _notes(dice, dice.randint(2, 4))
    lines += [dice.choice(("set -euo pipefail", "set -e", "set -ex")), ""]
    lines += [*dice.sample(EXPORTS, dice.randint(1, 4)), ""]
    lines += [f'MODEL="${{MODEL:-{model}}}"', f"PORT={30000 + number}", ""]
    lines += ['LOG_DIR="${LOG_DIR:-/var/log/sglang}"', 'mkdir -p "$LOG_DIR"', ""]
    lines += _notes(dice, dice.randint(1, 3))
    start = "python3 -m sglang.launch_server"
    if dice.random() < 0.4:
        lines += ["ARGS=(", '  --model-path "$MODEL"']
        for option in options:
            if dice.random() < 0.15:
                lines.append(f"  # {dice.choice(NOTES)}")
            lines.append(f"  {option}")
        lines += [")", ""]
        lines += [f'exec {start} "${{ARGS[@]}}" --port "$PORT"']
    else:
        said = ['--model-path "$MODEL"', *options, "--host 127.0.0.1", '--port "$PORT"']
        log = f'2>&1 | tee "$LOG_DIR/server-{number:04}.log"'
        lines.append(" \\\n  ".join([start, *said, log]))
    return "\n".join(lines) + "\n"


def manifest(number: int, size: int, seed: int = 13) -> str:
    """A Kubernetes Deployment of the same settings and of about `size` bytes."""
    dice = random.Random(f"{seed}/script/{number}")
    model, options = _settings(number, dice)
    words = ["--model-path", model, *(word for option in options for word in option.split())]
    lines = [
        "---",
        "apiVersion: apps/v1",
        "kind: Deployment",
        "metadata:",
        f"  name: sglang-{number:04}",
        "spec:",
        "  replicas: 1",
        "  template:",
        "    spec:",
        "      containers:",
        "        - name: sglang",
        "          image: lmsysorg/sglang:v0.5.23",
        "          command: [python3, -m, sglang.launch_server]",
        "          args:",
        *(f'            - "{word}"' for word in words),
        "          env:",
    ]
    text = "\n".join(lines) + "\n"
    count = 0
    while len(text) + 40 < size:
        count += 1
        if dice.random() < 0.3:
            text += f"            # {dice.choice(NOTES)[:64]}\n"
        text += f"            - name: SETTING_{count}\n              value: '{dice.random():.6f}'\n"
    return text if count else text.replace("          env:\n", "")


def _notes(dice: random.Random, count: int) -> list[str]:
    return [f"# {note}" for note in dice.sample(NOTES, count)]


def _settings(number: int, dice: random.Random) -> tuple[str, list[str]]:
    """The target and the options of one deployment."""
    model, algorithm, draft = dice.choice(MODELS)
    steps = dice.choice((1, 3, 5))
    topk = dice.choice((1, 1, 4))
    options = [f"--speculative-algorithm {algorithm}"]
    if draft:
        options.append(f"--speculative-draft-model-path {draft}")
    if algorithm != "NGRAM":
        options += [f"--speculative-num-steps {steps}", f"--speculative-eagle-topk {topk}"]
    options.append(f"--speculative-num-draft-tokens {steps + 1 if topk == 1 else 16}")
    pool = [
        f"--mem-fraction-static {dice.uniform(0.5, 0.9):.2f}",
        f"--tp-size {dice.choice((1, 2, 4, 8))}",
        f"--max-running-requests {dice.choice((16, 32, 64, 128))}",
        f"--cuda-graph-max-bs-decode {dice.choice((8, 16, 32))}",
        f"--context-length {dice.choice((4096, 8192, 32768))}",
        f"--attention-backend {dice.choice(('fa3', 'flashinfer', 'triton'))}",
        f"--chunked-prefill-size {dice.choice((2048, 4096, 8192))}",
        f"--dtype {dice.choice(('bfloat16', 'float16'))}",
        "--trust-remote-code",
        "--enable-metrics",
        f"--served-model-name model-{number:04}",
        f"--schedule-policy {dice.choice(('fcfs', 'lpm'))}",
        f"--random-seed {number + 1}",
        "--disable-radix-cache",
        f"--watchdog-timeout {dice.choice((300, 600))}",
    ]
    return model, options + dice.sample(pool, dice.randint(4, 9))
