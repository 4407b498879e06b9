"""Write one tiny model for the CPU engine: ``make_models.py NAME DEST``.

Run by the engine's interpreter (torch, safetensors, tokenizers); nothing of speclaunch is imported.
The same name always gives the same bytes, and DEST appears complete or not at all.

========================  =======================================================================
``cycle``                 a target whose next token is a fixed successor of the last one
``cycle-8``               ``cycle`` with 8 layers
``cycle-draft``           a STANDALONE draft for ``cycle``, wrong on 30 % of the vocabulary
``cycle-draft-PERCENT``   the same, wrong on PERCENT % (or ``--error-rate``)
``llama``                 a target with 8 layers (EAGLE3's hooks need them), mostly like ``cycle``
``llama-eagle3``          an EAGLE3 draft for ``llama``, with its own vocabulary
``llama-eagle``           an EAGLE-2 draft for ``llama``
``glm-mtp``               a Glm4Moe target with one MTP (nextn) layer as its draft
========================  =======================================================================

How acceptance works. The vocabulary is divided into cycles of 8 tokens. The embedding of the next
token of a cycle is the embedding of the current token rotated by a fixed R; all embeddings share
one coordinate. A row of the output layer is the embedding of the token's *predecessor*. A hidden
state close to a token's embedding therefore predicts that token's successor, and R times this state
predicts the token after that. Layers that add nothing give ``cycle``. Layers that add a little
noise from random attention and MLP weights give ``llama`` and ``glm-mtp``, whose output sometimes
depends on the context. The EAGLE3 draft averages its three hidden states and applies R in its MLP,
so each draft step is one token further ahead. It never proposes tokens outside its vocabulary. The
EAGLE-2 draft does the same with one hidden state and the embedding of the last token. Both also
draft for ``cycle-8``, which is always predictable. The MTP layer passes on the embedding of the
last token, with some noise. Special tokens are never predicted, so a reply runs to its
``max_tokens``.
"""

import argparse
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from safetensors.torch import save_file

PARTS = Path(__file__).with_name("tiny_models")
sys.path.insert(0, str(PARTS))

from tiny_drafts import cycle_draft, llama_eagle, llama_eagle3  # noqa: E402
from tiny_parts import Config, Tensors  # noqa: E402
from tiny_targets import cycle, cycle_8, glm_mtp, llama  # noqa: E402
from tiny_tokenizer import write_json, write_tokenizer  # noqa: E402

MODELS: dict[str, Callable[[], tuple[Config, Tensors]]] = {
    "cycle": cycle,
    "cycle-8": cycle_8,
    "llama": llama,
    "llama-eagle3": llama_eagle3,
    "llama-eagle": llama_eagle,
    "glm-mtp": glm_mtp,
}
CYCLE_DRAFT = re.compile(r"cycle-draft(?:-(\d{1,2}|100))?")
DEFAULT_ERROR_RATE = 0.3


def build(name: str, error_rate: float | None) -> tuple[Config, Tensors]:
    """Return config and weights of the model ``name``. Raises ``ValueError`` if it is unknown."""
    draft = CYCLE_DRAFT.fullmatch(name)
    if draft is None:
        if name not in MODELS:
            raise ValueError(f"no model {name!r}; known: {', '.join(MODELS)}, cycle-draft")
        if error_rate is not None:
            raise ValueError(f"--error-rate is for cycle-draft, not for {name}")
        return MODELS[name]()
    if error_rate is None:
        error_rate = int(draft[1]) / 100 if draft[1] else DEFAULT_ERROR_RATE
    if not 0 <= error_rate <= 1:
        raise ValueError(f"an error rate of {error_rate} is not between 0 and 1")
    return cycle_draft(error_rate)


def fingerprint() -> str:
    """Return the hash of this script and the modules in ``tiny_models``."""
    parts = [Path(__file__), *sorted(PARTS.glob("*.py"))]
    return hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()


def write_model(name: str, destination: Path, error_rate: float | None = None) -> None:
    """Write the model to a temporary folder next to ``destination``, then rename the folder.

    Replaces an existing model. ``speclaunch-model.json`` stores the hash of these scripts, which
    shows whether the model is current.
    """
    config, tensors = build(name, error_rate)
    destination.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
    try:
        scratch.chmod(0o755)
        save_file(
            {key: tensor.contiguous() for key, tensor in tensors.items()},
            scratch / "model.safetensors",
            metadata={"format": "pt"},
        )
        write_json(scratch / "config.json", config)
        write_tokenizer(scratch)
        write_json(scratch / "speclaunch-model.json", {"name": name, "generator": fingerprint()})
        for file in scratch.iterdir():
            file.chmod(0o644)
        if destination.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
            os.rename(destination, old)  # noqa: PTH104
            os.rename(scratch, destination)  # noqa: PTH104
            shutil.rmtree(old)
        else:
            os.rename(scratch, destination)  # noqa: PTH104
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def main() -> int:
    """Write the model that the command line names; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name")
    parser.add_argument("dest", type=Path)
    parser.add_argument(
        "--error-rate",
        type=float,
        help="share of the vocabulary that a cycle-draft predicts wrongly",
    )
    arguments = parser.parse_args()
    try:
        write_model(arguments.name, arguments.dest.absolute(), arguments.error_rate)
    except ValueError as error:
        sys.stderr.write(f"make_models.py: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
