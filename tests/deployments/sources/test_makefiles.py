"""Makefiles: the recipes as make hands them to a shell."""

from __future__ import annotations

from pathlib import Path

from speclaunch.checks.edit.import_recipes import import_command
from speclaunch.deployments.sources.files import read_text
from speclaunch.deployments.sources.interface import Reading
from tests.support.deployments.sources.helpers import SERVER, lint_text, only, texts
from tests.support.loops import over

MAKEFILE = f"""\
MODEL ?= org/m  # the model
TP := 8
FLAGS = --tp $(TP) \\
	--trust-remote-code
GPUS := $(shell nvidia-smi -L | wc -l)
define HELP
{SERVER} --model-path none
endef
ifeq ($(FAST),1)
EXTRA := --a
else
EXTRA := --b
endif
.PHONY: serve
serve: MEM = 0.8
serve: build
	@echo "starting"
	-@HF_HOME=$$HOME/hf {SERVER} --model-path $(MODEL) ${{FLAGS}} --mem-fraction-static $(MEM) \\
	--dp $(if $(DP),$(DP),1) --port $(PORT) $(call more,$(X)) $(EXTRA) \\
	--host $(or $(HOST),127.0.0.1) --served-model-name '$(MODEL)'
"""


def _read(text: str, name: str = "Makefile") -> Reading:
    return read_text(text, name)


def test_variables_and_functions() -> None:
    reading = _read(MAKEFILE)
    assert not reading.unread
    found = only(reading)
    assert found.place.line == 18
    assert texts(found) == [
        *("--model-path", "org/m", "--tp", "8", "--trust-remote-code"),
        *("--mem-fraction-static", "0.8", "--dp", "$(if $(DP),$(DP),1)", "--port", "${PORT}"),
        *("$(call more,$(X))", "$(EXTRA)", "--host", "127.0.0.1"),
        *("--served-model-name", "org/m"),
    ]
    unknown = [word.text for word in found.words if not word.evaluated]
    assert unknown == ["$(if $(DP),$(DP),1)", "${PORT}", "$(call more,$(X))", "$(EXTRA)"]
    assert [(found.words[i].place.line, found.words[i].place.column) for i in (1, 2, 3)] == [
        (1, 10),
        (3, 9),
        (2, 7),
    ]
    assert found.env["HF_HOME"].text == "$HOME/hf"


def test_import_leaves_defaults_to_the_environment() -> None:
    _, text = import_command(only(_read(MAKEFILE)), "x", "Makefile", None)
    for line in (
        "model_path: ${oc.env:MODEL,org/m}",
        "host: ${env_or:HOST,'127.0.0.1'}",
        "port: ${oc.env:PORT}",
        "dp_size: ???",
    ):
        assert line in text, text


@over(["Makefile", "makefile", "GNUmakefile", "Makefile.gpu", "serve.mk"])
def test_names(name: str) -> None:
    assert texts(only(_read(f"serve:\n\t{SERVER} --tp $(or $(M),2)\n", name))) == ["--tp", "2"]


def test_functions_are_no_errors(tmp_path: Path) -> None:
    assert not [one for one in lint_text(MAKEFILE, "Makefile", tmp_path) if one.severity == "error"]


@over(
    ["A = $(A)\nx:\n\t%s $(A)\n", "x:\n\t%s $(or $(\n", "A = $\nx:\n\t%s '$(A) $\n", "\t%s ${\\\n"]
)
def test_nonsense_is_read_to_its_end(text: str) -> None:
    _read(text % f"{SERVER} --model-path m")


@over(
    [
        ("ifdef FAST\nTP := 4\nendif", None),
        ("ifeq ($(FAST),1)\n  TP := 4\nendif", None),
        ("ifeq ($(FAST),1)\nTP ?= 4\nendif", None),
        ("TP := 2\nifneq ($(FAST),)\n  TP := 4\nendif", None),
        ("ifdef A\nifndef TP\nTP := 4\nendif\nendif", None),
        ("ifndef TP\nelse\nTP := 4\nendif", None),
        ("ifdef A\nelse ifndef TP\nTP := 4\nendif", None),
        ("ifdef A\nTP := 4", None),
        ("ifndef OTHER\nTP := 4\nendif", None),
        ("ifndef TP\n  TP := 4\nendif", "4"),
        ("ifdef A\nX := 1\nendif\nTP := 4", "4"),
        ("endif\nendif\n  TP := 4", "4"),
    ]
)
def test_a_variable_under_a_condition_is_unknown(case: tuple[str, str | None]) -> None:
    head, known = case
    word = only(_read(f"{head}\nserve:\n\t{SERVER} --tp $(TP)\n")).words[1]
    assert (word.text if word.evaluated else None) == known
    assert bool(word.defaults) == head.startswith("ifndef TP\n  ")
