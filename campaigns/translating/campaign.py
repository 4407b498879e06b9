"""The property, asked of every verb that writes.

`migrate`     the file carried to another version means the same, but for what was announced
`import`      the recipe, rendered for the version it was read for, means the same
`render`      `--to shell` and `--to slime` of that recipe, for its version and for another
`dry-run`     the command that `launch --dry-run` prints

What the release refuses never comes with exit 0; any other exit leaves the file as it was.
"""

from __future__ import annotations

import re
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import yaml
from msgspec import Struct, field

from campaigns.translating.meaning import Announced, Meaning, Reader, Server, defaults, differences
from campaigns.translating.oracle import SLIMES_OWN
from campaigns.translating.verbs import Said, load_version, speclaunch
from speclaunch.deployments.targets.one_host import SET_BY_SLIME
from tests.support.bash import parses
from tests.support.corpora.texts import Text

OWN = frozenset(flag.lstrip("-").replace("-", "_") for flag in SLIMES_OWN)
"""What is slime's own in a slime text."""

SIZES = (("tp_size", "tensor_parallel_size"), ("pp_size", "pipeline_parallel_size"))
"""The sizes that make the GPUs of an engine, by their names."""

_SLIMES_ERROR = re.compile(r"^error\[SPL8\d\d\]", re.M)
"""A finding about slime's form of a deployment (rules/serving)."""

_SLIMES = frozenset(SET_BY_SLIME) | {name for names in SIZES for name in names}


RARELY = {"render shell": 1, "render shell for another": 3, "render slime": 3, "dry-run": 10}
"""One text in so many goes through each; a dry run is slow, and says what `shell` says."""


class Defect(Struct, frozen=True):
    """A place where the property does not hold."""

    text: Text
    verb: str
    what: str
    detail: str
    said: str = ""
    result: str = ""

    @property
    def group(self) -> str:
        """Defects of one group look alike."""
        return f"{self.verb}: {self.what}"


class Outcome(Struct):
    """Everything about one text."""

    defects: list[Defect] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def count(self, verb: str, what: str) -> None:
        """Count a check."""
        self.counts[f"{verb}: {what}"] += 1


class Campaign:
    """Runs the verbs over texts, one after the other."""

    def __init__(self, reader: Reader, rarely: int = 1) -> None:
        """`import`, and what is rendered from it, is asked of one text in `rarely`."""
        self.reader = reader
        self.rarely = rarely

    def judge(self, text: Text) -> Outcome:
        """Every verb on one text."""
        outcome = Outcome()
        for version in (text.version, text.to):
            load_version(version)
        if text.kind == "recipe":
            with tempfile.TemporaryDirectory() as name:
                self._recipe(text, Path(name), outcome)
            return outcome
        old = self._read(text, text.text, text.version)
        if old.refused:
            outcome.count("texts", f"not run: {old.refused}")
            return outcome
        outcome.count("texts", "refused by its version" if old.error else "accepted")
        if not old.servers:
            outcome.count("texts", "without a server for bash")
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            self._migrate(text, old, directory, outcome)
        if zlib.crc32(text.id.encode()) % self.rarely:
            return outcome
        with tempfile.TemporaryDirectory() as name:
            self._import(text, old, Path(name), outcome)
        return outcome

    def _read(
        self, text: Text, content: str, version: str, files: Mapping[str, str] | None = None
    ) -> Meaning:
        beside = text.files if files is None else files
        return self.reader.read(text.kind, text.name, content, version, beside)

    # -- migrate

    def _migrate(self, text: Text, old: Meaning, directory: Path, outcome: Outcome) -> None:  # noqa: PLR0911, PLR0912
        path = _put(text, directory)
        told = ["--from", text.version] if text.told else []
        said = speclaunch(["migrate", text.name, "--to", text.to, *told, "--force"], directory)
        after = path.read_bytes().decode("utf-8", "replace")
        beside = {name: (directory / name).read_text("utf-8") for name in text.files}
        outcome.count("migrate", f"exit {said.code}")

        def wrong(what: str, detail: str) -> None:
            outcome.defects.append(
                Defect(text, "migrate", what, detail, said.out + said.err, after)
            )

        if said.code != 0:
            if after != text.text or beside != dict(text.files):
                wrong(f"exit {said.code} rewrote the file", "")
            if said.code not in (1, 3):
                wrong(f"exit {said.code}", said.err.strip()[:300])
            elif said.code == 3 and old.servers:
                wrong("exit 3, though bash starts a server", said.err.strip()[:300])
            elif not old.error and said.code == 1:
                outcome.count("migrate", "exit 1 on an accepted text")
            return
        if syntax := _syntax(text, after):
            wrong("broken syntax", syntax)
            return
        new = self._read(text, after, text.to, beside)
        if len(new.servers) != len(old.servers):
            wrong("other number of servers", f"{len(old.servers)} → {len(new.servers)}")
            return
        if new.error and _incomplete(old.error) and _incomplete(new.error):
            outcome.count("migrate", "incomplete as before")
            return
        if new.error and text.kind == "slime" and _told(new.error, said.err):
            outcome.count("migrate", "an option that slime ignores, and says so")
            return
        if new.error:
            wrong("exit 0, though the target refuses it", new.error)
            return
        if old.error:
            outcome.count("migrate", "repaired a text that its version refuses")
            return
        announced = Announced.of(said.out, said.err)
        for before, behind in zip(old.servers, new.servers, strict=True):
            sides = ((before, text.version), (behind, text.to))
            for found in differences(self.reader.releases, *sides, announced, OWN):
                wrong(found.what, f"{found.name}: {found.detail}")
            if text.told:
                for line in defaults(self.reader.releases, *sides):
                    if not announced.names([line.partition(":")[0]]):
                        outcome.count("defaults not told", line)
        outcome.count("migrate", "compared")

    # -- recipes

    def _recipe(self, text: Text, directory: Path, outcome: Outcome) -> None:
        """A recipe says the same for two versions, before and after it is migrated."""
        path = _put(text, directory)
        first = self._rendered(text, directory, text.version, outcome)
        then = self._rendered(text, directory, text.to, outcome)
        self._alike(text, "render recipe", (first, text.version), (then, text.to), "", outcome)
        told = ["--from", text.version] if text.told else []
        said = speclaunch(["migrate", text.name, "--to", text.to, *told, "--force"], directory)
        outcome.count("migrate recipe", f"exit {said.code}")
        if said.code != 0:
            if path.read_text() != text.text:
                what = f"exit {said.code} rewrote the file"
                outcome.defects.append(Defect(text, "migrate recipe", what, "", said.err))
            if said.code not in (0, 1):
                detail = said.err.strip()[:300]
                outcome.defects.append(Defect(text, "migrate recipe", f"exit {said.code}", detail))
            return
        after = self._rendered(text, directory, text.to, outcome)
        if after is None and then is not None:
            detail = "the recipe can no longer be rendered"
            outcome.defects.append(Defect(text, "migrate recipe", "broken", detail, said.err))
        sides = (first, text.version), (after, text.to)
        self._alike(text, "migrate recipe", *sides, said.out + said.err, outcome)

    def _rendered(
        self, text: Text, directory: Path, version: str, outcome: Outcome
    ) -> tuple[Server, str] | None:
        """The server that a recipe is for a version, and what was said; None if it is none."""
        words = ["render", f"recipe={text.name}", "--to", "shell", "--engine", version, "--force"]
        done = speclaunch(words, directory)
        outcome.count("render recipe", f"exit {done.code}")
        verb = "render recipe"
        if done.code != 0:
            if done.code not in (1, 2):
                detail = done.err[:300]
                outcome.defects.append(Defect(text, verb, f"exit {done.code}", detail))
            return None
        new = self.reader.read("command", "run.sh", done.out, version)
        if new.refused:  # a recipe that names an interpreter by its path
            outcome.count(verb, "not run")
            return None
        if len(new.servers) != 1 or new.error:
            detail = new.error or f"{len(new.servers)} servers {new.refused or ''}"
            what = "exit 0, though the target refuses it"
            outcome.defects.append(Defect(text, verb, what, detail, done.err, done.out))
            return None
        return new.servers[0], f"{_comments(done.out)}\n{done.err}"

    def _alike(
        self,
        text: Text,
        verb: str,
        old: tuple[tuple[Server, str] | None, str],
        new: tuple[tuple[Server, str] | None, str],
        said: str,
        outcome: Outcome,
    ) -> None:
        (before, v_old), (after, v_new) = old, new
        if before is None or after is None:
            return
        announced = Announced.of(before[1], after[1], said)
        sides = (before[0], v_old), (after[0], v_new)
        for found in differences(self.reader.releases, *sides, announced, OWN):
            detail = f"{found.name}: {found.detail}"
            outcome.defects.append(Defect(text, verb, found.what, detail, said))
        outcome.count(verb, "compared")

    # -- import, and what is rendered from it

    def _import(self, text: Text, old: Meaning, directory: Path, outcome: Outcome) -> None:  # noqa: PLR0912, PLR0915
        _put(text, directory)
        several = ["--command", "1"] if len(old.servers) > 1 else []
        words = ["import", text.name, "--engine", text.version, *several, "--force"]
        said = speclaunch(words, directory)
        outcome.count("import", f"exit {said.code}")

        def wrong(verb: str, what: str, detail: str, said: Said, result: str = "") -> None:
            outcome.defects.append(Defect(text, verb, what, detail, said.err, result or said.out))

        if said.code == 3 and old.servers:
            wrong("import", "exit 3, though bash starts a server", said.err.strip()[:300], said)
        elif said.code not in (0, 1, 3):
            wrong("import", f"exit {said.code}", said.err.strip()[:300], said)
        elif said.code == 1 and not old.error:
            outcome.count("import", "exit 1 on an accepted text")
        if said.code != 0 or not old.servers:
            return
        if (directory / text.name).read_text() != text.text:
            wrong("import", "the file was changed", "", said)
        if _incomplete(old.servers[0].verdict.error) and "???" in said.out:
            outcome.count("import", "incomplete, and says so")
            return
        if _told(old.servers[0].verdict.error or "", said.err):
            outcome.count("import", "repaired, and says so")
            return
        if old.servers[0].verdict.error:
            wrong("import", "exit 0, though its version refuses it", old.error or "", said)
            return
        (directory / "recipe.yaml").write_text(said.out)
        notes = f"{_comments(said.out)}\n{said.err}"
        before = old.servers[0]
        for verb, words, version in (
            ("render shell", ["render", "--to", "shell", "--force"], text.version),
            ("render shell for another", ["render", "--to", "shell", "--force"], text.to),
            ("render slime", ["render", "--to", "slime", "--force"], text.version),
            ("dry-run", ["launch", "--dry-run", "--force"], text.version),
        ):
            if zlib.crc32(text.text.encode()) % RARELY[verb]:
                continue
            done = speclaunch(
                [words[0], "recipe=recipe.yaml", *words[1:], "--engine", version], directory
            )
            outcome.count(verb, f"exit {done.code}")
            if done.code == 2 and "???" in said.out and "has no value yet" in done.err:
                outcome.count(verb, "open, and said so")  # a slime script's model is elsewhere
                continue
            if verb == "render slime" and done.code == 1 and _SLIMES_ERROR.search(done.err):
                outcome.count(verb, "refused: slime cannot say it")
                continue
            if done.code != 0:
                if version == text.version and verb != "dry-run":
                    wrong(verb, f"exit {done.code} on what import wrote", done.err[:300], done)
                elif done.code not in (0, 1, 2):
                    wrong(verb, f"exit {done.code}", done.err[:300], done)
                continue
            script = _script(verb, done.out)
            if syntax := parses(script):
                wrong(verb, "broken syntax", syntax, done)
                continue
            new = self.reader.read("command", "run.sh", script, version, text.files)
            if not new.servers and ":?}" in script:
                outcome.count(verb, "asks for a secret")  # that no text may hold
                continue
            if len(new.servers) != 1:
                wrong(verb, "no server", f"{len(new.servers)} servers {new.refused or ''}", done)
                continue
            after = new.servers[0]
            if after.verdict.error:
                wrong(verb, "exit 0, though the target refuses it", after.verdict.error, done)
                continue
            announced = Announced.of(notes, _comments(done.out), done.err)
            after, ignored = self._of_slime(before, after, verb, wrong, done)
            sides = ((before, text.version), (after, version))
            for found in differences(self.reader.releases, *sides, announced, ignored):
                shown = f"{said.out}\n=====\n{done.out}"
                wrong(verb, found.what, f"{found.name}: {found.detail}", done, shown)
            outcome.count(verb, "compared")

    def _of_slime(
        self, before: Server, after: Server, verb: str, wrong: object, said: Said
    ) -> tuple[Server, frozenset[str]]:
        """What of a slime text is slime's own to say."""
        slime_before = before.entry == "slime"
        ignored = OWN | {"config"}
        if verb == "render slime":
            values = before.verdict.values
            sizes = [
                int(next((values[n] for n in names if n in values), 1))
                for names in (
                    ("tp_size", "tensor_parallel_size"),
                    ("pp_size", "pipeline_parallel_size"),
                )
            ]
            said_gpus = str(after.verdict.values.get("rollout_num_gpus_per_engine"))
            wanted = str(sizes[0] * sizes[1])
            if not slime_before and said_gpus != wanted and callable(wrong):
                wrong(verb, "GPUs of an engine", f"{said_gpus}, not {wanted}", said)
            ignored |= _SLIMES
            env = replace(after, env={**after.env})
            return env, ignored
        if slime_before:
            ignored |= _SLIMES
        return after, ignored


_UNRECOGNIZED = re.compile(r"unrecognized arguments: (.+)")


def _told(error: str, said: str) -> bool:
    """Whether a parser refused words that the verb named: slime passes over what it lacks."""
    refused = _UNRECOGNIZED.search(error)
    return refused is not None and all(word in said for word in refused[1].split())


def _incomplete(error: str | None) -> bool:
    """Whether all that is missing is the model: a fragment, as people quote them."""
    return error is not None and "arguments are required: --model-path" in error


def _put(text: Text, directory: Path) -> Path:
    for name, content in text.files.items():
        (directory / name).write_text(content)
    path = directory / text.name
    path.write_text(text.text)
    return path


def _syntax(text: Text, after: str) -> str | None:
    """What is wrong with the letters of a result."""
    if text.name.endswith((".yaml", ".yml")):
        try:
            list(yaml.safe_load_all(after))
        except yaml.YAMLError as error:
            return " ".join(str(error).split())
        return None
    return None if text.name.endswith(".md") else parses(after)


def _comments(text: str) -> str:
    return "\n".join(re.findall(r"(?:^|\s)#.*", text))


def _script(verb: str, out: str) -> str:
    if verb == "render slime":
        return f'{out}\npython3 train.py "${{SGLANG_ARGS[@]}}"\n'
    return out


def shown(defect: Defect) -> Iterator[str]:
    """A defect as a reader of the report wants it."""
    text = defect.text
    yield f"### {defect.group} — {text.id} ({text.version} → {text.to}, from told: {text.told})"
    yield f"{defect.detail}"
    for title, content in (
        ("text", text.text),
        *((name, content) for name, content in text.files.items()),
        ("said", defect.said),
        ("result", defect.result),
    ):
        yield f"--- {title}\n{content.rstrip()}"
