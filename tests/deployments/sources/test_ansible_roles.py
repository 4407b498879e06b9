"""Marks in the files of an Ansible role that the role's variables determine."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from speclaunch.deployments.sources.files import read_text
from speclaunch.deployments.sources.interface import Invocation
from tests.support.loops import rows

DEFAULTS = """
model: org/m
tp: 8
fraction: 0.9
port: 30000
image: lmsysorg/sglang:v0.5.6
data: /data
model3: org/replaced
path: "{{ data }}/{{ model }}"
deep: "{{ path }}/x"
lost: "{{ nowhere }}/x"
quiet: true
blank: ""
spaced: a b
changed: 1
found: 2
args: [--tp=2, "--port={{ port }}"]
bare: []
server: {dtype: half, rows: [1, 2]}
servers: [{name: s, options: [--dtype=half, --tp=4]}]
both: [{name: s}, {name: t}]
"""
ALL = """
chosen: a-b
models: {a-b: {path: org/n}}
known: "{{ models[chosen].path }}"
tp2: 4
model3: org/o
"""
TASKS = """
- set_fact:
    changed: 3
- command: "x"
  register: found
- docker_container:
    image: "{{ image }}"
"""
COMPOSE = """services:
  s:
    image: {{ image }}
    command:
      - python3
      - -m
      - sglang.launch_server
%s
"""
SCRIPT = "#!/bin/bash\npython3 -m sglang.launch_server %s\n"


def read(text: str, name: str, variables: str = "") -> Invocation:
    with TemporaryDirectory() as folder:
        role = Path(folder) / "roles" / "r"
        for directory in ("defaults", "vars", "tasks", "templates", "files"):
            (role / directory).mkdir(parents=True)
        (role / "defaults/main.yml").write_text(DEFAULTS)
        (role / "vars/main.yml").write_text(variables)
        (role / "tasks/main.yml").write_text(TASKS)
        (role.parent.parent / "group_vars").mkdir()
        (role.parent.parent / "group_vars/all.yml").write_text(ALL)
        (found,) = read_text(text, str(role / name)).invocations
    return found


def shown(found: Invocation) -> str:
    words = (word.text if word.evaluated else "?" for word in found.words)
    return " ".join(words).removeprefix("? ")


@rows(
    "written, expected",
    [
        ("--model {{ model }} --tp {{tp}}", "--model org/m --tp 8"),
        ("--port={{ port }} --x '{{ fraction }}'", "--port=30000 --x 0.9"),
        ("--model {{ path }}", "--model /data/org/m"),
        ("--model {{ deep }}", "--model ?"),
        ("--model {{ models[chosen].path }} --tp {{ tp2 }}", "--model org/n --tp 4"),
        ("--model {{ known }} --revision {{ model3 }}", "--model org/n --revision org/o"),
        ("--model {{ models[other].path }} --tp {{ models[tp2] }}", "--model ? --tp ?"),
        ("--model {{ lost }}", "--model ?"),
        ("--x {{ nowhere }} --tp {{ tp }}", "--x ? --tp 8"),
        ("--x {{ nowhere | default('y') }}", "--x y"),
        ("--x {{ nowhere | default }}", "--x ?"),
        ("--x {{ tp | default('1') }}", "--x 8"),
        ("--x {{ tp | int + 1 }}", "--x ?"),
        ("--x {{ changed }} --y {{ found | default('1') }}", "--x ? --y ?"),
        ("--x {{ item.x | default('1') }}", "--x ?"),
        ("--x {{ ansible_host | default('1') }}", "--x ?"),
        ("--x {{ spaced }} --y {{ blank }}", "--x ? --y ?"),
        ("--x {{ server.dtype }} --y {{ server.no | default('z') }}", "--x half --y z"),
        ("--x {{ server }} --y {{ args }} --z {{ server.dtype.no }}", "--x ? --y ? --z ?"),
        ("{% for a in args %}{{ a }} {% endfor %}--tp 2", "--tp=2 --port=30000 --tp 2"),
        ("{% for a in bare %}{{ a }} {% endfor %}--tp 2", "--tp 2"),
        ("{% for a in bare %}-{{ a }} {% endfor %}--tp 2", "? --tp 2"),
        ("{% for a in server.rows %}--x {{ a }} {% endfor %}--tp 2", "? ? --tp 2"),
        ("{% for a in args %}-{{ a }} {% endfor %}--tp 2", "? --tp 2"),
        ("{% for tp in nowhere %}{{ tp }} {% endfor %}--tp 2", "? --tp 2"),
        ("{% for tp, x in args %}{{ tp }} {% endfor %}--tp 2", "? --tp 2"),
        ("{% for a in args if a %}{{ a }} {% endfor %}--tp 2", "? --tp 2"),
        ("{% set tp = 1 %}--tp {{ tp }}", "--tp ?"),
        ("--x {{ endpoint }} --y {{ if_name }} --tp {{ tp }}", "--x ? --y ? --tp 8"),
        ("{% if quiet %}--tp {{ tp }}{% endif %}", "? ?"),
    ],
)
def test_marks_of_a_script(written: str, expected: str) -> None:
    assert shown(read(SCRIPT % written, "templates/run.sh.j2")) == expected


@rows(
    "written, expected",
    [
        ("      - --tp={{ tp }}", "--tp=8"),
        ("{% for a in args %}\n      - {{ a }}\n{% endfor %}", "--tp=2 --port=30000"),
        ('{% for a in args %}\n      - "{{ a }}"\n{% endfor %}', "--tp=2 --port=30000"),
        ("{% for a in bare %}\n      - {{ a }}\n{% endfor %}\n      - --tp=1", "--tp=1"),
    ],
)
def test_marks_of_a_compose_file(written: str, expected: str) -> None:
    found = read(COMPOSE % written, "templates/compose.yaml.j2")
    assert shown(found) == expected
    assert found.image == "lmsysorg/sglang:v0.5.6"
    assert all("the default of the role" in (word.why or "") for word in found.words[1:-1])


def test_services_that_a_loop_adds() -> None:
    def looped(items: str) -> Invocation:
        body = COMPOSE % "{% for a in m.options %}\n      - {{ a }}\n{% endfor %}"
        head, services = body.split("\n", 1)
        text = f"{head}\n{{% for m in {items} %}}\n{services}{{% endfor %}}\n"
        return read(text.replace("  s:", "  {{ m.name }}:"), "templates/compose.yaml.j2")

    assert shown(looped("servers")) == "--dtype=half --tp=4"
    assert shown(looped("both")) == "?"


def test_a_task() -> None:
    task = '- shell: "python3 -m sglang.launch_server --model {{ model }} --x {{ nowhere }}"\n'
    found = read(task, "tasks/run.yml")
    assert shown(found) == "--model org/m --x ?"
    assert found.read_only
    assert read(task.replace("{{ model }}", "m"), "meta/run.yml").read_only is None
    block = (
        "- set_fact:\n    x: >-\n      python3 -m sglang.launch_server\n"
        "      --model {{ model }}\n      {{ nowhere }}\n"
    )
    assert shown(read(block, "tasks/run.yml")) == "--model org/m"


def test_vars_override_defaults() -> None:
    found = read(SCRIPT % "--tp {{ tp }}", "templates/run.sh.j2", "tp: 4\n")
    assert shown(found) == "--tp 4"
    assert shown(read(SCRIPT % "--tp {{ tp }}", "meta/run.sh.j2")) == "--tp ?"
