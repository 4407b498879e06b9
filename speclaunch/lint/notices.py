"""Findings about files and their ignores rather than about a deployment."""

from __future__ import annotations

from dataclasses import dataclass

from speclaunch.rules.interface import Severity


@dataclass(frozen=True, slots=True)
class Notice:
    """What lint says without a rule: code, name, severity and documentation as a rule has them."""

    code: str
    name: str
    severity: Severity
    doc: str

    @property
    def summary(self) -> str:
        """The first line of the documentation."""
        return self.doc.strip().partition("\n")[0].rstrip(".")


UNREADABLE = Notice(
    "SPL000",
    "unreadable-file",
    Severity.ERROR,
    """A file, or a part of it, cannot be read.

## What it does
Reports a file that cannot be checked (it is not there, not YAML, not a recipe), or the one command
of a script that cannot (a quote that never ends, a pasted line of a log). Everything else is
checked all the same; the exit code is 2.

## Why it matters
A deployment that is not checked is not fine.
""",
)
UNUSED = Notice(
    "SPL091",
    "unused-ignore",
    Severity.WARNING,
    """An ignore comment silences nothing.

## What it does
Reports `# speclaunch: ignore[CODE]` where nothing with that code was found: the deployment was
mended, the engine version does not have the limitation, or the comment stands on another line.

## Why it matters
The next finding of that code, a different one, would be silenced unseen.

## Example
```yaml
args:
  speculative_algorithm: EAGLE3  # speclaunch: ignore[SPL211] we know
```

## Use instead
```yaml
args:
  speculative_algorithm: EAGLE3
```
""",
)
INVALID = Notice(
    "SPL092",
    "invalid-ignore",
    Severity.WARNING,
    """An ignore comment that cannot work.

## What it does
Reports `# speclaunch: ignore` without a code in brackets, with a code that no rule has, or without
a reason.

## Why it matters
It silences nothing, or nobody will know why it is there.

## Example
```yaml
args:
  host: 0.0.0.0  # speclaunch: ignore
```

## Use instead
```yaml
args:
  host: 0.0.0.0  # speclaunch: ignore[SPL801] the gateway in front of it checks the key
```
""",
)
NOT_UNDERSTOOD = Notice(
    "SPL093",
    "not-understood",
    Severity.WARNING,
    """A part of a file that nobody can make sense of.

## What it does
Reports what a reader met on its way to a server command and could not take for one: an option of
slime without its `--sglang-` prefix, a command that is put together while the script runs.

## Why it matters
What is not understood is not checked. slime drops options of the engine that lack the prefix, and
rolls out without what they say: without speculation, for one.

## Example
```bash
SGLANG_ARGS=(--sglang-speculative-algorithm EAGLE --speculative-num-steps 3)
```

## Use instead
```bash
SGLANG_ARGS=(--sglang-speculative-algorithm EAGLE --sglang-speculative-num-steps 3)
```
""",
)
PLACEHOLDER = Notice(
    "SPL016",
    "placeholder-in-script",
    Severity.ERROR,
    """The shell takes a placeholder, a prompt or a line end for something else.

## What it does
Finds `<model>` as a value in a script: the shell reads it as two redirections. A pasted Markdown
link, `[model](https://…)`, is a syntax error. A prompt, `$ python3 …`, is a command named `$`. In a
script with CRLF line ends the carriage return is a part of the last word of each line, and a `\\`
before it continues no line; this is told once for a file. In documents and templates all of them
are what they look like: a value to fill in, a text with a link, a prompt, the end of a line.

## Why it matters
The value is missing, the next word becomes the name of a file to write, and the flags that follow
take each other's places: `--model <model> --tp 8` redirects the output to a file `--tp` and leaves
`--model 8`.

## Example
```bash
python3 -m sglang.launch_server --model-path <model> --speculative-algorithm NGRAM
```

## Use instead
```bash
python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --speculative-algorithm NGRAM
```
""",
)
NOTICES = (UNREADABLE, PLACEHOLDER, UNUSED, INVALID, NOT_UNDERSTOOD)
