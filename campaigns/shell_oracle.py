"""Compare the shell reader's structure with that of tree-sitter-bash: commands, words, comments.

    python -m campaigns shell_oracle MIRROR [--manifest FILE] [--show N] [--store]
    python -m campaigns shell_oracle --files FILE…

The manifest (`tests/published/shell_scripts.json`) names published scripts: repository, path and
commit, nothing of their text; `campaigns/published.py` says what a MIRROR is. Compared is what a
script holds as written: where each simple command begins, its words as far as they are literal,
comments, and where here-documents begin and end. Scripts that tree-sitter itself cannot read are
counted and left out; where the two differ, bash decides, and who was right is said in `judged` of
the manifest.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tree_sitter
import tree_sitter_bash

from campaigns.published import MANIFESTS, PublishedFile, text_of
from speclaunch.core.errors import InputError
from speclaunch.deployments.sources.parser import DECLARING, parse
from speclaunch.deployments.sources.shell_syntax import (
    Branch,
    Compound,
    Function,
    Literal,
    Node,
    Parameter,
    Redirect,
    ShellWord,
    Simple,
    Substitution,
)
from speclaunch.deployments.sources.source_text import Document

MANIFEST = MANIFESTS / "shell_scripts.json"
_TESTS = frozenset({"[", "[["})
_SKIPPED = frozenset(
    [
        *("test_command", "heredoc_body", "process_substitution", "arithmetic_expansion"),
        *("translated_string", "ansi_c_string", "binary_expression"),
    ]
)
"""What one of the two does not look into."""
_ESCAPED = re.compile(r"\\(\n|.)", re.DOTALL)
_IN_STRING = re.compile(r"\\(\n|[$`\"\\])")

Words = tuple[str | None, ...]
"""The words of a command; None for one that is not literal."""


@dataclass(slots=True)
class Structure:
    """What one reader sees: commands and comments by where they begin, here-documents."""

    commands: dict[int, Words] = field(default_factory=dict)
    comments: set[int] = field(default_factory=set)
    documents: set[int] = field(default_factory=set)
    """Where the text of each here-document ends."""


# -- ours ----------------------------------------------------------------------------------


def ours(text: str) -> Structure:
    """What speclaunch sees. Raises InputError where it cannot read the script."""
    script = parse(Document(text, "x.sh").source())
    found = Structure(comments={span.source.offset(span.start) for span in script.comments})
    for node in _nodes(script.nodes):
        for redirect in _redirects(node):
            if redirect.body is not None:
                found.documents.add(redirect.body.source.offset(redirect.body.end))
        if isinstance(node, Simple) and node.words:
            first = node.words[0]
            if first.plain not in _TESTS and first.plain not in DECLARING:
                found.commands[first.source.offset(first.start)] = tuple(map(_text, node.words))
    return found


def _redirects(node: Node) -> Sequence[Redirect]:
    return () if isinstance(node, Function) else node.redirects


def _nodes(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        if isinstance(node, Function):
            yield from _nodes(node.body)
            continue
        if isinstance(node, Compound):
            for branch in node.branches:
                yield from _branch(branch)
            words = list(node.items or ())
        else:
            if node.words and node.words[0].plain in _TESTS:
                continue
            words = [*node.words, *_assigned(node)]
        words += [one.target for one in node.redirects if one.target is not None]
        for word in words:
            yield from _inside(word)


def _branch(branch: Branch) -> Iterator[Node]:
    yield from _nodes(branch.condition)
    yield from _nodes(branch.body)


def _assigned(node: Simple) -> Iterator[ShellWord]:
    for assignment in (*node.assignments, *node.declared):
        if isinstance(assignment.value, tuple):
            yield from assignment.value
        else:
            yield assignment.value


def _inside(word: ShellWord) -> Iterator[Node]:
    for part in word.parts:
        if isinstance(part, Substitution):
            yield from _nodes(part.body)
        elif isinstance(part, Parameter) and part.operand is not None:
            yield from _inside(part.operand)


def _text(word: ShellWord) -> str | None:
    if not all(isinstance(part, Literal) and part.exact for part in word.parts):
        return None
    return "".join(part.text for part in word.parts if isinstance(part, Literal))


# -- tree-sitter's -------------------------------------------------------------------------


def theirs(text: str) -> Structure | None:
    """What tree-sitter-bash sees; None where it cannot read the script."""
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    data = text.encode()
    root = parser.parse(data).root_node
    if root.has_error:
        return None
    offsets = _Offsets(data)
    found = Structure()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type == "comment":
            found.comments.add(offsets.of(node.start_byte))
        elif node.type == "heredoc_redirect":
            _document(node, offsets, found)
        elif node.type in ("command", "declaration_command", "unset_command"):
            words = [one for one in node.children if _is_word(node, one)]
            if words and node.type != "declaration_command":
                found.commands[offsets.of(words[0].start_byte)] = tuple(map(_literal, words))
        if node.type not in _SKIPPED:
            waiting.extend(node.children)
    return found


class _Offsets:
    """Characters for bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.ascii = data.isascii()

    def of(self, at: int) -> int:
        return at if self.ascii else len(self.data[:at].decode())


def _document(node: Any, offsets: _Offsets, found: Structure) -> None:
    end = next((one for one in node.children if one.type == "heredoc_end"), None)
    if end is not None:
        found.documents.add(offsets.of(end.start_byte))


def _is_word(command: Any, node: Any) -> bool:
    if node.type in ("variable_assignment", "variable_assignments", "comment", "subshell"):
        return False
    return not node.type.endswith("_redirect") and (node.is_named or command.type != "command")


def _literal(node: Any) -> str | None:
    text: str = node.text.decode()
    match node.type:
        case "command_name" if node.child_count:
            return _literal(node.children[0]) if node.child_count == 1 else None
        case "word" | "number" | "variable_name" | "command_name" | "unset":
            return _ESCAPED.sub(lambda match: "" if match[1] == "\n" else match[1], text)
        case "raw_string":
            return text[1:-1]
        case "string" if all(one.type in ('"', "string_content") for one in node.children):
            return _IN_STRING.sub(lambda match: "" if match[1] == "\n" else match[1], text[1:-1])
        case "concatenation":
            parts = [_literal(one) for one in node.children]
            return None if None in parts else "".join(part or "" for part in parts)
    return None


# -- comparing -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that the two see differently."""

    what: str
    at: int
    mine: object
    its: object


def differences(mine: Structure, its: Structure) -> list[Difference]:
    """Where the two differ: commands, their literal words, comments, here-documents."""
    found = [
        Difference("command", at, mine.commands.get(at), its.commands.get(at))
        for at in sorted(mine.commands.keys() ^ its.commands.keys())
    ]
    for at in sorted(mine.commands.keys() & its.commands.keys()):
        one, other = mine.commands[at], its.commands[at]
        if len(one) != len(other) or any(
            a is not None and b is not None and a != b for a, b in zip(one, other, strict=False)
        ):
            found.append(Difference("words", at, one, other))
    found += [
        Difference("comment", at, at in mine.comments, at in its.comments)
        for at in sorted(mine.comments ^ its.comments)
    ]
    found += [
        Difference("here-document", at, at in mine.documents, at in its.documents)
        for at in sorted(mine.documents ^ its.documents)
    ]
    return found


def compare(text: str) -> tuple[str, Structure | None, list[Difference]]:
    """What became of a script: `equal`, `differs`, `theirs` or `ours` cannot read it."""
    its = theirs(text)
    try:
        mine = ours(text)
    except InputError:
        return "unread", its, []
    if its is None:
        return "not read by tree-sitter", None, []
    found = differences(mine, its)
    return ("differs" if found else "equal"), its, found


def main() -> int:
    """Carry out the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("mirror", type=Path, nargs="?")
    parser.add_argument("--manifest", type=Path, default=MANIFEST)
    parser.add_argument("--files", type=Path, nargs="*", default=[])
    parser.add_argument("--show", type=int, default=0, metavar="N", help="differences a script")
    parser.add_argument("--store", action="store_true", help="keep the sums in the manifest")
    given = parser.parse_args()
    texts = [(str(path), path.read_bytes()) for path in given.files]
    manifest = json.loads(given.manifest.read_text()) if given.mirror is not None else {}
    for one in manifest.get("files", ()):
        file = PublishedFile(one["repository"], one["commit"], one["path"], "shell", ())
        data = text_of(given.mirror, file)
        if data is not None:
            texts.append((file.name, data))
    sums: Counter[str] = Counter()
    for name, data in texts:
        text = data.decode(errors="replace").replace("\r\n", "\n")
        said, its, found = compare(text)
        sums["scripts"] += 1
        sums[said] += 1
        sums["commands"] += len(its.commands) if its is not None else 0
        sums.update(f"different: {one.what}" for one in found)
        for one in found[: given.show]:
            line = text.count("\n", 0, one.at) + 1
            print(f"{name}:{line}: {one.what}: ours {one.mine}, tree-sitter's {one.its}")
    print(json.dumps(sums, indent=1))
    if given.store and manifest:
        manifest["sums"] = dict(sums)
        given.manifest.write_text(json.dumps(manifest, indent=1) + "\n")
    return 0
