"""`speclaunch drafts`: the ways to speculate for a target."""

from __future__ import annotations

import typer

from speclaunch.cli.change_options import DraftsOptions
from speclaunch.cli.check_options import engine_versions, lookup
from speclaunch.cli.options import OutputFormat
from speclaunch.engine.versions import ascending
from speclaunch.errors import ExitCode
from speclaunch.planning.draft_listing import find_target, listing
from speclaunch.report.console import out
from speclaunch.report.drafts import drafts_document, show_drafts


def drafts(options: DraftsOptions) -> ExitCode:
    """List the ways to speculate for a target. Raises InputError."""
    sources = lookup(options.models, options.hardware, online=options.online, assume=options.assume)
    versions = ascending(engine_versions(options.engine))
    found = listing(find_target(options.target, sources), sources, versions)
    if options.output_format is OutputFormat.JSON:
        typer.echo(drafts_document(found))
    else:
        show_drafts(out(), found, refused=options.every)
    return ExitCode.CLEAN if any(one.newest for one in found.ways) else ExitCode.FAILED
