"""Advisories in the OSV format, schema 1.6 (https://ossf.github.io/osv-schema/)."""

from __future__ import annotations

from typing import Any

import msgspec

from speclaunch.checks.advisories.advisory import NONE, UNKNOWN, Advisory
from speclaunch.engine import held_versions, within

SCHEMA = "1.6.0"


def osv_document(advisory: Advisory) -> dict[str, Any]:
    """Return an advisory as an OSV document.

    OSV has no conditions: they are in `ecosystem_specific`, and `versions` lists the affected
    releases that speclaunch knows.
    """
    links = [text for text in advisory.references if text.startswith("https://")]
    return {
        "schema_version": SCHEMA,
        "id": f"x_{advisory.id}",  # OSV's prefix for databases that it does not list
        "modified": f"{advisory.checked}T00:00:00Z",
        "summary": advisory.summary,
        "details": _details(advisory),
        "affected": [
            {
                "package": {
                    "ecosystem": "PyPI",
                    "name": "sglang",
                    "purl": "pkg:pypi/sglang",
                },
                "ranges": [{"type": "ECOSYSTEM", "events": _events(advisory)}],
                "versions": [v for v in held_versions() if within(v, advisory.versions)],
                "ecosystem_specific": _specific(advisory),
            }
        ],
        "references": [{"type": "WEB", "url": link} for link in links],
    }


def _details(advisory: Advisory) -> str:
    remedy = f"\n\n{advisory.remedy}" if advisory.remedy else ""
    return " ".join(advisory.details.split()) + remedy


def _events(advisory: Advisory) -> list[dict[str, str]]:
    events = [{"introduced": advisory.first}]
    if advisory.fixed == UNKNOWN:
        events.append({"last_affected": advisory.seen[-1]})
    elif advisory.fixed != NONE:
        events.append({"fixed": advisory.fixed})
    return events


def _specific(advisory: Advisory) -> dict[str, Any]:
    found = {
        "symptom": advisory.symptom.value,
        "confidence": advisory.confidence.value,
        "conditions": msgspec.to_builtins(advisory.when),
        "requests": [field.value for field in advisory.requests],
    }
    return {key: value for key, value in found.items() if value}
