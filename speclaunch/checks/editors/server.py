"""Language server: answer an editor's requests and report lint findings as the text changes.

Malformed and oversized messages are skipped.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import queue
import re
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path
from pygls.workspace import TextDocument

from speclaunch import __version__
from speclaunch.checks.editors.answers import (
    FIX_ALL,
    actions,
    completions,
    diagnostics,
    fix_all,
    hover,
)
from speclaunch.checks.editors.document import (
    CheckedDocument,
    DocumentPositions,
    EditorSettings,
    check_document,
    look_again,
    read_settings,
)
from speclaunch.core import InputError, SpeclaunchError

MAX_MESSAGE_BYTES = 32 << 20
"""Maximum message size, enough for an escaped document of 10 MiB."""
_MAX_SKIPPED_BYTES = 1 << 30
"""Maximum bytes of a body that is skipped as a unit; larger bodies are searched for a header."""
_LINE_BYTES = 1 << 16
_CHUNK = 1 << 20
SKIPPED = "speclaunch/skippedMessage"
"""Notification that replaces an oversized message; its `size` is in bytes."""
_LENGTH = re.compile(rb"content-length[ \t]*:[ \t]*(\d{1,20})[ \t]*\r?\n\Z", re.IGNORECASE)


class BoundedInput:
    """Input stream for pygls that limits the size of messages.

    `readline` returns header lines that pygls understands, and `read` the body. A header without a
    valid length is skipped. The next header is found even directly after a body of unknown length.
    An oversized message becomes a `SKIPPED` notification.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._is_in_header = False
        self._instead: bytes | None = None
        """Substitute for the next body; None: read it from the stream."""

    def readline(self) -> bytes:
        """Return the next line of a header; empty at the end of the stream."""
        if self._is_in_header:
            self._is_in_header = False
            return b"\r\n"
        length = self._next_length()
        if length > MAX_MESSAGE_BYTES:
            self._skip(length)
            notification = {"jsonrpc": "2.0", "method": SKIPPED, "params": {"size": length}}
            self._instead = json.dumps(notification).encode()
            length = len(self._instead)
        self._is_in_header = length > 0
        return b"Content-Length: %d\r\n" % length if length else b""

    def _next_length(self) -> int:
        length = 0
        while line := self._stream.readline(_LINE_BYTES):
            found = _LENGTH.search(line)
            if found is not None:
                length = int(found[1])
            elif length and not line.strip():
                return length
        return 0

    def read(self, size: int) -> bytes:
        instead, self._instead = self._instead, None
        return self._stream.read(size) if instead is None else instead

    def _skip(self, length: int) -> None:
        if length > _MAX_SKIPPED_BYTES:
            return
        while length > 0:
            data = self._stream.read(min(length, _CHUNK))
            if not data:
                return
            length -= len(data)


class CheckingWorker:
    """Background thread that runs functions in order.

    The checks are not thread-safe, and they must not block the editor's event loop. The thread ends
    with the process, even during a check.
    """

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[
            tuple[Callable[[], Any], asyncio.Future[Any], asyncio.AbstractEventLoop]
        ] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, work: Callable[[], T]) -> T:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, daemon=True, name="check")
            self._thread.start()
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        self._waiting.put((work, result, loop))
        return await result

    def _serve(self) -> None:
        while True:
            work, result, loop = self._waiting.get()
            if result.cancelled():
                continue
            try:
                value, error = work(), None
            except BaseException as raised:
                value, error = None, raised
            try:
                loop.call_soon_threadsafe(_deliver, result, value, error)
            except RuntimeError:  # the loop is closed: no caller waits
                return


def _deliver(result: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if result.cancelled():
        return
    if error is not None:
        result.set_exception(error)
    else:
        result.set_result(value)


T = TypeVar("T")
_PAUSE_S = 0.3
"""Seconds without a change before a document is checked."""
_LOG = logging.getLogger("speclaunch.checks.editors")


class Server(LanguageServer):
    """Language server with the check results of all open documents."""

    def __init__(self) -> None:
        super().__init__("speclaunch", __version__)
        self.settings = EditorSettings()
        self.worker = CheckingWorker()
        self.checked: dict[str, tuple[int | None, CheckedDocument]] = {}
        """The checked text version and its result, by URI."""
        self.is_shut_down = False
        self.code = 0
        self._pending: dict[str, asyncio.Task[None]] = {}

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Log an error outside of a request without showing it to the user."""
        _LOG.error("%s: %s", getattr(source, "__name__", source), error, exc_info=error)

    def buffers(self) -> dict[str, bytes]:
        """Return the open texts by real path."""
        found: dict[str, bytes] = {}
        for uri, document in self.workspace.text_documents.items():
            path = to_fs_path(uri) if uri.startswith("file:") else None
            if path is not None:
                found[os.path.realpath(path)] = document.source.encode("utf-8", "replace")
        return found

    def positions(self, document: TextDocument) -> DocumentPositions:
        return DocumentPositions(document.source, self.workspace.position_codec)

    def later(self, uri: str, pause: float = _PAUSE_S) -> None:
        """Check a document once it has not changed for `pause` seconds."""
        before = self._pending.pop(uri, None)
        if before is not None:
            before.cancel()
        self._pending[uri] = asyncio.get_running_loop().create_task(self._after(uri, pause))

    def forget(self, uri: str) -> None:
        before = self._pending.pop(uri, None)
        if before is not None:
            before.cancel()
        self.checked.pop(uri, None)
        self._publish(uri, None, [])

    async def _after(self, uri: str, pause: float) -> None:
        await asyncio.sleep(pause)
        try:
            await self.check(uri)
        except Exception as error:
            _LOG.exception("%s cannot be checked: %s", uri, error)

    async def check(self, uri: str) -> CheckedDocument | None:
        """Check the current text and publish its diagnostics; None if the document is not open."""
        document = self._open(uri)
        if document is None:
            return None
        version, text, buffers = document.version, document.source, self.buffers()
        path, settings = _path(uri), self.settings
        checked = await self.worker.run(lambda: check_document(path, text, buffers, settings))
        now = self._open(uri)
        if now is None or now.version != version:
            return checked  # the text changed during the check: another check is scheduled
        self.checked[uri] = (version, checked)
        self._publish(uri, version, diagnostics(checked, self.positions(now)))
        return checked

    def known(self, document: TextDocument) -> CheckedDocument:
        """Return a document's latest result, possibly of an earlier text, or an empty result."""
        found = self.checked.get(document.uri)
        return found[1] if found is not None else CheckedDocument(_path(document.uri))

    async def current(self, document: TextDocument) -> CheckedDocument | None:
        """Return the current text's result, checking it if needed; None for a closed document."""
        found = self.checked.get(document.uri)
        if found is not None and found[0] == document.version:
            return found[1]
        return await self.check(document.uri)

    def document(self, uri: str) -> TextDocument:
        found = self._open(uri)
        if found is None:
            raise InputError(f"{uri} is not open")
        return found

    def _open(self, uri: str) -> TextDocument | None:
        documents: Mapping[str, TextDocument] = self.workspace.text_documents
        return documents.get(uri)

    def _publish(self, uri: str, version: int | None, found: list[types.Diagnostic]) -> None:
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, version))


def _path(uri: str) -> str:
    """Return the file path of a URI, or the name of a text that was never saved."""
    path = to_fs_path(uri) if uri.startswith("file:") else None
    return path or uri.partition(":")[2].lstrip("/") or "untitled"


def _guarded(request: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T | None]]:
    """Return `request` wrapped in a handler that logs any error and then returns None."""

    @functools.wraps(request)
    async def answered(server: Server, params: Any) -> T | None:
        try:
            return await request(server, params)
        except SpeclaunchError as error:
            _LOG.warning("%s", error)
        except Exception as error:
            _LOG.exception("%s: %s", request.__name__, error)
        return None

    return answered


def make_server() -> Server:
    """Return the server with all its handlers."""
    server = Server()

    @server.feature(types.INITIALIZE)
    def initialize(server: Server, params: types.InitializeParams) -> None:
        server.settings, wrong = read_settings(params.initialization_options)
        for problem in wrong:
            server.window_show_message(
                types.ShowMessageParams(types.MessageType.Warning, f"speclaunch: {problem}")
            )

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def opened(server: Server, params: types.DidOpenTextDocumentParams) -> None:
        server.later(params.text_document.uri, 0)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(server: Server, params: types.DidChangeTextDocumentParams) -> None:
        server.later(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def saved(server: Server, _params: types.DidSaveTextDocumentParams) -> None:
        await _all_again(server)

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    async def watched(server: Server, _params: types.DidChangeWatchedFilesParams) -> None:
        await _all_again(server)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    async def closed(server: Server, params: types.DidCloseTextDocumentParams) -> None:
        server.forget(params.text_document.uri)

    @server.feature(SKIPPED)
    def skipped(server: Server, params: Any) -> None:
        text = f"speclaunch: skipped a message of {params.size} bytes; the limit is "
        text += f"{MAX_MESSAGE_BYTES >> 20} MiB"
        server.window_show_message(types.ShowMessageParams(types.MessageType.Warning, text))

    @server.feature(types.SHUTDOWN)
    def shut_down(server: Server, _params: None) -> None:
        server.is_shut_down = True

    @server.feature(types.EXIT)
    def ended(server: Server, _params: None) -> None:
        server.code = 0 if server.is_shut_down else 1

    _requests(server)
    return server


async def _all_again(server: Server) -> None:
    """Check all documents again because groups, checkpoints or settings may have changed."""
    await server.worker.run(look_again)
    for uri in server.workspace.text_documents:
        server.later(uri, 0)


def _requests(server: Server) -> None:
    @server.feature(types.TEXT_DOCUMENT_HOVER)
    @_guarded
    async def hovered(server: Server, params: types.HoverParams) -> types.Hover | None:
        document = server.document(params.text_document.uri)
        positions, checked = server.positions(document), server.known(document)
        line, column = positions.place(params.position)
        text = document.source
        return await server.worker.run(lambda: hover(checked, text, positions, line, column))

    @server.feature(
        types.TEXT_DOCUMENT_COMPLETION,
        types.CompletionOptions(trigger_characters=[" ", "-", "=", ":", "."]),
    )
    @_guarded
    async def completed(server: Server, params: types.CompletionParams) -> types.CompletionList:
        document = server.document(params.text_document.uri)
        positions, checked = server.positions(document), server.known(document)
        line, column = positions.place(params.position)
        text = document.source
        items = await server.worker.run(lambda: completions(checked, text, positions, line, column))
        return types.CompletionList(is_incomplete=False, items=items)

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix, FIX_ALL]),
    )
    @_guarded
    async def acted(server: Server, params: types.CodeActionParams) -> list[types.CodeAction]:
        document = server.document(params.text_document.uri)
        requested = [
            diagnostic
            for diagnostic in params.context.diagnostics
            if diagnostic.source == "speclaunch"
        ]
        only = params.context.only or [types.CodeActionKind.QuickFix]
        wants_all = any(kind == FIX_ALL or FIX_ALL.startswith(f"{kind}.") for kind in only)
        if not any(kind in ("", types.CodeActionKind.QuickFix) for kind in only):
            requested = []
        checked = await server.current(document) if requested or wants_all else None
        if checked is None:
            return []
        uri, version, path = document.uri, document.version, checked.path
        positions, settings, buffers = server.positions(document), server.settings, server.buffers()
        real = os.path.realpath(path)

        def again(text: str) -> CheckedDocument:
            held = {**buffers, real: text.encode("utf-8", "replace")}
            return check_document(path, text, held, settings)

        def found() -> list[types.CodeAction]:
            some = list(actions(checked, requested, positions, uri, version, again, buffers))
            every = fix_all(checked, positions, uri, version, buffers) if wants_all else None
            return some if every is None else [*some, every]

        return await server.worker.run(found)


def serve(source: BinaryIO, out: BinaryIO) -> int:
    """Answer an editor's requests until it sends `exit` or closes its input.

    Return the protocol's exit code: 1 if `exit` came without `shutdown`, else 0.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    server = make_server()
    server.start_io(cast(BinaryIO, BoundedInput(source)), out)
    return server.code


def run_and_leave() -> None:
    """Serve an editor on standard input and output, then end the process.

    Other code cannot use these streams. A check in progress does not delay the end.
    """
    source, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # other output is not part of the protocol
    code = 0
    try:
        code = serve(source, out)
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.stderr.flush()
        os._exit(code)
