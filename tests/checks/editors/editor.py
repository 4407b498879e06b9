"""An editor for tests: pytest-lsp's client and the real server, as a process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.uris import from_fs_path
from pytest_lsp import LanguageClient
from pytest_lsp.client import make_test_lsp_client

SERVER = (sys.executable, "-m", "speclaunch", "lsp")
UTF_8, UTF_16, UTF_32 = (
    types.PositionEncodingKind.Utf8,
    types.PositionEncodingKind.Utf16,
    types.PositionEncodingKind.Utf32,
)


class Editor:
    """What an editor does with a server."""

    def __init__(self, client: LanguageClient, folder: Path) -> None:
        self.client, self.folder = client, folder
        self.versions: dict[str, int] = {}

    def uri(self, name: str) -> str:
        found = from_fs_path(str(self.folder / name))
        assert found is not None
        return found

    def open(self, name: str, text: str, language: str = "yaml") -> None:
        uri = self.uri(name)
        self.versions[uri] = 1
        self.client.diagnostics.pop(uri, None)
        self.client.text_document_did_open(
            types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, language, 1, text))
        )

    def change(self, name: str, text: str) -> None:
        """Replace all of a text."""
        uri = self.uri(name)
        self.versions[uri] += 1
        self.client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(uri=uri, version=self.versions[uri]),
                [types.TextDocumentContentChangeWholeDocument(text)],
            )
        )

    def save(self, name: str) -> None:
        document = types.TextDocumentIdentifier(self.uri(name))
        self.client.text_document_did_save(types.DidSaveTextDocumentParams(document))

    def close(self, name: str) -> None:
        document = types.TextDocumentIdentifier(self.uri(name))
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(document))

    async def shown(
        self, name: str, wanted: Callable[[list[types.Diagnostic]], bool] = lambda _: True
    ) -> list[types.Diagnostic]:
        """The diagnostics of a document, once they are as wanted."""
        uri = self.uri(name)
        for _ in range(600):
            found = self.client.diagnostics.get(uri)
            if found is not None and wanted(list(found)):
                return list(found)
            await asyncio.sleep(0.05)
        raise AssertionError(f"{name}: {self.client.diagnostics.get(uri)}")

    async def codes(self, name: str, *wanted: str) -> list[str]:
        """The codes that are shown, once these are among them."""
        found = await self.shown(name, lambda some: {*wanted} <= {str(one.code) for one in some})
        return [str(one.code) for one in found]

    async def hover(self, name: str, line: int, character: int) -> str:
        params = types.HoverParams(
            types.TextDocumentIdentifier(self.uri(name)), types.Position(line, character)
        )
        found = await self.client.text_document_hover_async(params)
        if found is None:
            return ""
        assert isinstance(found.contents, types.MarkupContent)
        return found.contents.value

    async def complete(
        self, name: str, line: int, character: int
    ) -> dict[str, types.CompletionItem]:
        params = types.CompletionParams(
            types.TextDocumentIdentifier(self.uri(name)), types.Position(line, character)
        )
        found = await self.client.text_document_completion_async(params)
        if found is None:
            return {}
        assert isinstance(found, types.CompletionList)
        return {one.label: one for one in found.items}

    async def actions(
        self, name: str, diagnostics: list[types.Diagnostic], *only: str
    ) -> list[types.CodeAction]:
        params = types.CodeActionParams(
            types.TextDocumentIdentifier(self.uri(name)),
            diagnostics[0].range,
            types.CodeActionContext(diagnostics, only=list(only) or None),
        )
        found = await self.client.text_document_code_action_async(params)
        return [one for one in found or () if isinstance(one, types.CodeAction)]


def applied(text: str, action: types.CodeAction) -> str:
    """A text (of characters that are one UTF-16 unit each) with the edits of an action."""
    assert action.edit is not None and action.edit.document_changes
    (change,) = action.edit.document_changes
    assert isinstance(change, types.TextDocumentEdit)
    lines = text.splitlines(keepends=True) or [""]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for one in sorted(
        change.edits, key=lambda edit: (-edit.range.start.line, -edit.range.start.character)
    ):
        start = starts[one.range.start.line] + one.range.start.character
        end = starts[one.range.end.line] + one.range.end.character
        text = text[:start] + one.new_text + text[end:]
    return text


def edit(
    folder: Path,
    script: Callable[[Editor], Awaitable[None]],
    *,
    options: Any = None,
    encodings: tuple[types.PositionEncodingKind, ...] = (UTF_16,),
) -> None:
    """Run a script of an editor with a server of its own; the server must end in order."""

    async def run() -> None:
        client = make_test_lsp_client()
        await client.start_io(*SERVER, cwd=str(folder))
        general = types.GeneralClientCapabilities(position_encodings=list(encodings))
        await client.initialize_session(
            types.InitializeParams(
                capabilities=types.ClientCapabilities(general=general),
                root_uri=from_fs_path(str(folder)),
                initialization_options=options,
            )
        )
        editor = Editor(client, folder)
        try:
            await script(editor)
        finally:
            await asyncio.wait_for(client.shutdown_session(), 20)
            await asyncio.wait_for(client.stop(), 20)

    asyncio.run(asyncio.wait_for(run(), 110))
