"""Collect the server commands of a script in execution order.

Nothing is run and no condition is evaluated. Every branch is read, and every loop body once. A
function body is read at each call, or at the end if nothing calls it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import PurePosixPath

from msgspec.structs import replace

from speclaunch.core import Problem, lazy
from speclaunch.deployments.sources import slime
from speclaunch.deployments.sources.commands import (
    CommandContext,
    Comments,
    FoundCommand,
    distinct,
    environment,
    hands_on,
    here_manifest,
    here_script,
    leftovers,
    look,
    prompt,
    stops,
)
from speclaunch.deployments.sources.expand import Expander
from speclaunch.deployments.sources.expansions import MAX_TEXT, MAX_WORDS, is_false_comparison
from speclaunch.deployments.sources.fields import Changes, Field, ShellScope, Value, from_argument
from speclaunch.deployments.sources.interface import (
    READ,
    SERVER,
    Dropped,
    Invocation,
    Reading,
    ReadingBuilder,
)
from speclaunch.deployments.sources.parser import DECLARING, parse
from speclaunch.deployments.sources.shell_syntax import (
    Assignment,
    Compound,
    Function,
    Node,
    Script,
    Simple,
    Substitution,
    asks,
    pipeline,
)
from speclaunch.deployments.sources.source_text import SourceSpan, SourceText, WordPiece, joined
from speclaunch.deployments.sources.wrappers import Wrapping

Assigned = tuple[str, Value, bool]
"""Name, value, and True if the value was appended."""

_READING = frozenset({"read", "mapfile", "readarray", "getopts"})


def assign(
    expander: Expander,
    assignment: Assignment,
    *,
    exported: bool | None = None,
    temporary: bool = False,
) -> Assigned:
    """Evaluate and return an assignment; set its variable unless `temporary` (before a command)."""
    scope = expander.scope
    before = scope.get(assignment.name)
    value = _value(expander, assignment, before)
    if exported is None:
        exported = scope.export_all or (before is not None and before.exported)
    value = replace(value, exported=exported or temporary)
    if not temporary:
        scope.set(assignment.name, value)
    return assignment.name, value, assignment.append


def _value(expander: Expander, assignment: Assignment, before: Value | None) -> Value:  # noqa: PLR0911
    written = assignment.value
    if isinstance(written, tuple):
        items = tuple(expander.words(written))
        if assignment.append and before is not None and before.items is not None:
            items = (*before.items, *items)
        elif assignment.append and before is not None and before.pieces:
            items = (Field(before.pieces, before.span), *items)
        if len(items) > MAX_WORDS:
            return Value(assignment.span, why=f"it has more than {MAX_WORDS} elements")
        expander.document.spend(len(items))
        return Value(assignment.span, items=items)
    if assignment.index is not None:
        return Value(assignment.span, why="its elements are set individually")
    pieces = expander.text(written)
    if assignment.append and before is not None:
        if before.items is not None or before.pieces is None:
            why = before.why or "the script appends to it in an unsupported way"
            return Value(assignment.span, why=why)
        held = (replace(piece, owner=piece.owner or before.span) for piece in before.pieces)
        pieces = (*held, *pieces)
        expander.document.spend(len(pieces))
        if sum(len(piece.text) for piece in pieces) > MAX_TEXT:
            return Value(assignment.span, why=f"it is longer than {MAX_TEXT} characters")
        return Value(assignment.span, pieces)
    return Value(written.span, pieces)


def builtin(expander: Expander, node: Simple, fields: Sequence[Field]) -> list[Assigned] | None:
    """Apply a builtin that changes variables. Return its assignments; None for other commands."""
    scope = expander.scope
    name = fields[0].text
    if name in DECLARING:
        return _declare(expander, node, fields)
    match name:
        case "unset":
            for field in fields[1:]:
                scope.set(field.text, None)
        case "set":
            _set(expander, fields[1:])
        case "shift":
            count = fields[1].text if len(fields) > 1 else "1"
            if scope.positional is not None:
                known = count.isdecimal() and len(count) < 5
                scope.positional = (
                    from_argument(scope.positional, int(count) + 1) if known else None
                )
        case "source" | ".":
            scope.sourced.extend(field.text for field in fields[1:2])
        case "printf" if len(fields) > 2 and fields[1].text == "-v":
            scope.set(fields[2].text, Value(node.span, why="`printf -v` sets it"))
        case _ if name in _READING:
            for field in fields[1:]:
                if field.text.isidentifier():
                    scope.set(field.text, Value(node.span, why=f"`{name}` sets it when it runs"))
        case _:
            return None
    return []


def _declare(expander: Expander, node: Simple, fields: Sequence[Field]) -> list[Assigned]:
    scope = expander.scope
    options = [field.text for field in fields[1:] if field.text.startswith(("-", "+"))]
    exports = fields[0].text == "export" or any("x" in o for o in options if o[0] == "-")
    if fields[0].text == "export" and "-n" in options:
        exports = False
    if scope.locals and fields[0].text != "export" and "-g" not in options:
        for name in (*(a.name for a in node.declared), *(field.text for field in fields[1:])):
            scope.locals[-1].setdefault(name, scope.get(name))
    done = [assign(expander, assignment, exported=exports or None) for assignment in node.declared]
    for field in fields[1:]:
        value = scope.get(field.text)
        if value is not None and (exports or "-n" in options):
            scope.set(field.text, replace(value, exported=exports))
    return done


def _set(expander: Expander, arguments: Sequence[Field]) -> None:
    scope = expander.scope
    for index, field in enumerate(arguments):
        text = field.text
        if text == "--":
            scope.positional = tuple(arguments[index + 1 :])
            return
        if text in ("-a", "+a"):
            scope.export_all = text == "-a"
        elif text == "allexport" and index and arguments[index - 1].text in ("-o", "+o"):
            scope.export_all = arguments[index - 1].text == "-o"


# -- current directory of the script

_DIRECTORY = "cd "
"""Pseudo-variable for the current directory.

No real variable can have this name. Branches, subshells and functions save and restore it like
any other variable.
"""
_CHANGING = frozenset({"cd", "pushd", "popd"})
_OWN = lazy(
    r"""\$\(\s*dirname\s+(?:--\s+)?"?\$(?:0|\{?BASH_SOURCE(?:\[0\])?\}?|\{0\})"?\s*\)(?=/|\Z)/?"""
)
"""Pattern of expressions for the script's own directory."""


def changed(scope: ShellScope, span: SourceSpan, fields: Sequence[Field]) -> bool:
    """Apply `cd`, `pushd` or `popd`; return True if the command is one."""
    if fields[0].text not in _CHANGING:
        return False
    scope.set(_DIRECTORY, _after(scope, span, fields))
    return True


def _after(scope: ShellScope, span: SourceSpan, fields: Sequence[Field]) -> Value | None:
    where = [field for field in fields[1:] if field.text[:1] != "-" or field.text == "-"]
    unknown = Value(span, why="the new directory is unknown")
    if fields[0].text == "popd" or len(where) != 1:
        return unknown
    (field,) = where
    own = _OWN.match(field.text)
    if own is not None and "$" not in (rest := field.text[own.end() :]):
        anchor = field.pieces[0].slice(0, 0)
        return Value(span, (replace(anchor, text=rest or ".", exact=False),))
    if field.unknown or field.text.startswith(("~", "-")) or not field.text:
        return unknown
    before = scope.get(_DIRECTORY)
    if PurePosixPath(field.text).is_absolute() or before is None:
        return Value(span, tuple(field.pieces))
    if before.pieces is None:
        return unknown
    slash = replace(before.pieces[-1].slice(0, 0), text="/", exact=False)
    return Value(span, (*before.pieces, slash, *field.pieces))


def directory(scope: ShellScope) -> str | None:
    """Return the current directory relative to the initial one; None if unchanged or unknown."""
    value = scope.get(_DIRECTORY)
    if value is None or value.pieces is None or any(piece.condition for piece in value.pieces):
        return None
    return "".join(piece.text for piece in value.pieces)


_MAX_CALLS = 12
_NOT_EVALUATED = "the condition was not evaluated; the command is read as if the condition held"


class ScriptReader(ReadingBuilder):
    """Reader of one script in a scope."""

    def __init__(
        self, script: Script, scope: ShellScope, context: CommandContext | None = None
    ) -> None:
        super().__init__()
        self.script = script
        self.document = script.source.document
        self.scope = scope
        self.context = context or CommandContext()
        self.expander = Expander(self.document, scope)
        self.unread += script.unread
        self.misread += script.misread
        self._conditions: list[Dropped] = []
        self._calls: list[str] = []
        self._called: set[str] = set()
        self._arguments: list[set[int]] = []  # start offsets of each function call's arguments
        self._defined: list[Function] = []
        self._regions: list[tuple[int, int]] = []
        """Assignments read so far, as ranges of the document."""
        self._slime: dict[str, list[tuple[SourceSpan, tuple[Field, ...]]]] = {}
        self._fragment: list[Field] = []
        self._dangling = False
        self._comments = Comments(script.comments)

    def read(self) -> Reading:
        nodes: Sequence[Node] = self.script.nodes
        if "ExecStart=" in (text := self.script.source.text) or "[Container]" in text:
            from speclaunch.deployments.sources import units  # noqa: PLC0415  few texts are a unit

            nodes, dropped = units.read_settings(nodes, self.scope)
            self._conditions.extend(dropped)
        self._run(nodes)
        for function in self._defined:
            if function.name not in self._called:
                with self.scope.isolated():
                    self.scope.positional = None
                    self._run(function.body)
        self._unused_arrays()
        return replace(self.reading(), invocations=tuple(distinct(self.invocations)))

    # -- commands in order --------------------------------------------------------------

    def _run(self, nodes: Sequence[Node]) -> None:
        condition: Node | None = None
        for index, node in enumerate(nodes):
            self.document.spend()
            if index and nodes[index - 1].end not in ("&&", "||"):
                condition = None
            before, condition = condition, condition or (node if asks(node) else None)
            if isinstance(node, Simple) and self._fragment_line(node):
                continue
            self._end_fragment()
            self._dangling = False
            if before is None:
                self._node(node, pipeline(nodes, index))
            else:
                self._after(before, node, pipeline(nodes, index))
        self._end_fragment()

    def _node(self, node: Node, pipeline: SourceSpan | None) -> None:
        match node:
            case Simple():
                self._simple(node, pipeline)
            case Compound():
                self._compound(node)
            case Function():
                self.scope.functions[node.name] = node
                self._defined.append(node)

    def _after(self, test: Node, node: Node, pipeline: SourceSpan | None) -> None:
        """Read a command after `&&` or `||`, which runs only if `test` allows it."""
        span = test.span
        with self.scope.filled(span.text), self.scope.isolated() as changes:
            before = self.scope.positional
            self._conditions.append(Dropped(span.text, span.place, _NOT_EVALUATED))
            self._node(node, pipeline)
            self._conditions.pop()
            moved = self.scope.positional is not before
        if moved:
            self.scope.positional = None
        self.document.spend(sum(value.size for value in changes.values() if value))
        condition = f"only under the condition of line {span.place.line}"
        self.scope.merge([changes], condition, complete=False)
        if stops((node,), self.scope.functions):
            self.scope.require(span.text, "n" if test.end == "||" else "z")

    def _compound(self, node: Compound) -> None:
        if node.kind in ("subshell", "group"):
            with self.scope.isolated() if node.kind == "subshell" else nullcontext():
                self._run(node.branches[0].body)
            return
        items = self.expander.words(node.items or ()) if node.kind == "for" else []
        if len(items) == 1 and items[0].unknown is None and node.variable is not None:
            exported = (old := self.scope.get(node.variable)) is not None and old.exported
            value = Value(items[0].stretch, items[0].pieces, exported=exported)  # runs just once
            self.scope.set(node.variable, value)
            self._run(node.branches[0].body)
            return
        outcomes: list[Changes] = []
        is_choice = node.kind in ("if", "case")
        complete = is_choice and any(branch.certain for branch in node.branches)
        moved = False
        for branch in node.branches:
            if node.kind == "if" and is_false_comparison(
                branch.condition, self.scope, self._arguments
            ):
                outcomes.append({})
                continue
            self._run(branch.condition)
            if node.kind == "for" and node.variable is None:
                self.expander.compute(branch.label.text, branch.label)
            why = _NOT_EVALUATED if is_choice else "a loop; its body is read once"
            with self.scope.filled(branch.label.text), self.scope.isolated() as changes:
                before = self.scope.positional
                if node.variable is not None:
                    shown = ", ".join(item.text for item in items[:8])
                    several = f"it has several values in a loop ({shown})"
                    value = Value(branch.label, why=several if items else "a loop sets it")
                    self.scope.set(node.variable, value)
                self._conditions.append(Dropped(branch.label.text, branch.label.place, why))
                self._run(branch.body)
                self._conditions.pop()
                moved = moved or self.scope.positional is not before
            outcomes.append(changes)
        if moved:
            self.scope.positional = None
        line = node.span.place.line
        where = "under the condition" if is_choice else "in the loop"
        self.document.spend(sum(value.size for c in outcomes for value in c.values() if value))
        self.scope.merge(outcomes, f"only {where} of line {line}", complete=complete)
        for branch in node.branches:
            if node.kind == "if" and stops(branch.body, self.scope.functions):
                self.scope.require(branch.label.text, "z")

    def _simple(self, node: Simple, pipeline: SourceSpan | None) -> None:
        for assignment in (*node.assignments, *node.declared):
            start = assignment.span.source.offset(assignment.span.start)
            self._regions.append((start, assignment.span.source.offset(assignment.span.end)))
        if node.span.text.startswith(("((", "let ")):
            self.expander.compute(node.span.text, node.span)
        if not node.words:
            for assignment in node.assignments:
                self._store_slime(assign(self.expander, assignment))
            return
        assigned = {a.name: assign(self.expander, a, temporary=True)[1] for a in node.assignments}
        self._substitutions(node)
        fields = self.expander.words(node.words)
        if not fields or changed(self.scope, node.span, fields):
            return
        assignments = builtin(self.expander, node, fields)
        if assignments is not None:
            for item in assignments:
                self._store_slime(item)
            return
        function = self.scope.functions.get(fields[0].text)
        if function is not None:
            before = len(self.invocations)
            self._call(function, fields[1:])
            if len(self.invocations) > before or not hands_on(function, fields):
                return
        self._command(node, fields, assigned, pipeline)

    def _command(
        self,
        node: Simple,
        fields: Sequence[Field],
        assigned: Mapping[str, Value],
        pipeline: SourceSpan | None,
    ) -> None:
        found = look(fields)
        if found.is_diffusion:
            self._slime.clear()  # the arrays are options of the diffusion server
        rest = (*self.context.dropped, *found.wrapping.dropped, *self._conditions)
        if found.script:
            self._script(found, assigned, (*rest, *leftovers(node, pipeline)))
        elif found.invocation is not None:
            invocation = found.invocation
            if self.script.strict:
                self.misread.extend(prompt(fields[0]))
            self.document.spend(len(self.scope.variables))
            env = environment(self.scope, assigned, found.wrapping, self.context)
            self._add(
                replace(
                    invocation,
                    env=env,
                    program=(*self.context.program, *invocation.program),
                    dropped=(*rest, *invocation.dropped, *leftovers(node, pipeline)),
                    name=invocation.name or self.context.name,
                    image=invocation.image or self.context.image,
                    directory=directory(self.scope),
                ),
                [replace(node.span, end=max(node.span.end, node.end_at))],
                fields,
            )
            self.problems.extend(found.problems)
            self._dangling = node.end == "\n"
        elif found.router is not None:
            router = found.router
            self.routers.append(replace(router, name=router.name or self.context.name))
        elif manifest := here_manifest(node, fields, pipeline):
            self.add(manifest)
        elif inner := here_script(node, fields, self.expander):
            source, is_run, why = inner
            dropped = Dropped(node.span.text, node.span.place, why)
            env = environment(self.scope, assigned, Wrapping(), self.context) if is_run else {}
            scope = self._child_scope(FoundCommand(), assigned) if is_run else ShellScope()
            self._read_inside(source, scope, CommandContext((), (*rest, dropped), base=env))

    def _script(
        self, found: FoundCommand, assigned: Mapping[str, Value], rest: Iterable[Dropped]
    ) -> None:
        pieces: list[WordPiece] = []
        for number, field in enumerate(found.script):
            if number and pieces:
                pieces.append(replace(pieces[-1].slice(0, 0), text=" ", exact=False))
            pieces.extend(field.pieces)
        source = joined(pieces, self.document)
        if not READ.search(source.text):
            return
        context = CommandContext(
            (*self.context.program, *(field.word() for field in found.before)),
            tuple(rest),
            found.wrapping.name or self.context.name,
            found.wrapping.image or self.context.image,
            environment(self.scope, assigned, found.wrapping, self.context),
        )
        self._read_inside(source, self._child_scope(found, assigned), context)

    def _child_scope(self, found: FoundCommand, assigned: Mapping[str, Value]) -> ShellScope:
        wrapping: Wrapping = found.wrapping
        known: dict[str, Value] = {}
        everything = found.before and found.before[0].text == "eval"
        if not wrapping.isolated:
            known = {n: v for n, v in self.scope.variables.items() if v.exported or everything}
            known |= {name: replace(value, exported=True) for name, value in assigned.items()}
            if (current := self.scope.get(_DIRECTORY)) is not None:
                known[_DIRECTORY] = current
        for name, field in wrapping.env.items():
            known[name] = Value(field.stretch, field.pieces, exported=True)
        functions = self.scope.functions if everything else {}
        positional = self.scope.positional if everything else found.positional
        return ShellScope(known, dict(functions), positional, list(self.scope.sourced))

    def _read_inside(self, source: SourceText, scope: ShellScope, context: CommandContext) -> None:
        self.document.spend(10 + len(source.text) // 100)
        if len(self._calls) >= _MAX_CALLS:
            return
        with self.tolerant():
            inner = ScriptReader(parse(source), scope, context)
            inner._calls = [*self._calls, ""]
            self.add(inner.read())

    def _substitutions(self, node: Simple) -> None:
        """Read the servers that a command's `$( … )` starts."""
        for word in node.words:
            for part in word.parts:
                if isinstance(part, Substitution) and SERVER.search(
                    word.source.text, part.start, part.end
                ):
                    with self.scope.isolated():
                        self._run(part.body)

    def _call(self, function: Function, arguments: Sequence[Field]) -> None:
        if len(self._calls) >= _MAX_CALLS or function.name in self._calls:
            return
        self._called.add(function.name)
        self._calls.append(function.name)
        before = self.scope.positional
        owned = (
            replace(f, pieces=tuple(replace(p, owner=p.owner or f.span) for p in f.pieces))
            for f in arguments
        )
        self.scope.positional = tuple(owned)
        self.scope.locals.append({})
        self._arguments.append({piece.offset(0) for field in arguments for piece in field.pieces})
        self._run(function.body)
        self._arguments.pop()
        for name, value in self.scope.locals.pop().items():
            self.scope.set(name, value)
        self.scope.positional = before
        self._calls.pop()

    # -- results ------------------------------------------------------------------------

    def _add(
        self, invocation: Invocation, spans: list[SourceSpan], fields: Sequence[Field]
    ) -> None:
        regions = {
            (span.source.offset(span.start), span.source.offset(max(span.end - 1, span.start)))
            for span in spans
        }
        offsets = {field.pieces[0].offset(0) for field in fields if field.used and field.pieces}
        if offsets:
            for start, end in self._regions:
                if any(start <= offset <= end for offset in offsets):
                    regions.add((start, end - 1))
        self.document.spend(1 + len(self._regions) // 20)
        comments = self._comments.within(sorted(regions))
        self.invocations.append(replace(invocation, comments=comments))

    def _store_slime(self, assigned: tuple[str, Value, bool]) -> None:
        """Store an array of `--sglang-` options, even if the file never uses it."""
        name, value, append = assigned
        fields = value.items
        text = "".join(piece.text for piece in value.pieces or ())
        if fields is None and "--sglang-" in text:
            fields = tuple(self.expander.resplit(value))
        if fields and any(slime.is_engines(field.text) for field in fields):
            held = self._slime.setdefault(name, [])
            if append and held:
                held.pop()
            held.append((value.span, fields))

    def _unused_arrays(self) -> None:
        used = {word.place for found in self.invocations for word in found.words}
        for held in self._slime.values():
            for span, fields in held:
                if any(field.place in used for field in fields if field.text.startswith("--sg")):
                    continue
                reading = slime.read_options(fields, fragment=True)
                env = environment(self.scope, {}, Wrapping(), self.context)
                self._add(replace(reading.invocation, env=env), [span], fields)
                self.problems.extend(reading.problems)

    def _fragment_line(self, node: Simple) -> bool:
        """Record a line of options without a command; return False for any other line.

        If the line was meant to continue the command above, record a problem.
        """
        first = node.words[0].plain if node.words and not node.assignments else None
        if first is None or not first.startswith("--") or len(first) < 3:
            return False
        if self._dangling:
            before = node.span.source.text[: node.span.start].rpartition("\n")[0]
            line = before.rpartition("\n")[2]
            why = "a comment" if "#" in line else "a line without a `\\` at its very end"
            help_ = f"join this line to the command above: {why} ended the command"
            message = "the shell runs this line as a separate command"
            self.problems.append(Problem(message, node.span.place, help_))
            return True
        self._fragment.extend(self.expander.words(node.words))
        return True

    def _end_fragment(self) -> None:
        fields, self._fragment = self._fragment, []
        if any(slime.is_engines(field.text) for field in fields) and not slime.is_diffusion(fields):
            reading = slime.read_options(fields, fragment=True)
            spans = [field.span for field in (fields[0], fields[-1]) if field.span is not None]
            extent = [SourceSpan(spans[0].source, spans[0].start, spans[-1].end)] if spans else []
            self._add(reading.invocation, extent, fields)
            self.problems.extend(reading.problems)


def run(
    source: SourceText,
    scope: ShellScope | None = None,
    context: CommandContext | None = None,
    *,
    strict: bool = False,
) -> Reading:
    """Return the commands of a script. Raise InputError if it is too large or deeply nested.

    `strict`: report syntax errors, because bash gets the text unchanged.
    """
    return ScriptReader(parse(source, strict=strict), scope or ShellScope(), context).read()
