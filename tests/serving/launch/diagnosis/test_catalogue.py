"""What holds for every cause, and for the shortcuts that spare asking all patterns."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from packaging.version import Version

from speclaunch.checks.rules.interface import page
from speclaunch.checks.rules.messages import ENGINE_MESSAGES, rule_of
from speclaunch.checks.rules.registry import by_code
from speclaunch.checks.rules.table import RULES
from speclaunch.engine.releases.catalogue import held_versions, history, load
from speclaunch.engine.releases.renames import other_names
from speclaunch.serving.launch.diagnosis import launch_log
from speclaunch.serving.launch.diagnosis.causes import BY_NAME, CATALOGUE
from speclaunch.serving.launch.diagnosis.diagnose import diagnose
from speclaunch.serving.launch.diagnosis.interface import Cause, Diagnosis, Signature, Where
from speclaunch.serving.launch.diagnosis.launch_log import Wording
from speclaunch.serving.launch.diagnosis.remedy import meaning, remedy_steps, setting_changes
from speclaunch.serving.launch.engine_log import Phase
from tests.support.loops import over, rows

CAUSES = [known.cause for known in CATALOGUE]
SIGNATURES = [one for known in CATALOGUE for one in known.signatures]
PLACE = re.compile(r"\{([a-z0-9_]+)(?:=[^}]*)?\}")


def test_names_are_unique_and_stable_in_shape() -> None:
    assert not [name for name, count in Counter(c.name for c in CAUSES).items() if count > 1]
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", cause.name) for cause in CAUSES)
    assert set(BY_NAME) == {cause.name for cause in CAUSES}


@over(CAUSES, lambda cause: cause.name)
def test_a_cause_says_everything(cause: Cause) -> None:
    assert cause.title and cause.meaning.endswith(".") and cause.remedy.endswith((".", ":"))
    assert cause.sources
    assert not cause.title.endswith(".")
    for argument in (*cause.directions, *PLACE.findall(cause.remedy)):
        assert load(held_versions()[-1]).by_name(argument) is not None, argument
        known = history(argument)
        assert known is not None and known.current, argument


@pytest.mark.thorough
@rows("version", held_versions())
def test_a_remedy_has_a_step_in_every_version_of_its_cause(version: str) -> None:
    catalogue = load(version)
    for cause in CAUSES:
        if not cause.versions.contains(version, prereleases=True):
            continue
        found = Diagnosis(Phase.READY, cause=cause, version=version)
        said = remedy_steps(found)
        assert said, cause.name
        assert not any("{" in step or "}" in step for step in said), said
        flags = [flag for step in said for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", step)]
        shell = {"--ipc", "--shm-size", "--gpus", "--migrate"}
        for flag in [*flags, *(turn.flag.split()[0] for turn in setting_changes(found))]:
            assert flag in shell or flag in catalogue.arguments, (cause.name, flag)


@over(SIGNATURES, lambda one: one.pattern.pattern)
def test_a_signature_names_a_rule_that_exists(one: Signature) -> None:
    known_elsewhere = {"SPL001", "SPL002", "SPL003", "SPL004"}  # findings of the parser
    assert one.rule is None or one.rule in known_elsewhere or by_code(one.rule) is not None
    assert one.pattern.pattern or one.when is not None
    assert not re.search(r"(?<!\\)\.[*+]", one.pattern.pattern.replace("(?!.*", "")), "unbounded"


def test_a_message_leads_to_the_rule_that_foretells_it() -> None:
    found = rule_of("Currently ngram speculative decoding does not support dp attention.")
    assert found is not None and found.code == "SPL211"
    assert rule_of("nothing that the engine says") is None


@rows(
    "message, code",
    [
        ("UNO requires FA3 for both prefill and decode attention.", "SPL645"),
        ("UNO requires --speculative-num-steps 1.", "SPL644"),
        ("UNO does not support grammars.", "SPL642"),
        ("DFLASH with dp attention supports plain DFlash and DFlash2 drafts.", "SPL611"),
        ("DFLASH with dp attention requires --enable-dp-lm-head.", "SPL604"),
        ("DSpark with dp attention does not support context parallel (attn_cp_size=2).", "SPL622"),
        ("SGLANG_ENABLE_PP_SPEC is not compatible with --disaggregation-mode", "SPL221"),
    ],
)
def test_of_several_beginnings_the_longest_counts(message: str, code: str) -> None:
    found = rule_of(message)
    assert found is not None and found.code == code


def test_a_refusal_that_a_rule_finds_is_told_in_the_words_of_the_rule() -> None:
    found = diagnose(
        [*FRAMED, "ValueError: Currently ngram speculative decoding does not support dp attention."]
    )
    assert found.rule == "SPL211"
    assert meaning(found) == f"{page('SPL211').summary}."
    other = diagnose([*FRAMED, "ValueError: Unknown speculative algorithm name: X"])
    assert other.cause is not None and meaning(other) == other.cause.meaning


def test_what_rules_foretell_is_a_beginning_and_not_a_pattern() -> None:
    said = [one for some in ENGINE_MESSAGES.values() for one in some]
    assert len(said) == len(set(said))
    for rule in RULES:
        for one in ENGINE_MESSAGES.get(rule.code, ()):
            found = rule_of(one.replace("{}", "7"))
            assert found is not None and found.code == rule.code, one


EXAMPLES = {
    Where.MESSAGE: (
        "Prefill out of memory. Try to lower your batch size.",
        "Out of memory. Try to lower your batch size.",
        "Port is already in use. dist_init_port=30001 port_base=30002",
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): x",
        "Watchdog timeout (self.watchdog_timeout=300)",
        "DataParallelController watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        "Health check failed. Server couldn't get a response from detokenizer for last 20 s",
        "Subprocess scheduler_0 (pid=1) crashed with exit code -9. Triggering",
        "Subprocess scheduler_0 (pid=1) crashed with exit code 1. Triggering",
        "Initialization failed. warmup error: Traceback (most recent call last):",
    ),
    Where.OUTPUT: (
        "launch_server.py: error: unrecognized arguments: --x",
        "launch_server.py: error: ambiguous option: --x could match --xa, --xb",
        "launch_server.py: error: the following arguments are required: --model-path",
        "sglang serve: error: argument --dtype: invalid choice: 'x'",
        "sglang serve: error: argument --speculative-algorithm: invalid choice: 'x'",
        "/usr/bin/python3: No module named sglang",
        "/usr/bin/python3: Error while finding module specification for 'sglang.launch_server'",
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.0.",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.",
        "/a/ScatterGatherKernel.cu:163: operator(): block: [0,0,0] Assertion `a < b` failed.",
        "node1:9:12 [0] misc/socket.cc:64 NCCL WARN Net : Connect to 10.0.0.1 failed",
        "  what():  CUDA error: an illegal memory access was encountered",
        "Fatal Python error: Segmentation fault",
        "!!!!!!! Segfault encountered !!!!!!!",
        "run.sh: line 3:  4711 Segmentation fault      (core dumped) python",
        "terminate called after throwing an instance of 'c10::Error'",
        "free(): invalid pointer",
        "OSError: [Errno 24] Too many open files",
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): x",
    ),
}


@pytest.mark.parametrize("where", EXAMPLES)
def test_every_shortcut_lets_through_what_its_patterns_match(where: Where) -> None:
    passes = launch_log.may_be_logged if where is Where.MESSAGE else launch_log.may_be_printed
    examples = EXAMPLES[where]
    for example in examples:
        assert passes(example) or launch_log.may_be_logged(example), example
    for one in SIGNATURES:
        if one.where is where:
            assert any(one.pattern.match(example) for example in examples), one.pattern.pattern


def test_every_cause_can_be_reached() -> None:
    """Each cause is told by some log of the corpus, an exit code, or one of these lines."""
    from tests.serving.launch.diagnosis.test_corpus import LABELS

    told = {label["cause"] for label in LABELS.values()}
    for line in ONE_LINERS:
        found = diagnose([*FRAMED, line[1]])
        assert found.cause is not None and found.cause.name == line[0], (line, found.cause)
        told.add(found.cause.name)
    assert {cause.name for cause in CAUSES} <= told | {"process-killed", "out-of-memory"}


FRAMED = (
    "[2026-03-04 10:00:00] Load weight begin. avail mem=70.00 GB",
    "[2026-03-04 10:00:01] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/x/sglang/srt/managers/scheduler.py", line 9, in load_model',
    "    f()",
)
ONE_LINERS = (
    ("engine-not-installed", "ModuleNotFoundError: No module named 'sglang.srt.server_args'"),
    ("package-missing", "ModuleNotFoundError: No module named 'flashinfer'"),
    ("server-arguments-port", "[2026-03-04 10:00:02] Port is already in use. dist_init_port=1"),
    ("remote-code-refused", "ValueError: The repository x contains custom code. Please pass the "
     "argument `trust_remote_code=True` to allow it"),
    ("permission-denied", "PermissionError: [Errno 13] Permission denied: '/models'"),
    ("too-many-open-files", "OSError: [Errno 24] Too many open files"),
    ("target-without-eagle3", "AttributeError: 'FooForCausalLM' object has no attribute "
     "'set_eagle3_layers_to_capture'"),
    ("target-without-shared-embedding", "AttributeError: 'Olmo2ForCausalLM' object has no attribute "
     "'get_embed_and_head'"),
    ("bootstrap-port-taken", "ValueError: engine_info_bootstrap_port 6789 is already in use"),
    ("weights-contradict-config", "AssertionError: Attempted to load weight (torch.Size([64])) into "
     "parameter (torch.Size([96]))"),
    ("rank-lost", "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] "
     "Connection closed by peer [10.0.0.1]:9"),
    ("health-lost", "[2026-03-04 10:00:02] Health check failed. Server couldn't get a response"),
    ("dispatch-buffer-too-small", "AssertionError: x.size(0) <= num_max_dispatch_tokens_per_rank"),
    ("driver-too-old", "RuntimeError: The NVIDIA driver on your system is too old (found 1)"),
    ("gpu-broken", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    ("compiler-missing", "RuntimeError: Ninja is required to load C++ extensions"),
    ("shared-memory-too-small", "RuntimeError: unable to write to file </torch_1>: No space left "
     "on device (28)"),
    ("machine-out-of-memory", "OSError: [Errno 12] Cannot allocate memory"),
    ("warm-up-failed", "[2026-03-04 10:00:02] Initialization failed. warmup error: x"),
)  # fmt: skip


@rows("version", held_versions(Path("none-added")))
def test_the_logged_arguments_tell_the_version(version: str) -> None:
    """All destinations of a release, as `server_args=` has them, leave few releases over."""
    dests = sorted({argument.dest for argument in load(version).arguments.values()})
    wording = Wording()
    if Version(version) >= Version("0.5.19"):
        said = "server_args={" + ", ".join(f"'{dest}': None" for dest in dests) + "}"
    else:
        said = "server_args=ServerArgs(" + ", ".join(f"{dest}=None" for dest in dests) + ")"
    wording.read(said)
    assert wording.allows(version)
    left = [one for one in held_versions(Path("none-added")) if wording.allows(one)]
    assert len(left) <= 3
    for argument in ("cuda_graph_max_bs_decode", "mem_fraction_static"):
        names = [
            next(
                (found.flag for name in (argument, *other_names(argument))
                 if (found := load(one).by_name(name)) is not None), None,
            )
            for one in left
        ]  # fmt: skip
        assert len(set(names)) == 1, (argument, left)


def test_the_reference_lists_every_cause() -> None:
    from tests.serving.launch.diagnosis.healthy import ROOT

    page = (ROOT / "docs/reference/diagnose.md").read_text()
    for cause in CAUSES:
        row = next(line for line in page.split("\n") if line.startswith(f"| `{cause.name}` |"))
        way = cause.directions.get("mem_fraction_static")
        assert cause.title in row and f"| {way.value if way else 'none'} |" in row, cause.name
        assert all(f"{way.value} `{name}`" in row for name, way in cause.directions.items()
                   if name != "mem_fraction_static")  # fmt: skip
