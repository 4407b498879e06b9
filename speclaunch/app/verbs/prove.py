"""`speclaunch prove`: check that speculation leaves every answer unchanged."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from rich.console import Console
from rich.text import Text

from speclaunch.app.output.console import err_lines, out, out_lines, write_exact
from speclaunch.app.output.plan_page import page_environment
from speclaunch.app.verbs.bench_sides import numbers, side_options, tell_replaced
from speclaunch.app.verbs.locking import SideLock
from speclaunch.app.verbs.options import ProveFormat
from speclaunch.app.verbs.run_options import SAMPLED_PROMPTS, ProveOptions
from speclaunch.core import (
    COMMAND_LINE,
    ExitCode,
    InputError,
    LaunchError,
    Place,
    beating,
    duration,
    json_value,
)
from speclaunch.measure import (
    CONTRACT,
    FIELDS,
    NONE,
    PROOF,
    RANDOM,
    ContractDocument,
    ContractProgress,
    FieldResult,
    FieldRow,
    LaunchedSide,
    LevelRecord,
    MeasuredEngine,
    Proof,
    ProofDocument,
    ProofPrompt,
    ProofServer,
    StoredAnswers,
    StoredContract,
    StoredProof,
    WrongRecord,
    baseline,
    candidate,
    end_on_signals,
    next_log,
    prove_answers,
    reference,
    sampled,
    samples_agree,
    served_contract,
    served_dtype,
    shipped,
    workload,
)
from speclaunch.serving import EngineClient, EngineError, command, free_port, unfinished_work

_SHOWN = 5
_TEXT = 60


def show_proof(console: Console, proof: ProofDocument) -> None:
    """Print the verdict, the counts that support it, and the first wrong answers."""
    if proof.lossless:
        total = proof.answers.same + proof.answers.tie
        console.print(Text(f"✓ {proof.recipe} is lossless in all {total} answers", "bold green"))
    else:
        console.print(Text(f"✗ {proof.recipe} is not shown to be lossless", "bold red"))
    for line in _lines(proof):
        console.print(f"  {line}")


def _lines(proof: ProofDocument) -> list[str]:
    counts = proof.answers
    lines = [
        f"{counts.same} the same, {counts.tie} numerical ties "
        f"(within {proof.tolerance_nats:.3g} nats), {counts.wrong} wrong"
    ]
    lines += [_level(level) for level in proof.concurrencies]
    lines += [f"wrong: {_wrong(record)}" for record in proof.wrong[:_SHOWN]]
    if counts.wrong > _SHOWN:
        more = counts.wrong - _SHOWN
        lines.append(f"and {more} more wrong answers: see all with --output-format json")
    if proof.unspeculated:
        lines.append(
            f"{proof.unspeculated} answers contain no verified draft and prove nothing "
            "(use more --output-tokens)"
        )
    samples = proof.samples
    if samples is not None:
        how = "differ" if samples.differ else "agree"
        lines.append(
            f"samples {how}: probability {samples.probability:.3g} over "
            f"{samples.positions} positions (alarm at {samples.alarm})"
        )
    return lines


def _level(level: LevelRecord) -> str:
    length = "none" if level.accept_length is None else f"{level.accept_length:.2f}"
    wrong = f", {level.answers.wrong} wrong" if level.answers.wrong else ""
    return (
        f"at concurrency {level.concurrency}: {level.requests} answers{wrong}, acceptance "
        f"length {length}"
    )


def _wrong(record: WrongRecord) -> str:
    prompt = " ".join(record.prompt.split())[-_TEXT:]
    where = f"at concurrency {record.concurrency}, token {record.position + 1}"
    if record.expected is None:
        return f"{where}: the answers have different lengths (prompt …{prompt!r})"
    got = _token(record.got, record.got_text)
    expected = _token(record.expected, record.expected_text)
    return (
        f"{where}: {got} instead of {expected}, which the plain server prefers by "
        f"{record.gap_nats:.3g} nats (prompt …{prompt!r})"
    )


def _token(number: int | None, text: str | None) -> str:
    return str(number) if text is None else f"{number} {text!r}"


_WIDTH = 24
_FIELDS_SHOWN = {
    FieldResult.SAME: ("✓", "same", "green", "good"),
    FieldResult.DIFFERS: ("✗", "differs", "red", "bad"),
    FieldResult.NOT_TESTED: ("-", "not tested", "dim", "info"),
}
_DOCUMENTED = ("!", "differs (documented)", "yellow", "odd")


def show_contract(console: Console, found: ContractDocument) -> None:
    """Print the verdict, and a line for each field."""
    style = "bold green" if found.same else "bold red"
    console.print(Text(f"{'✓' if found.same else '✗'} {verdict(found)}", style))
    for row in found.fields:
        mark, label, color, _ = _shown(row)
        head = Text.assemble((f"  {mark} {row.field:<{_WIDTH}}{label}", color))
        console.print(head + Text(f": {row.reason}" if row.reason else ""))
        for note in notes(row):
            console.print(Text(f"    {note}", "dim"))


def contract_page(found: ContractDocument) -> str:
    """Return the HTML page of a contract. It is deterministic; text from servers is escaped."""
    rows = [(row, *_shown(row)[1::2], list(notes(row))) for row in found.fields]
    template = page_environment().get_template("contract.html.j2")
    return template.render(found=found, rows=rows, verdict=verdict(found))


def verdict(found: ContractDocument) -> str:
    """Return the verdict as a sentence."""
    breaking = [row.field for row in found.fields if row.breaks]
    if breaking:
        return f"{found.speculative} changes the meaning of {', '.join(breaking)}"
    if not found.same:
        return f"{found.speculative}: no request field could be tested"
    documented = found.counts.differs
    more = f", {documented} more differ as documented" if documented else ""
    return f"{found.speculative} keeps the meaning of {found.counts.same} request fields{more}"


def notes(row: FieldRow) -> Iterator[str]:
    """Yield what SGLang documents about a field's difference, and the field's known bugs."""
    if row.documented:
        yield f"documented: {row.documented}"
    if row.advisories:
        yield f"known: {', '.join(row.advisories)} (speclaunch explain {row.advisories[0]})"


def _shown(row: FieldRow) -> tuple[str, str, str, str]:
    """Return the mark, label, terminal color and page color of a row."""
    is_documented = row.result is FieldResult.DIFFERS and row.documented is not None
    return _DOCUMENTED if is_documented else _FIELDS_SHOWN[row.result]


_MOST_CONCURRENCY, _MOST_WORDS = 1024, 1 << 20
_START_SECONDS = 3600.0


def prove(options: ProveOptions) -> ExitCode:
    """Query both servers and compare their answers. Raises InputError, LaunchError."""
    if options.output_format is ProveFormat.HTML and not options.requests:
        raise InputError(
            "a proof has no HTML page", help="add --requests, or use --output-format json"
        )
    levels = numbers("--concurrency", options.concurrency, 1, _MOST_CONCURRENCY)
    lengths = numbers("--context", options.context, 0, _MOST_WORDS)
    questions = _questions(options, lengths)
    shared = side_options(options)
    ours = candidate(options.overrides, shared)
    tell_replaced(ours)
    locking = SideLock(options, ours)
    if not ours.expected.speculates:
        message = f"{ours.name} does not speculate, so there is nothing to prove"
        raise InputError(message, help="name a recipe that speculates (see `speclaunch recipes`)")
    plain = baseline(NONE, options.overrides, ours, shared)
    if ours.expected.simulated:
        where = Place(COMMAND_LINE, text=ours.expected.simulated)
        raise InputError(
            f"{ours.expected.simulated} simulates acceptance; outputs are invalid",
            where,
            "remove the variable from the environment and engine.env",
        )
    if options.requests:
        code = prove_requests(options, ours, plain)
        if code is ExitCode.CLEAN:
            locking.write()
        return code
    task = Task(ours, plain, tuple(questions), levels, options.samples)
    if options.dry_run:
        for line in task.lines():
            out().print(line)
        return ExitCode.CLEAN
    name, begun = ours.prepared.recipe.deployment.name, StoredAnswers({})
    stored = StoredProof.begin(PROOF, name, task.key, task.about, begun, fresh=options.fresh)
    result = _proof(task, stored)
    dtype = served_dtype(ours.plan)
    document = result.document(ours.name, plain.name, ours.prepared.version, dtype)
    found = json_value(document)
    stored.write(found)
    if options.output_format is ProveFormat.JSON:
        out().print_json(json.dumps(found))
    else:
        show_proof(out(), document)
        err_lines().print(f"saved to {stored.directory}")
    if result.is_lossless:
        locking.write()
    return ExitCode.CLEAN if result.is_lossless else ExitCode.FAILED


def prove_requests(options: ProveOptions, ours: LaunchedSide, plain: LaunchedSide) -> ExitCode:
    """Check the request contract of both servers. Raises InputError, LaunchError."""
    if options.dry_run:
        out_lines().print(f"starts:   2, both at once: {ours.name}; {plain.name}")
        out_lines().print(f"fields:   {', '.join(field.name for field in FIELDS)}")
        return ExitCode.CLEAN
    # a contract is identified by both servers, as a proof without prompts
    task = Task(ours, plain, (), (), 0)
    key = unfinished_work.digest([task.key, [field.name for field in FIELDS]])
    name = ours.prepared.recipe.deployment.name
    begun = ContractProgress()
    stored = StoredContract.begin(CONTRACT, name, key, task.about, begun, fresh=options.fresh)
    say = err_lines().print
    end_on_signals()
    # one start at a time: the memory of the second depends on what the first leaves
    with (
        stored.resuming(say),
        Engines(stored.directory, say) as engines,
        engines.serving(ours) as served,
        engines.serving(plain) as other,
    ):
        contract = served_contract(
            *(served.engine.address, other.engine.address, ours.plan, say, stored.progress.rows),
            lambda rows: stored.add(ContractProgress(rows)),
        )
    found = contract.document(ours.name, plain.name)
    stored.write(json_value(found))
    if options.output_format is ProveFormat.JSON:
        out().print_json(json.dumps(json_value(found)))
    elif options.output_format is ProveFormat.HTML:
        write_exact(contract_page(found))
    else:
        show_contract(out(), found)
        err_lines().print(f"saved to {stored.directory}")
    return ExitCode.CLEAN if found.same else ExitCode.FAILED


def _proof(task: Task, stored: StoredProof) -> Proof:
    """Return the proof. The speculative server's answers are saved as they arrive."""
    say = err_lines().print
    end_on_signals()
    with stored.resuming(say), Engines(stored.directory, say) as engines:
        if task.together and not task.is_complete(stored.progress):
            engines.begin(task.ours)
            engines.begin(task.plain)
        ask_ours(task, engines, stored, say)
        return check_answers(task, engines, stored.progress, served_dtype(task.ours.plan))


def _questions(options: ProveOptions, lengths: Sequence[int]) -> list[ProofPrompt]:
    found: list[ProofPrompt] = []
    for name in dict.fromkeys(options.workload) or shipped():
        if name == RANDOM:
            raise InputError(
                "random tokens cannot be used for a proof",
                Place(COMMAND_LINE, text=f"--workload {name}"),
                f"use {', '.join(shipped())}, or a JSONL file",
            )
        texts = workload(name, options.output_tokens, 0).texts or ()
        found += [
            ProofPrompt(_lengthened(texts, index, length), options.output_tokens)
            for length in lengths
            for index in range(len(texts))
        ]
    return found


def _lengthened(texts: Sequence[str], index: int, words: int) -> str:
    """Return prompt `index`, preceded by other prompts to reach at least `words` words."""
    parts = [texts[index]]
    while sum(len(part.split()) for part in parts) < words:
        parts.insert(0, texts[(index + len(parts)) % len(texts)])
    return "\n\n".join(parts)


Say = Callable[[str], None]


class Served(Struct, frozen=True):
    """A serving engine, and the side of the comparison that it serves."""

    side: LaunchedSide
    engine: MeasuredEngine
    say: Say

    @contextmanager
    def queried(self, requests: int) -> Iterator[Callable[[int], ProofServer]]:
        """Yield a function that returns a server for a concurrency level; report progress.

        `requests`: expected total over all servers. Raises LaunchError if the engine does not
        answer.
        """
        count = _Count(requests)
        try:
            with beating(self.say, lambda seconds: f"{self.side.name}: {count.text(seconds)}"):
                yield lambda level: ProofServer(
                    lambda: EngineClient(self.engine.address), level, count.tick
                )
        except EngineError as error:
            raise self._no_answer(str(error)) from error
        except LaunchError as error:
            if self.engine.is_gone(0.0):
                raise self._no_answer(str(error)) from error
            raise

    def _no_answer(self, reason: str) -> LaunchError:
        what = "ended during the queries" if self.engine.is_gone() else "gave no valid answer"
        return LaunchError(
            f"{self.side.name} {what}: {reason}",
            help=f"read its log: speclaunch diagnose {self.engine.log}",
        )


class Engines:
    """Engines that are stopped when the block ends, even after an error."""

    def __init__(self, folder: Path, say: Say) -> None:
        """`folder` receives the logs; `say` receives progress messages."""
        self._folder, self._say = folder, say
        self._stack = ExitStack()
        self._begun: dict[str, MeasuredEngine] = {}

    def __enter__(self) -> Engines:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def begin(self, side: LaunchedSide) -> MeasuredEngine:
        """Return the engine of a side, started if necessary, without waiting for it."""
        if side.name not in self._begun:
            self._say(f"starting {side.name}")
            engine = MeasuredEngine(side.order(free_port()), next_log(self._folder))
            self._stack.callback(engine.stop)
            self._begun[side.name] = engine
        return self._begun[side.name]

    @contextmanager
    def serving(self, side: LaunchedSide) -> Iterator[Served]:
        """Serve a side within the block and stop it at the end. Raises LaunchError."""
        engine = self.begin(side)
        seconds = engine.wait(_START_SECONDS, self._say)
        self._say(f"{side.name} serves after {seconds:.0f} s")
        try:
            yield Served(side, engine, self._say)
        finally:
            engine.stop()


class _Count:
    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0

    def tick(self) -> None:
        self._done += 1

    def text(self, seconds: float) -> str:
        done = self._done
        progress = f"{done} of {self._total} requests"
        if not 0 < done < self._total:
            return progress
        return f"{progress}, about {duration((self._total - done) * seconds / done)} left"


_SAMPLED_TOKENS = 4
_SAMPLING_AT_ONCE = 8


class Task(Struct, frozen=True):
    """Inputs of a proof; `samples` answers are drawn for each prompt in `few`."""

    ours: LaunchedSide
    plain: LaunchedSide
    questions: tuple[ProofPrompt, ...]
    levels: tuple[int, ...]
    samples: int

    @property
    def together(self) -> bool:
        """True if both engines run at once, on CPUs only; GPUs are sized for a single engine."""
        return self.ours.prepared.cpu is not None and self.plain.prepared.cpu is not None

    @property
    def few(self) -> tuple[ProofPrompt, ...]:
        """Prompts of the sampling test; none without `--samples`."""
        chosen = self.questions[:SAMPLED_PROMPTS] if self.samples else ()
        return tuple(ProofPrompt(prompt.text, _SAMPLED_TOKENS) for prompt in chosen)

    @property
    def drawn(self) -> int:
        """Number of samples that each server draws."""
        return len(self.few) * self.samples

    @property
    def of_plain(self) -> int:
        """Minimum number of requests to the plain server.

        Each prompt needs three: for its tokens, the server's own answer, and the logprobs. Each
        sample needs one. Each answer that differs needs one more.
        """
        return 3 * len(self.questions) + self.drawn

    def is_complete(self, stored_answers: StoredAnswers) -> bool:
        """True if all answers of the speculative server are available."""
        return set(self.levels) <= set(stored_answers.greedy) and bool(
            stored_answers.samples
        ) == bool(self.few)

    @property
    def about(self) -> dict[str, Any]:
        """Description of the proof for its record on disk."""
        sides = (self.ours, self.plain)
        return {
            "sides": [side.name for side in sides],
            "commands": [command(side.prepared) for side in sides],
            "engine": self.ours.prepared.version,
        }

    @property
    def key(self) -> str:
        """Digest of the requests and of both servers."""
        return unfinished_work.digest(
            {
                **self.about,
                "env": [dict(side.prepared.rendered_args.env) for side in (self.ours, self.plain)],
                "questions": [(prompt.text, prompt.tokens) for prompt in self.questions],
                "levels": self.levels,
                "samples": self.samples,
            }
        )

    def lines(self) -> Iterator[str]:
        """Yield the lines that a dry run prints."""
        how = "both at once" if self.together else "one after the other"
        yield f"starts:   2, {how}: {self.ours.name}; {self.plain.name}"
        count, tokens = len(self.questions), self.questions[0].tokens
        levels = ", ".join(map(str, self.levels))
        total = count * len(self.levels) + self.drawn
        yield (
            f"requests: {total} to {self.ours.name}: {count} prompts at concurrency {levels}, "
            f"{tokens} tokens each{self._samples()}"
        )
        yield (
            f"          {self.of_plain} to {self.plain.name}, and one more for each answer that "
            "differs"
        )

    def _samples(self) -> str:
        if not self.drawn:
            return ""
        return f"; {self.samples} samples of {_SAMPLED_TOKENS} tokens for {len(self.few)} of them"


def ask_ours(task: Task, engines: Engines, stored: StoredProof, say: Say) -> None:
    """Request and save the missing answers of the speculative server. Raises LaunchError."""
    if task.is_complete(stored.progress):
        return
    due = [level for level in task.levels if level not in stored.progress.greedy]
    samples = 0 if stored.progress.samples else task.drawn
    with (
        engines.serving(task.ours) as served,
        served.queried(len(due) * len(task.questions) + samples) as server,
    ):
        for level in due:
            began = time.monotonic()
            answers = server(level).answers(task.questions, logprobs=False)
            stored.add(
                StoredAnswers({**stored.progress.greedy, level: answers}, stored.progress.samples)
            )
            took = duration(time.monotonic() - began)
            say(f"{task.ours.name}: {len(answers)} answers at concurrency {level} in {took}")
        if samples:
            drawn = sampled(server(_SAMPLING_AT_ONCE), task.few, task.samples)
            stored.add(StoredAnswers(stored.progress.greedy, drawn))


def check_answers(task: Task, engines: Engines, stored_answers: StoredAnswers, dtype: str) -> Proof:
    """Check the answers against the plain server; return the proof. Raises LaunchError."""
    greedy = {level: stored_answers.greedy[level] for level in task.levels}
    with engines.serving(task.plain) as served, served.queried(task.of_plain) as server:
        plain = reference(server, task.questions, max(task.levels), dtype)
        answers = prove_answers(server, plain, greedy)
        if not task.drawn:
            return Proof(answers, plain.tolerance)
        theirs = sampled(server(_SAMPLING_AT_ONCE), task.few, task.samples)
    return Proof(answers, plain.tolerance, samples_agree(stored_answers.samples, theirs))
