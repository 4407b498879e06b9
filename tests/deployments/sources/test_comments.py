"""What is a comment in each form: checked at the `#` (or `<!--`) of every line that has a mark."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclaunch.deployments.sources.comments import comments_of
from tests.support.loops import rows

SERVER = "python3 -m sglang.launch_server --model-path m"


def marked(text: str, name: str) -> dict[str, bool]:
    """The words behind `# ` (or `<!-- `), and whether a comment begins there."""
    is_comment = comments_of(text.replace("\r\n", "\n"), name)
    assert is_comment is not None
    found = {}
    at, text = 0, text.replace("\r\n", "\n")
    while (at := text.find("# ", at)) >= 0:
        found[text[at + 2 :].split()[0]] = is_comment(at)
        at += 2
    at = 0
    while (at := text.find("<!-- ", at)) >= 0:
        found[text[at + 5 :].split()[0]] = is_comment(at)
        at += 2
    return found


SHELL = f"""\
#!/bin/bash
# yes1
echo "# no1" '# no2' # yes2
cat > notes.md <<EOF
# no3
EOF
cat > run.sh <<EOF
# yes3
{SERVER}
EOF
bash -c '{SERVER} # yes4
'
cat > config.yaml <<'EOF'
model: sglang # no4 launch_server
EOF
"""

PYTHON = f'''\
"""# no1"""
import subprocess  # yes1
TEXT = """
# no2
"""
# yes2
subprocess.run("""
# yes3
{SERVER}
""", shell=True)
x = "# no3"  # yes4
'''

YAML = f"""\
# yes1
apiVersion: v1
kind: Pod
metadata:
  annotations: {{a: "# no1", b: '# no2'}}  # yes2
  text: |  # yes3
    # no3
  folded: >-
    a # no4
# yes4
spec:
  containers:
  - name: a  # yes5
    command: [bash, -c]
    args:
    - |
      # yes6
      {SERVER}  # yes7
      echo '# no5'
"""

COMPOSE = """\
services:
  a:
    image: sglang
    command:
      - python3
      - -m
      - sglang.launch_server
      - --chat-template
      - "# no1"  # yes1
"""

MARKDOWN = f"""\
<!-- yes1 -->
# no1
Write `<!-- no2 -->` above, or # no3
<!-- yes2 -->
```bash
# yes3
{SERVER}  # yes4
echo '# no4'
<!-- no5 -->
```
```yaml
# yes5
services:
  a:
    text: "# no6"
    command: {SERVER} # yes6
```
```dockerfile
FROM lmsysorg/sglang
# yes7
RUN echo "# no7"
CMD {SERVER}
```
Run `{SERVER} # no8`.

    # yes8
    {SERVER} # yes9

{SERVER} # no9
"""

DOCKERFILE = f"""\
# yes1
FROM lmsysorg/sglang
RUN echo '# no1' && \\
    # yes2
    ls
COPY <<EOF /notes
# no2
EOF
CMD {SERVER}  # yes3
"""


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.sh", SHELL),
        ("run.py", PYTHON),
        ("pod.yaml", YAML),
        ("compose.yaml", COMPOSE),
        ("README.md", MARKDOWN),
        ("notes.txt", MARKDOWN),
        ("notes.txt", SHELL),
        ("Dockerfile", DOCKERFILE),
    ],
)
def test_each_form_has_its_comments(name: str, text: str, windows: bool) -> None:
    found = marked(text.replace("\n", "\r\n") if windows else text, name)
    wrong = {mark: was for mark, was in found.items() if was is not mark.startswith("yes")}
    assert len(found) >= 4 - (name == "compose.yaml") * 2
    assert wrong == {}


@rows(
    "name, text",
    [
        ("a.yaml", "a: [1\n# x\n"),
        ("a.py", "x = (\n# x\n"),
        ("run.sh.j2", "# x {{ y }}\n"),
        ("a.ipynb", '{"cells": ["# x"]}'),
    ],
)
def test_of_what_cannot_be_read_nobody_knows(name: str, text: str) -> None:
    assert comments_of(text, name) is None


def test_lines_of_yaml_that_end_otherwise_shift_nothing() -> None:
    text = 'a: "x\u2028y\x85z"  # yes1\nb: "# no1"\n'
    assert marked(text, "a.yaml") == {"yes1": True, 'no1"': False}


PIECES = ["#", "<!-- ", "\n", "'", '"', "`", "```bash\n", "sglang", SERVER, "<<EOF\n", "EOF\n", "|\n  ", "- ", ": ", "\\",
          "    ", "services:\n  a:\n", "FROM x\n", "RUN <<E\n", "E\n", "(", "{", "\u2028", "\t", "x = ", ">", "~~~\n"]  # fmt: skip


@pytest.mark.thorough
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(PIECES), max_size=14).map("".join),
    st.sampled_from(["a.sh", "a.py", "a.yaml", "a.md", "a.txt", "Dockerfile", "a", "a.ipynb"]),
)
def test_whatever_it_is_there_is_an_answer(text: str, name: str) -> None:
    is_comment = comments_of(text, name)
    for at in range(len(text)):
        assert is_comment is None or is_comment(at) in (True, False)
