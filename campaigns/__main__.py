"""Run a campaign: `python -m campaigns NAME [options]`; `--list` names them all.

A module of this folder is a campaign, without those whose names begin with an underscore. The
folders hold parts of campaigns.
"""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parent


def campaigns() -> dict[str, str]:
    """Return the first line of the documentation of each campaign, by its name."""
    found = {}
    for path in sorted(FOLDER.glob("[!_]*.py")):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        found[path.stem] = text.partition("\n")[0]
    return found


def main() -> int | None:
    """Return the exit status of the campaign; 2 if there is none of that name."""
    name, *rest = sys.argv[1:] or ["--help"]
    known = campaigns()
    if name in ("--help", "-h"):
        print("usage: python -m campaigns NAME [options]\n       python -m campaigns --list")
    elif name == "--list":
        width = max(map(len, known))
        print("\n".join(f"{one:{width}}  {text}" for one, text in known.items()))
    elif name not in known:
        print(f"no campaign {name!r}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    else:
        sys.argv = [f"python -m campaigns {name}", *rest]
        status: int | None = import_module(f"campaigns.{name}").main()
        return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
