"""Collect the server commands of a script in execution order.

Nothing is run. Every branch is read, and every loop body once. A function body is read at each
call, or at the end if nothing calls it. After a condition that the file or its defaults decide,
variables have the values of the branch that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

from msgspec.structs import replace

from speclaunch.core import Problem, lazy
from speclaunch.deployments.sources import expansions, slime
from speclaunch.deployments.sources import shell_builtins as bash
from speclaunch.deployments.sources.commands import (
    CommandContext,
    Comments,
    FoundCommand,
    child_scope,
    distinct,
    environment,
    hands_on,
    here_manifest,
    here_script,
    leftovers,
    look,
    prompt,
    returns,
    stops,
)
from speclaunch.deployments.sources.expand import Expander
from speclaunch.deployments.sources.fields import Changes, Field, ShellScope, Value, is_any_number
from speclaunch.deployments.sources.interface import (
    READ,
    Dropped,
    Invocation,
    Reading,
    ReadingBuilder,
)
from speclaunch.deployments.sources.parser import parse
from speclaunch.deployments.sources.shell_syntax import (
    Branch,
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
from speclaunch.deployments.sources.wrappers import Wrapping, read_wrappers

_MAX_CALLS = 12
_ARGUMENTS = lazy(r"\$\{?[#@*1-9]|\bgetopts\b|\bfor\s+\w+\s*\Z")
_COMMAND = lazy(r"\$\(|`")
_VARIABLE = lazy(r"\$\{?(\w+)")
_NOT_EVALUATED = "the condition was not evaluated; the command is read as if the condition held"
_NOT_BY_DEFAULT = "by default the condition does not hold; the command is read as if it did"
_WHY = {False: _NOT_BY_DEFAULT, None: _NOT_EVALUATED, True: _NOT_EVALUATED}


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
        self.expander.neighbor = partial(bash.neighbor, scope)
        self.expander.printed = self._printed
        self.unread += script.unread
        self.misread += script.misread
        self._conditions: list[Dropped] = []
        self._calls: list[str] = []
        self._called: set[str] = set()
        self._returned: set[int] = set()
        """Depths of calls whose function may have returned."""
        self._containers: dict[str, str] = {}
        """Images of the started containers by name."""
        self._loops = 0
        self._is_uncalled = False
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
                    self._is_uncalled = True
                    self._run(function.body)
                    self._is_uncalled = False
        self._unused_arrays()
        return replace(self.reading(), invocations=tuple(distinct(self.invocations)))

    # -- commands in order --------------------------------------------------------------

    def _run(self, nodes: Sequence[Node]) -> None:
        condition: Node | None = None
        status: bool | None = None
        for index, node in enumerate(nodes):
            self.document.spend()
            is_first = not index or nodes[index - 1].end not in ("&&", "||")
            if index and is_first:
                condition = status = None
                self.expander.assumption = None
            before, condition = condition, condition or (node if asks(node) else None)
            if isinstance(node, Simple) and self._fragment_line(node):
                continue
            self._end_fragment()
            self._dangling = False
            piped = pipeline(nodes, index)
            pipes = (node.end, nodes[index - 1].end if index else "")
            is_child = node.end == "&" or "|" in pipes or "|&" in pipes
            runs = None if status is None else status == (nodes[index - 1].end == "&&")
            with bash.child(self.scope, node.end) if is_child else nullcontext():
                if before is None:
                    self._node(node, piped)
                else:
                    self._after(before, node, piped, runs)
            if is_first or runs is not False:
                status = self._status(node) if is_first or runs else None
            if is_first and self._leaves(node):
                break
            if self._may_return(node, before) and index + 1 < len(nodes):
                self._maybe(nodes[index + 1 :], node)
                break
        self._end_fragment()

    def _node(self, node: Node, pipeline: SourceSpan | None) -> None:
        before = self.scope.get(bash.OUTPUT)
        match node:
            case Simple():
                self._simple(node, pipeline)
            case Compound():
                self._compound(node)
            case Function():
                self.scope.functions[node.name] = node
                self._defined.append(node)
        if before is not None and bash.is_silent(node):
            self.scope.set(bash.OUTPUT, before)

    def _status(self, node: Node) -> bool | None:
        """Return the exit status of a test or an assignment before `&&` or `||`."""
        if node.end not in ("&&", "||") or self._loops or not isinstance(node, Simple):
            return None
        if node.assignments and not node.words:
            return None if _COMMAND.search(node.span.text) else True
        with self._arguments_of_script(node.span.text):
            return self.expander.holds((replace(node, end=""),))

    @contextmanager
    def _arguments_of_script(self, text: str) -> Iterator[None]:
        """Inside the context, assume no arguments of the script if a condition uses them."""
        before = self.scope.positional
        some = before or ()
        is_known = before is not None and not any(map(is_any_number, some))
        if not (is_known or self._is_uncalled) and _ARGUMENTS.search(text):
            self.scope.positional = tuple(f for f in some if not is_any_number(f))
            self.expander.assumption = "the script gets no arguments"
        yield
        self.scope.positional = before

    def _leaves(self, node: Node) -> bool:
        """True if nothing after a command runs in the same function, loop or branch."""
        name = node.words[0].plain if isinstance(node, Simple) and node.words else None
        return name in ("return", "break", "continue") and bool(self._calls or self._conditions)

    def _may_return(self, node: Node, before: Node | None) -> bool:
        """True if a command may leave the current function without an error."""
        if not self._calls or len(self._calls) in self._returned:
            return False
        is_error = before is not None and before.end == "||" and node.span.text == "return"
        return not is_error and returns((node,))

    def _maybe(self, nodes: Sequence[Node], test: Node) -> None:
        """Read commands that run only if the function did not return before."""
        self._returned.add(len(self._calls))
        with self.scope.isolated() as changes:
            self._run(nodes)
        self._returned.discard(len(self._calls))
        condition = f"only under the condition of line {test.span.place.line}"
        self.scope.merge([changes], condition, complete=False)

    def _after(
        self, test: Node, node: Node, pipeline: SourceSpan | None, runs: bool | None
    ) -> None:
        """Read a command after `&&` or `||`, which runs only if `test` allows it."""
        span = test.span
        excludes = runs is False
        with self.scope.filled(span.text, excludes=excludes), self.scope.isolated() as changes:
            before = self.scope.positional
            self._conditions.append(Dropped(span.text, span.place, _WHY[runs]))
            self._node(node, pipeline)
            self._conditions.pop()
            after = self.scope.positional
        if after is not before and runs is not False:
            self.scope.positional = after if runs and not self.expander.assumption else None
        self.document.spend(sum(value.size for value in changes.values() if value))
        condition = f"only under the condition of line {span.place.line}"
        taken = None if runs is None else int(not runs)
        note = self.expander.assumption
        self.scope.merge([changes], condition, complete=False, taken=taken, note=note)
        if stops((node,), self.scope.functions):
            self.scope.require(span.text, "n" if test.end == "||" else "z")

    def _compound(self, node: Compound) -> None:
        if node.kind in ("subshell", "group"):
            with bash.child(self.scope) if node.kind == "subshell" else nullcontext():
                self._run(node.branches[0].body)
            return
        if node.kind == "for" and self._each(node):
            return
        items = self.expander.words(node.items or ()) if node.kind == "for" else []
        outcomes: list[Changes] = []
        is_choice = node.kind in ("if", "case")
        complete = is_choice and any(branch.certain for branch in node.branches)
        moved, taken, is_open, self.expander.assumption = False, None, not self._loops, None
        note: str | None = None
        for branch in node.branches:
            self._loops += not is_choice
            self._run(branch.condition)
            result = self._result(node, branch)
            if is_choice and result is False and self._compares_argument(node, branch):
                outcomes.append({})
                continue
            note = note or (self.expander.assumption if is_open else None)
            leaves = is_choice and stops(branch.body, self.scope.functions)
            leaves = leaves and not returns(branch.body)
            if is_open and result is not False:
                is_open, taken = False, len(outcomes) if result and not leaves else None
            self.expander.assumption = None
            if node.kind == "for" and node.variable is None:
                self.expander.compute(branch.label.text, branch.label)
            why = _WHY[result] if is_choice else "a loop; its body is read once"
            with (
                self.scope.filled(branch.label.text, excludes=result is False),
                self.scope.isolated() as changes,
            ):
                before = self.scope.positional
                self.scope.positional = self._in_body(node)
                if node.variable is not None:
                    shown = ", ".join(item.text for item in items[:8])
                    several = f"it has several values in a loop ({shown})"
                    value = Value(branch.label, why=several if items else "a loop sets it")
                    self.scope.set(node.variable, value)
                self._conditions.append(Dropped(branch.label.text, branch.label.place, why))
                self._run(branch.body)
                self._conditions.pop()
                moved = moved or self.scope.positional is not before
            self._loops -= not is_choice
            if not leaves:
                outcomes.append(changes)
        if is_open and not complete:
            taken = len(outcomes)
        if moved and taken != len(outcomes):
            self.scope.positional = None
        where = "under the condition" if is_choice else "in the loop"
        self.document.spend(sum(value.size for c in outcomes for value in c.values() if value))
        condition = f"only {where} of line {node.span.place.line}"
        self.scope.merge(outcomes, condition, complete=complete, taken=taken, note=note)
        for branch in node.branches:
            if node.kind == "if" and stops(branch.body, self.scope.functions):
                self.scope.require(branch.label.text, "z")

    def _in_body(self, node: Compound) -> tuple[Field, ...] | None:
        """Return the arguments in a branch; None in a loop that shifts them."""
        shifts = node.kind not in ("if", "case") and "shift" in node.span.text
        return None if shifts and self.scope.positional else self.scope.positional

    def _each(self, node: Compound) -> bool:
        """Run a `for` loop's body for each item; return False if they are unknown or many."""
        label, body, self.expander.assumption = node.branches[0].label, node.branches[0].body, None
        name = node.variable or next(iter(expansions.set_by(label.text)), "")
        values = self.expander.items(node) if node.variable else self.expander.counted(name, label)
        leaves = returns(body, (["break"], ["continue"]))
        if not values or leaves or not self.document.has_room:
            return False
        note, before = self.expander.assumption, self.scope.positional
        with self.scope.isolated() as changes:
            for value in values if node.variable else values[:-1]:
                self.scope.set(name, held := value.noted(note))
                self._run(body)
                is_same = node.variable or (  # the body sets neither the variable nor its limit
                    self.scope.get(name) is held
                    and len(self.expander.counted(name, label)) == len(values)
                )
                self.document.spend()
                if not is_same or not self.document.has_room:
                    return False
            if node.variable is None:
                self.scope.set(name, values[-1].noted(note))
            moved = self.scope.positional is not before
        for changed_name, left in changes.items():
            self.scope.set(changed_name, left and left.noted(note))
        self.scope.positional = None if moved else before
        return True

    def _compares_argument(self, node: Compound, branch: Branch) -> bool:
        """True if a condition compares only arguments of the current function, as passed."""
        names = _VARIABLE.findall(node.items[0].span.text if node.items else branch.label.text)
        if not self._arguments or self.expander.assumption or not names:
            return False
        held = [self.scope.get(name) for name in names if not name.isdigit()]
        every = [value.pieces if value is not None else None for value in held]
        own = self._arguments[-1]
        return all(pieces and {piece.offset(0) for piece in pieces} <= own for pieces in every)

    def _result(self, node: Compound, branch: Branch) -> bool | None:
        """Return True if a branch runs, False for a loop without iterations; None if unknown."""
        is_getopt = bash.reads_getopt(node)
        with self._arguments_of_script("$1" if is_getopt else branch.label.text):
            if is_getopt and self.scope.positional == ():
                return False
            if branch.certain and node.kind in ("if", "case"):
                return True
            if node.kind == "if":
                return self.expander.holds(branch.condition)
            if node.kind == "case" and node.items and ";&" not in node.span.text:
                return self.expander.matches(node.items[0], branch.label)
            if node.kind in ("while", "until"):
                result = self.expander.holds(branch.condition)
                return False if result is (node.kind == "until") else None
            is_list = node.variable is not None and self.scope.positional == ()
            return False if is_list and not self.expander.words(node.items or ()) else None

    def _simple(self, node: Simple, pipeline: SourceSpan | None) -> None:
        for assignment in (*node.assignments, *node.declared):
            start = assignment.span.source.offset(assignment.span.start)
            self._regions.append((start, assignment.span.source.offset(assignment.span.end)))
        if node.span.text.startswith(("((", "let ")):
            self.expander.compute(node.span.text, node.span, counts=not self._loops)
        if not node.words:
            for assignment in node.assignments:
                self._store_slime(bash.assign(self.expander, assignment))
            return
        assigned = dict(bash.assign(self.expander, a, temporary=True)[:2] for a in node.assignments)
        fields = self.expander.words(node.words)
        if not fields or bash.changed(self.scope, node.span, fields) or self._sources(node, fields):
            return
        assignments = bash.builtin(self.expander, node, fields)
        if assignments is not None:
            for item in assignments:
                self._store_slime(item)
            return
        function = self.scope.functions.get(fields[0].text)
        if function is not None:
            before = len(self.invocations)
            held = {name: self.scope.get(name) for name in assigned}
            for name, value in assigned.items():
                self.scope.set(name, value)
            self._call(function, fields[1:])
            for name, old in held.items():
                self.scope.set(name, old)
            if len(self.invocations) > before or not hands_on(function, fields):
                return
        bash.put(self.expander, node, fields)
        self._command(node, fields, assigned, pipeline)

    def _command(
        self,
        node: Simple,
        fields: Sequence[Field],
        assigned: Mapping[str, Value],
        pipeline: SourceSpan | None,
    ) -> None:
        found = look(fields)
        found.wrapping.image = self._image(fields, found.wrapping.image)
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
                    image=found.wrapping.image or self.context.image,
                    directory=bash.directory(self.scope),
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
            scope = child_scope(self.scope, FoundCommand(), assigned) if is_run else ShellScope()
            self._read_inside(source, scope, CommandContext((), (*rest, dropped), base=env))

    def _image(self, fields: Sequence[Field], image: str | None) -> str | None:
        """Return the image of a container; of `docker exec NAME`, that of its `docker run`."""
        if any(field.text.startswith("--name") for field in fields):
            started = read_wrappers(fields)
            if started.name and started.image and "$" not in started.image:
                self._containers[started.name] = started.image
        return self._containers.get(image or "", image)

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
        self._read_inside(source, child_scope(self.scope, found, assigned), context)

    def _read_inside(self, source: SourceText, scope: ShellScope, context: CommandContext) -> None:
        self.document.spend(10 + len(source.text) // 100)
        if len(self._calls) >= _MAX_CALLS:
            return
        with self.tolerant():
            inner = ScriptReader(parse(source), scope, context)
            inner._calls = [*self._calls, ""]
            self.add(inner.read())

    def _sources(self, node: Simple, fields: Sequence[Field]) -> bool:
        """Apply the file that `source` reads; return False for an unreadable file."""
        has_room = len(self._calls) < _MAX_CALLS and self.document.has_room
        found = bash.sourced(self.scope, node, fields) if has_room else None
        if found is None:
            return False
        inner, before = ScriptReader(found[0], self.scope), dict(self.scope.variables)
        inner._calls, inner._loops = [*self._calls, ""], self._loops
        inner._run(found[0].nodes)
        for name, value in list(self.scope.variables.items()):
            if value is not before.get(name):
                self.scope.set(name, bash.imported(value, node.span, found[1]))
        return True

    def _printed(self, part: Substitution, source: SourceText) -> Value | None:
        """Return what the commands of `$( … )` print; None if unknown."""
        if len(self._calls) >= _MAX_CALLS:
            return None
        held, self._fragment = (self._fragment, self._dangling), []
        self._calls.append("")
        with self.scope.isolated():
            self.scope.set(bash.INPUT, None)
            self.scope.set(bash.OUTPUT, Value(SourceSpan(source, part.start, part.end), ()))
            self._run(part.body)
            value = self.scope.get(bash.OUTPUT)
        self._calls.pop()
        (self._fragment, self._dangling), self.expander.assumption = held, None
        return bash.settled(value, part.body)

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
        if fields and slime.starts_engines(fields):
            held = self._slime.setdefault(name, [])
            if append and held:
                held.pop()
            held.append((value.span, fields))

    def _unused_arrays(self) -> None:
        used = {w.place for x in self.invocations for w in (*x.words, *x.extras.values())}
        for held in self._slime.values():
            for span, fields in held:
                if any(field.place in used for field in fields):
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
        if first is None or not first.startswith("--") or len(first) < 3 or first.endswith(":"):
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
        if slime.starts_engines(fields) and not slime.is_diffusion(fields):
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
