"""Releases that run on this machine: their engines, recipes, servers, and answers.

An answer to a fixed prompt has greedy tokens and a verify step count. Releases use different
kernels, so two tokens with almost equal logits may swap ranks. The compared server scores the
reference's answer. Tokens that it prefers by less than its data type's noise are a tie (see
`prove`).

Engines are CPU engines, installed as needed, or the user's own. At most two engines are installed
at a time, each by a separate process. The next run resumes an interrupted installation.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from speclaunch.checks import Lookup, Migration, migrate_recipe
from speclaunch.core import (
    COMMAND_LINE,
    InputError,
    LaunchError,
    Place,
    Problem,
    Redactor,
    beating,
    children,
    duration,
    reads,
    replace_file,
    speclaunch_home,
)
from speclaunch.deployments import Prepared, Recipe, load, prepare, split_recipe, with_overrides
from speclaunch.engine import (
    RELEASES,
    Address,
    CpuEngine,
    Plan,
    is_installed,
    is_version,
    named,
    resolve,
)
from speclaunch.measure.bench.engines import EngineOrder, MeasuredEngine, next_log
from speclaunch.measure.bench.sides import UNATTENDED, without_speculation
from speclaunch.measure.bench.workload import shipped, workload
from speclaunch.measure.prove.answers import ProofAnswer, ProofPrompt, ProofServer
from speclaunch.measure.prove.contract_servers import FieldRow
from speclaunch.measure.prove.proof import (
    AnswerKind,
    compare,
    first_difference,
    noise,
    served_dtype,
)
from speclaunch.serving import (
    EngineClient,
    EngineError,
    free_port,
    local_lookup,
    make_room,
    mark_on_demand,
    note_use,
)

Say = Callable[[str], None]

PROMPTS_OF_A_SET = 4
TOKENS = 32
_AT_ONCE = 1
"""Number of concurrent requests; with one, all releases use the same batch shape."""


class ReleaseAnswers(Struct, frozen=True):
    """Greedy answers of a release to the fixed prompts.

    `fields`: rows of the request contract; empty if not checked.
    """

    answers: tuple[ProofAnswer, ...] = ()
    fields: tuple[FieldRow, ...] = ()

    @property
    def acceptance(self) -> float | None:
        """Tokens per verify step; None without verify steps."""
        steps = sum(answer.verify_steps for answer in self.answers)
        verified = (len(answer.ids) for answer in self.answers if answer.verify_steps)
        return sum(verified) / steps if steps else None


def fixed_prompts() -> tuple[ProofPrompt, ...]:
    """Return the prompts that every release answers: a few from each shipped set."""
    return tuple(
        ProofPrompt(text, TOKENS)
        for name in shipped()
        for text in (workload(name, TOKENS, 0).texts or ())[:PROMPTS_OF_A_SET]
    )


class ObservedServer:
    """A running server. Methods raise LaunchError if the server does not answer."""

    def __init__(self, address: Address, dtype: str = "") -> None:
        """`dtype`: compute data type; empty if unknown."""
        self._address, self._dtype = address, dtype
        self._server = ProofServer(lambda: EngineClient(address), _AT_ONCE)

    def observe(self) -> ReleaseAnswers:
        try:
            return ReleaseAnswers(tuple(self._server.answers(fixed_prompts(), logprobs=False)))
        except EngineError as error:
            raise LaunchError(f"the server gave no valid answer: {error}") from error

    def info(self) -> Mapping[str, Any]:
        try:
            with EngineClient(self._address) as client:
                return dict(Redactor().value(client.server_info()))
        except EngineError as error:
            raise LaunchError(f"the server did not report its arguments: {error}") from error

    def difference(self, reference: ReleaseAnswers, found: ReleaseAnswers) -> str | None:
        """Describe the first difference from the reference beyond a tie; None if there is none.

        `found`: this server's own answers.
        """
        pairs = zip(fixed_prompts(), reference.answers, found.answers, strict=True)
        for prompt, before, after in pairs:
            at = first_difference(before.ids, after.ids)
            if at is None:
                continue
            verdict = compare(
                before, after, self._scores(prompt, before), noise(self._dtype, (), ())
            )
            if verdict.kind is not AnswerKind.WRONG:
                continue
            shown = repr(" ".join(prompt.text.split())[:60])
            if at >= min(len(before.ids), len(after.ids)):
                return f"the answers have different lengths (prompt {shown})"
            return (
                f"token {at + 1} is {after.ids[at]} instead of {before.ids[at]}, preferred by "
                f"{verdict.gap:.3g} nats (prompt {shown})"
            )
        return None

    def _scores(self, prompt: ProofPrompt, answer: ProofAnswer) -> Sequence[Any] | None:
        try:
            (ids,) = self._server.prompt_ids([prompt])
            (scores,) = self._server.scores([(ids, answer.ids)])
        except (EngineError, LaunchError):
            return None
        return scores


CPU = "cpu"
_PIN = "engine.version"
_UNCHANGED = ("--fresh", "--max-attempts=1", "--force")
"""Launch options to start with exactly the recipe's settings, without retries."""


class ReleaseRecipe(Struct, frozen=True):
    """A recipe migrated to one release, with the overrides that select the release."""

    version: str
    path: Path
    migration: Migration
    overrides: tuple[str, ...]
    config_dirs: tuple[Path, ...]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Parts of the recipe that have no counterpart in this release."""
        return tuple(self.migration.problems)

    @property
    def _is_pinned(self) -> bool:
        return any(word.lstrip("+").startswith(f"{_PIN}=") for word in self.overrides)

    def load(self) -> Recipe:
        """Return the migrated recipe. Raises InputError."""
        texts = {os.path.realpath(self.path): self.migration.text.encode()}
        with reads.overlay({} if self.problems else texts):
            return load(str(self.path), self.overrides, self.config_dirs)

    def prepared(self, recipe: Recipe | None = None) -> Prepared:
        """Return `recipe` (or the migrated recipe), prepared but not started. Raises InputError."""
        found = recipe or self.load()
        return prepare(found, None if self._is_pinned else self.version, dry_run=True)

    def words(self, folder: Path) -> tuple[str, ...]:
        """Return the launch arguments; write the recipe below `folder` if migration changed it.

        Raises InputError if writing fails.
        """
        directories = [f"--config-dir={path}" for path in self.config_dirs]
        path = self.path
        if not self.problems and self.migration.text != reads.read_text(path):
            path = folder / self.version / path.name
            try:
                path.parent.mkdir(mode=0o700, exist_ok=True)
                replace_file(path, self.migration.text)
            except OSError as error:
                raise InputError(f"cannot write {path}: {error.strerror}") from error
            directories.append(f"--config-dir={self.path.parent}")
        engine = [] if self._is_pinned else [f"--engine={self.version}"]
        return (f"recipe={path}", *self.overrides, *directories, *engine)


def recipe_for(
    words: Sequence[str],
    version: str,
    config_dirs: Sequence[Path],
    *,
    python: str | None = None,
) -> ReleaseRecipe:
    """Return the recipe that the arguments `words` name, for `version`.

    `python`: interpreter with that release; without it, a recipe for the CPU engine is pinned to
    `version`. Raises InputError if the recipe cannot be read.
    """
    name, overrides = split_recipe(words)
    recipe = load(name, overrides, config_dirs)
    migration = migrate_recipe(recipe.path, str(recipe.path), version, keep_images=True)
    deployment = recipe.deployment
    chosen = tuple(overrides)
    if python is not None:
        chosen = with_overrides(chosen, (f"engine.python={python}",))
    elif CPU in (deployment.engine.python, deployment.hardware.name) and is_version(version):
        chosen = with_overrides(chosen, (f"{_PIN}={version}", f"engine.requires={version}"))
    return ReleaseRecipe(version, recipe.path, migration, chosen, tuple(config_dirs))


def plan_here(prepared: Prepared) -> Plan:
    """Return the plan of a deployment with this machine's facts and environment."""
    is_cpu = prepared.cpu is not None
    request = prepared.request(os.environ)
    facts = local_lookup(Lookup(), prepared.recipe, probe=not is_cpu, cpu=is_cpu)
    return resolve(request, facts.facts(request))


class StartFailedError(LaunchError):
    """Error: a release does not serve in time."""


class LaunchedRelease(Struct, frozen=True):
    """A serving release. `seconds`: time from start to verification."""

    release: str
    engine: MeasuredEngine
    plan: Plan
    observed: ObservedServer
    seconds: float
    can_run_twice: bool
    """True if a server without speculation can run alongside (CPU engines only)."""


@contextmanager
def launched(
    found: ReleaseRecipe,
    folder: Path,
    seconds: float,
    say: Say,
    *,
    speculates: bool = True,
) -> Iterator[LaunchedRelease]:
    """Serve a recipe within the block, then stop the server.

    `folder` receives the log and a changed recipe. `speculates`: False to serve without
    speculation. Raises InputError if the release does not support the recipe, and
    StartFailedError if it does not serve within `seconds`.
    """
    prepared = found.prepared()
    off = without_speculation(prepared.recipe)
    port = free_port()
    changes = (f"args.port={port}", *UNATTENDED, *(() if speculates else off))
    words = (*with_overrides(found.words(folder), changes), *_UNCHANGED)
    name = f"SGLang {found.version}{'' if speculates else ' without speculation'}"
    order = EngineOrder(name, words, port, key=prepared.address.api_key)
    engine = MeasuredEngine(order, next_log(folder))
    try:
        try:
            taken = engine.wait(seconds, say)
        except LaunchError as error:
            problem = error.problems[0]
            why = (problem.help or "").removeprefix(f"see {engine.log}: ")
            raise StartFailedError(why or problem.message, help=f"see {engine.log}") from error
        plan = plan_here(prepared)
        observed = ObservedServer(engine.address, served_dtype(plan))
        can_run_twice = prepared.cpu is not None and bool(off) and speculates
        yield LaunchedRelease(found.version, engine, plan, observed, taken, can_run_twice)
    finally:
        engine.stop()


_INSTALLED_AT_ONCE = 2
_END_SECONDS = 20.0
_TAIL = 400


def interpreters(words: Sequence[str]) -> dict[str, str]:
    """Return the interpreters of `--engine-python` values, by release. Raises InputError."""
    found: dict[str, str] = {}
    for word in words:
        version, equals, path = word.partition("=")
        place = Place(COMMAND_LINE, text=f"--engine-python {word}")
        if not equals or not version or not path:
            raise InputError(
                f"{word} is not of the form VERSION=PATH", place, "use 0.5.20=/path/to/bin/python"
            )
        if not Path(path).is_file():
            raise InputError(f"{path}: no such file", place)
        found[named(version).held] = str(Path(path).absolute())
    return found


class EngineSupply:
    """Engines of compared releases, installed as needed; the context's exit stops installations."""

    def __init__(self, pythons: Mapping[str, str], say: Callable[[str], None]) -> None:
        """`pythons`: the user's interpreters by release; empty for CPU engines."""
        self._pythons, self._say = pythons, say
        self._building: dict[str, tuple[subprocess.Popen[Any], IO[bytes]]] = {}

    def __enter__(self) -> EngineSupply:
        return self

    def __exit__(self, *_: object) -> None:
        for process, _log in self._building.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
        for release, (process, log) in self._building.items():
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            log.close()
            mark_on_demand(self._engine(release))  # the part that exists counts, and makes room
        self._building.clear()

    def available(self) -> tuple[str, ...]:
        """Return the releases that can be compared, oldest first."""
        return tuple(self._pythons) or tuple(reversed(tuple(RELEASES)))

    def installed(self) -> set[str]:
        """Return the releases that can start immediately."""
        if self._pythons:
            return set(self._pythons)
        return {release for release in RELEASES if is_installed(self._engine(release))}

    def _engine(self, release: str) -> CpuEngine:
        return CpuEngine(speclaunch_home(), release)

    def prefetch(self, releases: Sequence[str], *, needed: Collection[str] = ()) -> None:
        """Start installing CPU engines for the first releases without one.

        `needed`: releases whose engines must not be removed to free space. Raises InstallError.
        """
        if self._pythons:
            return
        self._collect()
        due = [name for name in releases if name in RELEASES and name not in self._building]
        due = [release for release in due if not is_installed(self._engine(release))]
        for release in due[: max(0, _INSTALLED_AT_ONCE - len(self._building))]:
            for gone in make_room(speclaunch_home(), {*releases, *needed}):
                self._say(f"removed the CPU engine of SGLang {gone} to make room")
            self._say(f"installing the CPU engine of SGLang {release}")
            log = tempfile.TemporaryFile()  # noqa: SIM115  closed with its process
            words = ("engine", "install", "cpu", "--release", release)
            process = children.start(
                children.bound(children.own_command(*words)),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._building[release] = (process, log)

    def is_installable(self, recipe: ReleaseRecipe) -> bool:
        """True if the recipe uses a CPU engine. Raises LaunchError if no engine is known."""
        release, prepared = recipe.version, recipe.prepared()
        if prepared.cpu is not None:
            return True
        if release not in self._pythons and prepared.recipe.deployment.engine.python is None:
            raise LaunchError(
                f"no engine for SGLang {release}",
                help=f"name its interpreter: --engine-python {release}=PATH",
            )
        return False

    def require(self, recipe: ReleaseRecipe) -> None:
        """Wait until the engine of a recipe is installed.

        Raises LaunchError if installation fails, or if the recipe lacks an interpreter.
        """
        release = recipe.version
        if not self.is_installable(recipe):
            return
        if not is_installed(self._engine(release)):
            if release not in self._building:
                self._collect(wait=len(self._building) >= _INSTALLED_AT_ONCE)
                self.prefetch([release])
            process, _ = self._building[release]
            with beating(
                self._say, lambda seconds: f"SGLang {release}: installing for {duration(seconds)}"
            ):
                process.wait()
            self._collect()
        if not is_installed(self._engine(release)):
            raise LaunchError(
                f"the CPU engine of SGLang {release} cannot be installed",
                help=f"run `{self._engine(release).install_command}` to see why",
            )
        note_use(self._engine(release))

    def _collect(self, *, wait: bool = False) -> None:
        """Record finished installations; `wait`: first wait for the oldest one."""
        for release, (process, log) in list(self._building.items()):
            if wait:
                process.wait()
                wait = False
            if process.poll() is None:
                continue
            if process.returncode == 0:
                mark_on_demand(self._engine(release))
            else:
                log.seek(0)
                tail = log.read()[-_TAIL:].decode(errors="replace").strip().splitlines()
                self._say(f"SGLang {release} was not installed: {tail[-1] if tail else ''}")
            log.close()
            del self._building[release]
