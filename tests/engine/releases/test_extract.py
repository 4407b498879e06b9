"""Each way in which a release has declared its arguments, as a small package of its own."""

from __future__ import annotations

import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from speclaunch.engine.releases.argument import ArgumentKind
from speclaunch.engine.releases.extraction.release import (
    Declared,
    ExtractError,
    Release,
    argument_of,
    catalogue_records,
    extract,
)

Make = Callable[..., Path]

HEAD = """
import argparse
import dataclasses
import json
import sys
raise SystemExit("this package must never be imported")
"""
ACTIONS = """
class DeprecatedAction(argparse.Action):
    def __init__(self, option_strings, dest, error_message=None, nargs=0, **kwargs):
        self.error_message = error_message
        super().__init__(option_strings, dest, nargs=nargs, **kwargs)
    def __call__(self, parser, namespace, values, option_string=None):
        if self.error_message is not None:
            parser.error(self.error_message)
        print_deprecated_warning("deprecated")
class RefusingAction(argparse.Action):
    def __init__(self, option_strings, dest, nargs=0, **kwargs):
        super(RefusingAction, self).__init__(option_strings, dest, nargs=nargs, **kwargs)
    def __call__(self, parser, namespace, values, option_string=None):
        raise ValueError(self.help)
class DeprecatedStoreTrueAction(argparse.Action):
    def __init__(self, option_strings, dest, new_flag=None, nargs=0, const=True, default=False,
                 **kwargs):
        self.new_flag = new_flag
        super().__init__(option_strings, dest, nargs=nargs, const=const, default=default, **kwargs)
    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, True)
class DeprecatedStoreConstAction(argparse.Action):
    def __init__(self, option_strings, dest, new_flag=None, const_value=None, nargs=0,
                 default=None, **kwargs):
        self.const_value = const_value
        super().__init__(option_strings, dest, nargs=nargs, default=default, **kwargs)
    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, self.const_value)
class DeprecatedAliasStoreAction(argparse.Action):
    def __init__(self, option_strings, dest, new_flag=None, **kwargs):
        super().__init__(option_strings, dest, **kwargs)
    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, values)
"""


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes a package: ``make(server_args, **{"srt/x": source})`` → its directory."""

    def write(server_args: str, version: str = "9.9.9", **files: str) -> Path:
        root = tmp_path / "site" / "sglang"
        sources = {"version": f'__version__ = "{version}"\n', "srt/server_args": server_args}
        for name, source in {**sources, **files}.items():
            target = root / f"{name}.py"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(textwrap.dedent(source), encoding="utf-8")
        return root

    return write


def server_args(calls: str, fields: str = "", before: str = "") -> str:
    """A ``server_args.py`` of the kind up to 0.5.13."""
    body = textwrap.indent(textwrap.dedent(calls).strip(), " " * 8)
    attributes = textwrap.indent(textwrap.dedent(fields).strip() or "pass", " " * 4)
    return (
        f"{HEAD}\n{textwrap.dedent(before)}\n"
        f"@dataclasses.dataclass\nclass ServerArgs:\n{attributes}\n\n"
        f"    @staticmethod\n    def add_cli_args(parser: argparse.ArgumentParser):\n{body}\n"
    )


def one(root: Path) -> Declared:
    """The only argument of a package."""
    (found,) = extract(root, usage=False).arguments.values()
    return found


def kind(declared: Declared) -> ArgumentKind:
    return argument_of(declared).kind


def test_plain_call_with_the_default_of_a_field(make: Make) -> None:
    root = make(
        server_args(
            """
            parser.add_argument(
                "--tensor-parallel-size",
                "--tp-size",
                type=int,
                default=ServerArgs.tp_size,
                help="How many GPUs. More is faster.",
            )
            """,
            "tp_size: int = 1",
        )
    )
    found = one(root)
    assert (found.flag, found.aliases, found.dest) == (
        "--tensor-parallel-size",
        ("--tp-size",),
        "tensor_parallel_size",
    )
    assert (found.type, found.default, found.required) == ("int", 1, False)
    assert found.help == "How many GPUs. More is faster."
    file, line = found.src.split(":")
    assert (root.parent / file).read_text().splitlines()[int(line) - 1].strip() == (
        "parser.add_argument("
    )


@pytest.mark.parametrize(
    ("call", "expected", "default"),
    [
        ('"--x", action="store_true"', ArgumentKind.FLAG, False),
        ('"--x", action="store_true", default=None', ArgumentKind.FLAG, None),
        ('"--x", action="store_false"', ArgumentKind.FLAG_OFF, True),
        ('"--x", action=argparse.BooleanOptionalAction', ArgumentKind.BOOLEAN, None),
        ('"--x", type=int, nargs="+"', ArgumentKind.LIST, None),
        ('"--x", type=int, nargs=2', ArgumentKind.LIST, None),
        ('"--x", nargs="?", const="yes", default="no"', ArgumentKind.OPTIONAL_VALUE, "no"),
        ('"--x", action="append"', ArgumentKind.LIST, None),
        ('"--x", default=sys.maxsize', ArgumentKind.VALUE, 2**63 - 1),
        ('"--x", default=-1', ArgumentKind.VALUE, -1),
        ('"--x", default=argparse.SUPPRESS', ArgumentKind.VALUE, None),
        ('"--x", default=unknown_function()', ArgumentKind.VALUE, None),
    ],
)
def test_kinds(make: Make, call: str, expected: ArgumentKind, default: object) -> None:
    argument = argument_of(one(make(server_args(f"parser.add_argument({call})"))))
    assert argument.kind is expected
    assert argument.default == default


def test_both_halves_of_a_boolean(make: Make) -> None:
    found = one(
        make(server_args('parser.add_argument("--x-y", action=argparse.BooleanOptionalAction)'))
    )
    assert found.aliases == ("--no-x-y",)


@pytest.mark.parametrize(
    ("given", "name"),
    [("json.loads", "json"), ("human_readable_int", "human_readable_int"), ("str", "str")],
)
def test_types(make: Make, given: str, name: str) -> None:
    source = server_args(
        f'parser.add_argument("--x", type={given})',
        before="from sglang.srt.utils import human_readable_int",
    )
    root = make(source, **{"srt/utils": "def human_readable_int(text):\n    return int(text)\n"})
    assert one(root).type == name


CHOICES = """
    from enum import Enum, IntEnum
    from sglang.srt.utils import *
    from .shared import MODULES, Registry as Known
    BASE = ["a", "b"]
    BASE += ["c"]
    BASE.append("d")
    BOTH = [*BASE, "e"]
    if torch.cuda.is_available():
        BOTH.append("only on a GPU")
    UNORDERED = {"y", "x"}
    class Mode(Enum):
        NONE = 0
        ALL = 1
    class Backend:
        FULL = "full"
        OFF = "off"
        EVERY = (FULL, OFF)
    def names():
        module = sys.modules.get("heavy")
        if module is not None:
            return []
        from .shared import NAMES
        return list(NAMES)
"""
SHARED = """
    MODULES = ["q_proj"]
    NAMES = ("n1", "n2")
    class Detector: ...
    class Registry:
        DetectorMap: dict = {"k1": Detector, "k2": lambda: 1}
"""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('["auto", "slow"]', ("auto", "slow")),
        ("BASE", ("a", "b", "c", "d")),
        ("BOTH", ("a", "b", "c", "d", "e")),
        ("UNORDERED", ("x", "y")),
        ("MODULES + [STAR]", ("q_proj", "star")),
        ("list(Known.DetectorMap.keys())", ("k1", "k2")),
        ('["auto"] + list(Known.DetectorMap)', ("auto", "k1", "k2")),
        ("[m.name.lower() for m in Mode]", ("none", "all")),
        ("Backend.EVERY", ("full", "off")),
        ("names()", ("n1", "n2")),
        ("[0, 1, 2]", (0, 1, 2)),
        ("from_another_package", None),
    ],
)
def test_choices(make: Make, given: str, expected: tuple[object, ...] | None) -> None:
    source = server_args(f'parser.add_argument("--x", choices={given})', before=CHOICES)
    files = {"srt/utils/__init__": "from .common import *", "srt/utils/common": 'STAR = "star"'}
    assert one(make(source, **{"srt/shared": SHARED}, **files)).choices == expected


@pytest.mark.parametrize(
    ("call", "expected", "const", "replacement"),
    [
        (
            'action=RefusingAction, help="NOTE: --x is deprecated. Please set `--y` instead."',
            ArgumentKind.REFUSED,
            None,
            "--y",
        ),
        ('action=DeprecatedAction, help="Deprecated."', ArgumentKind.IGNORED, None, None),
        (
            'action=DeprecatedAction, error_message="gone", help="Removed. Use --y."',
            ArgumentKind.REFUSED,
            None,
            "--y",
        ),
        ('action=DeprecatedStoreTrueAction, new_flag="--y"', ArgumentKind.FLAG, None, "--y"),
        (
            'action=DeprecatedStoreConstAction, dest="y", const_value="off", new_flag="--y=off"',
            ArgumentKind.CONSTANT,
            "off",
            "--y=off",
        ),
        (
            'action=DeprecatedStoreConstAction, dest="y", nargs=None, choices=["amd"], '
            'const_value=True, new_flag="--y"',
            ArgumentKind.VALUE,
            True,
            "--y",
        ),
        (
            'type=int, action=DeprecatedAliasStoreAction, dest="y", new_flag="--y-decode"',
            ArgumentKind.VALUE,
            None,
            "--y-decode",
        ),
        (
            'action="store_true", help="(Deprecated: use --y=auto) Enable."',
            ArgumentKind.FLAG,
            None,
            "--y=auto",
        ),
        (
            'action="store_true", help="[Deprecated] Use SGLANG_SPEC_X=1 instead."',
            ArgumentKind.FLAG,
            None,
            "SGLANG_SPEC_X=1",
        ),
    ],
)
def test_deprecated(
    make: Make, call: str, expected: ArgumentKind, const: object, replacement: str | None
) -> None:
    root = make(server_args(f'parser.add_argument("--x", {call})', before=ACTIONS))
    argument = argument_of(one(root))
    assert argument.deprecated
    assert (argument.kind, argument.const) == (expected, const)
    assert argument.replacement == replacement


def test_a_help_that_speaks_of_other_deprecated_things(make: Make) -> None:
    words = "Choose. This replaces the deprecated variable X. The fallback is deprecated."
    assert not one(make(server_args(f'parser.add_argument("--x", help="{words}")'))).deprecated


def test_groups_helpers_and_other_classes_add_too(make: Make) -> None:
    calls = """
        group = parser.add_argument_group("g")
        group.add_argument("--in-group")
        for name in ("one", "two"):
            parser.add_argument(f"--{name}-size", type=int)
        add_more(parser)
        Other.add_cli_args(parser)
    """
    before = """
        from sglang.srt.more import add_more, Other
    """
    more = """
        def add_more(p, prefix="--more"):
            p.add_argument(prefix, default=3)
        class Other:
            @staticmethod
            def add_cli_args(parser):
                parser.add_argument("--other")
    """
    found = extract(make(server_args(calls, before=before), **{"srt/more": more}), usage=False)
    assert list(found.arguments) == ["--in-group", "--one-size", "--two-size", "--more", "--other"]


ARG_UTILS = """
    class Arg:
        help = ""
    A = Annotated
    def add_cli_args_from_dataclass(parser, cls, *, fields=None):
        raise NotImplementedError
"""
FIELDS = """
    Alias = Literal["p", "q"]
    CHOICES = ["c1", "c2"]
"""


def annotated(fields: str) -> str:
    """A ``server_args.py`` of the kind of 0.5.14 … 0.5.19."""
    before = FIELDS + "    from sglang.srt.arg_groups.arg_utils import A, Arg\n"
    before += "    from sglang.srt.arg_groups.arg_utils import add_cli_args_from_dataclass\n"
    return server_args("add_cli_args_from_dataclass(parser, ServerArgs)", fields, before)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ('x_y: A[str, "help"]', {"type": "str", "required": True, "help": "help"}),
        ('x_y: A[Optional[int], "help"] = None', {"type": "int", "required": False}),
        ('x_y: A[int | None, "help"] = 4', {"type": "int", "default": 4}),
        ('x_y: A[bool, "help"] = False', {"type": "bool", "nargs": 0, "default": False}),
        ('x_y: A[Optional[bool], "help"] = None', {"nargs": 0, "default": None}),
        ('x_y: A[Literal["a", "b"], "help"] = "a"', {"type": "str", "choices": ("a", "b")}),
        ("x_y: A[Literal[1, 2], Arg(help='')] = 1", {"type": "int", "choices": (1, 2)}),
        ('x_y: A[Optional[Alias], "help"] = None', {"choices": ("p", "q")}),
        ('x_y: A[Optional[List[int]], "help"] = None', {"type": "int", "nargs": "+"}),
        ('x_y: A[list[str], Arg(help="", nargs="*")] = None', {"type": "str", "nargs": "*"}),
        (
            'x_y: A[List[str], "help"] = dataclasses.field(default_factory=list)',
            {"default": [], "nargs": "+"},
        ),
        (
            'x_y: A[List[str], "h"] = dataclasses.field(default_factory=lambda: list(CHOICES))',
            {"default": ["c1", "c2"]},
        ),
        (
            'x_y: A[Optional[dict], Arg(help="", type_parser=json.loads)] = None',
            {"type": "json", "nargs": None},
        ),
        ('x_y: A[str, Arg(help="", choices=CHOICES)] = "c1"', {"choices": ("c1", "c2")}),
        (
            'x_y: A[int, Arg(help="", cli_name="--x-long", aliases=["--x"])] = 1',
            {"flag": "--x-long", "aliases": ("--x",), "dest": "x_y"},
        ),
        (
            'x_y: A[Optional[bool], Arg(help="", action=argparse.BooleanOptionalAction)] = None',
            {"aliases": ("--no-x-y",), "action": "BooleanOptionalAction"},
        ),
        (
            'x_y: A[str, Arg(help="", nargs="?", const="on")] = None',
            {"nargs": "?", "const": "on"},
        ),
        ('x_y: Annotated[float, "help"] = 0.5', {"type": "float", "default": 0.5}),
    ],
)
def test_fields(make: Make, field: str, expected: dict[str, object]) -> None:
    found = one(make(annotated(field), **{"srt/arg_groups/arg_utils": ARG_UTILS}))
    assert found.flag in ("--x-y", "--x-long")
    assert {name: getattr(found, name) for name in expected} == expected


def test_fields_without_a_flag(make: Make) -> None:
    fields = """
        kept: A[int, "help"] = 1
        hidden: A[int, Arg(help="", no_cli=True)] = 1
        plain: int = 1
        _PATH = "x"
    """
    root = make(annotated(fields), **{"srt/arg_groups/arg_utils": ARG_UTILS})
    assert list(extract(root, usage=False).arguments) == ["--kept"]


def test_namespaces(make: Make) -> None:
    """As from 0.5.20: the fields live in namespace classes and the class is rebuilt."""
    source = HEAD + textwrap.dedent(
        """
        import msgspec
        from sglang.srt.arg_groups.arg_utils import A, add_cli_args_from_dataclass
        from sglang.srt.arg_groups.fields import collect_input_fields
        from sglang.srt.arg_groups.fields.spec import Spec
        from sglang.srt.environ import envs
        BACKENDS = {"one", "two"}

        class ServerArgs:
            @staticmethod
            def add_cli_args(parser):
                add_cli_args_from_dataclass(parser, ServerArgs)
                choices = set(BACKENDS)
                if envs.SGLANG_ORACLE.get():
                    choices.add("oracle")
                if envs.SGLANG_ALWAYS.get():
                    choices.add("always")
                parser.add_argument(
                    "--backend", choices=choices, default=_declared_default("backend")
                )

        _NAMESPACES = [Spec]
        _annotations, _defaults, _names = collect_input_fields(_NAMESPACES)
        ServerArgs = msgspec.defstruct("ServerArgs", list(_annotations))

        def _declared_default(name):
            return next(f.default for f in msgspec.structs.fields(ServerArgs) if f.name == name)
        """
    )
    spec = """
        import msgspec
        from sglang.srt.arg_groups.arg_utils import A
        class Base(msgspec.Struct):
            inherited: A[int, "help"] = 7
        class Spec(Base):
            _NS_PATH = "spec"
            num_steps: A[Optional[int], "help"] = None
            backend: str = "one"
    """
    environ = """
        class EnvField: ...
        class EnvBool(EnvField): ...
        class Envs:
            SGLANG_ORACLE = EnvBool(False)
            SGLANG_ALWAYS = EnvBool(True)
        envs = Envs()
    """
    root = make(
        source,
        **{
            "srt/arg_groups/arg_utils": ARG_UTILS,
            "srt/arg_groups/fields/__init__": "def collect_input_fields(sources): ...",
            "srt/arg_groups/fields/spec": spec,
            "srt/environ": environ,
        },
    )
    found = extract(root, usage=False).arguments
    assert list(found) == ["--inherited", "--num-steps", "--backend"]
    assert found["--inherited"].src.startswith("sglang/srt/arg_groups/fields/spec.py:")
    assert found["--backend"].default == "one"
    assert found["--backend"].choices == ("always", "one", "two")


def test_a_wheel_reads_like_a_directory(make: Make, tmp_path: Path) -> None:
    root = make(server_args('parser.add_argument("--x")'), version="0.0.0.dev0")
    wheel = tmp_path / "sglang-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in sorted(root.rglob("*.py")):
            archive.write(file, file.relative_to(root.parent).as_posix())
        archive.writestr("sglang-1.2.3.dist-info/METADATA", "Name: sglang\nVersion: 1.2.3\n")
    metadata = root.parent / "sglang-1.2.3.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Name: sglang\nVersion: 1.2.3\n")
    assert catalogue_records(extract(wheel)) == catalogue_records(extract(root))
    assert (
        extract(wheel).version == extract(root).version == extract(root.parent).version == "1.2.3"
    )


def test_unparsable_file(make: Make) -> None:
    with pytest.raises(ExtractError, match=r"srt/server_args.py:2: cannot be parsed"):
        extract(make("x = 1\ndef broken(:\n"))


def test_no_arguments(make: Make) -> None:
    with pytest.raises(ExtractError, match="no arguments found"):
        extract(make(server_args("pass")))


@pytest.mark.parametrize("source", ["x = 1\n", "class ServerArgs:\n    pass\n"])
def test_no_declaration(make: Make, source: str) -> None:
    with pytest.raises(ExtractError, match=r"no ServerArgs\.add_cli_args"):
        extract(make(source))


def test_no_version(make: Make) -> None:
    root = make(server_args('parser.add_argument("--x")'), version="0.0.0.dev0")
    with pytest.raises(ExtractError, match="does not state its version"):
        extract(root)


def test_no_package(tmp_path: Path) -> None:
    with pytest.raises(ExtractError, match="no sglang package"):
        extract(tmp_path)
    with pytest.raises(ExtractError, match="no such file"):
        extract(tmp_path / "absent")
    (tmp_path / "broken.whl").write_bytes(b"no zip")
    with pytest.raises(ExtractError, match="not a wheel"):
        extract(tmp_path / "broken.whl")
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as archive:
        archive.writestr("other/__init__.py", "")
    with pytest.raises(ExtractError, match="no sglang package"):
        extract(tmp_path / "other.whl")
    (tmp_path / "sglang").mkdir()
    with pytest.raises(ExtractError, match="no sglang package"):
        extract(tmp_path / "sglang")


def test_no_server_args(tmp_path: Path) -> None:
    root = tmp_path / "sglang"
    root.mkdir()
    (root / "version.py").write_text('__version__ = "1.0"\n')
    with pytest.raises(ExtractError, match=r"no sglang/srt/server_args\.py"):
        extract(root)


# Who reads what ------------------------------------------------------------------------------

READ_CALLS = "\n".join(
    f'parser.add_argument("--{flag}")'
    for flag in ("loaded", "by-getattr", "listed", "declared-only", "written", "packed", "tested")
)
READ_FIELDS = "\n".join(
    f"{name}: int = 1"
    for name in ("loaded", "by_getattr", "listed", "declared_only", "written", "packed", "tested")
)
CARRIER = """

@dataclasses.dataclass
class PortArgs:
    dead_config: int
    live_config: int

    @staticmethod
    def init_new(server_args):
        dead_config = None
        if server_args.packed is not None:
            dead_config = (server_args.packed,)
        return PortArgs(dead_config=dead_config, live_config=server_args.loaded)
"""

FIELD_ORDER = 'POSITIONAL_FIELD_ORDER = ["declared_only", "listed"]'


@pytest.fixture
def release(make: Make) -> Release:
    """A package whose readers are known."""
    return extract(
        make(
            server_args(READ_CALLS, READ_FIELDS) + CARRIER,
            **{
                "srt/arg_groups/field_order": FIELD_ORDER,
                "srt/worker": """
                    import os
                    from sglang.srt.environ import envs
                    def run(args, port_args):
                        args.written = 1
                        names = ["listed"]
                        if os.getenv("SGLANG_REMOVED") is not None:
                            logger.warning("it has been removed")
                        if get_bool_env_var("SGLANG_LOGS_MORE"):
                            logger.info("the layout is ...")
                        envs.SGLANG_ONLY_SET.set(True)
                        ENDPOINT = "SGLANG_IN_A_CONSTANT"
                        align = {"triton": ("SGLANG_IN_A_TABLE", 4096)}
                        if lora_envs.SGLANG_OF_OTHERS.get():
                            return
                        os.environ["SGLANG_STORED"] = "1"
                        size = int(os.environ.get("SGLANG_SIZE", "8"))
                        fast = get_bool_env_var("SGLANG_FAST", "true")
                        slow = get_bool_env_var("SGLANG_SLOW")
                        if envs.SGLANG_DESCRIBED.get():
                            return args.loaded, getattr(args, "by_getattr"), port_args.live_config
                """,
                "srt/speculative/worker": """
                    def verify():
                        return envs.SGLANG_VERSATILE.get()
                """,
                "test/checks": "def check(args):\n    return args.tested\n",
                "srt/environ": """
                    class EnvField: ...
                    class EnvBool(EnvField): ...
                    class EnvInt(EnvField): ...
                    class EnvTuple(EnvField): ...
                    class EnvBoolWithAlias(EnvBool): ...
                    class Level(IntEnum):
                        OFF = 0
                    def _default_hip():
                        import torch
                        return torch.version.hip is not None
                    class Envs:
                        IS_H200 = EnvBool(False)
                        SGLANG_DESCRIBED = EnvBool(True)
                        SGLANG_VERSATILE = EnvInt(Level.OFF)
                        SGLANG_ONLY_SET = EnvBool(False)
                        SGLANG_NGRAM_UNREAD = EnvInt(2**3)
                        SGLANG_PARTS = EnvTuple(tuple())
                        SGLANG_MACHINE = EnvBool(torch.version.hip)
                        SGLANG_NEW = EnvBoolWithAlias(True, deprecated_name="SGLANG_OLD")
                    envs = Envs()
                    class _DeprecatedEnv: ...
                    def _convert():
                        for old, new in {"SGLANG_SIZE_MS": "SGLANG_SIZE"}.items():
                            os.environ[new] = os.environ[old]
                    _DEPRECATED_ENVS = {
                        "SGLANG_RENAMED": _DeprecatedEnv("SGLANG_DESCRIBED"),
                        "SGLANG_NOW_A_FLAG": _DeprecatedEnv(note="Please use '--loaded' instead."),
                    }
                """,
            },
        )
    )


def test_readers_of_arguments(release: Release) -> None:
    read = {flag for flag, made in release.arguments.items() if made.dest in release.read}
    assert read == {"--loaded", "--by-getattr", "--listed"}


def test_variables(release: Release) -> None:
    found = release.variables
    assert {
        name: (made.type, made.default)
        for name, made in found.items()
        if not made.deprecated and not made.dynamic
    } == {
        "SGLANG_DESCRIBED": ("bool", True),
        "SGLANG_FAST": ("bool", True),
        "SGLANG_LOGS_MORE": ("bool", False),
        "SGLANG_NEW": ("bool", True),
        "SGLANG_NGRAM_UNREAD": ("int", 8),
        "SGLANG_ONLY_SET": ("bool", False),
        "SGLANG_PARTS": ("tuple", ()),
        "SGLANG_REMOVED": ("str", None),
        "SGLANG_SIZE": ("int", 8),
        "SGLANG_SLOW": ("bool", False),
        "SGLANG_VERSATILE": ("int", 0),
    }
    assert {name for name, made in found.items() if made.dynamic} == {
        "SGLANG_MACHINE",
        "SGLANG_IN_A_CONSTANT",
        "SGLANG_IN_A_TABLE",
        "SGLANG_OF_OTHERS",
    }
    assert {name: made.replacement for name, made in found.items() if made.deprecated} == {
        "SGLANG_OLD": "SGLANG_NEW",
        "SGLANG_SIZE_MS": "SGLANG_SIZE",
        "SGLANG_RENAMED": "SGLANG_DESCRIBED",
        "SGLANG_NOW_A_FLAG": "--loaded",
    }


def test_readers_of_variables(release: Release) -> None:
    assert release.variables.keys() & release.read == {
        "SGLANG_DESCRIBED",
        "SGLANG_FAST",
        "SGLANG_IN_A_CONSTANT",
        "SGLANG_IN_A_TABLE",
        "SGLANG_LOGS_MORE",
        "SGLANG_OF_OTHERS",
        "SGLANG_RENAMED",  # forwarded to one that is read
        "SGLANG_SIZE",
        "SGLANG_SIZE_MS",  # copied to one that is read
        "SGLANG_SLOW",
        "SGLANG_VERSATILE",
    }


def test_a_variable_that_only_cuda_reads(make: Make) -> None:
    root = make(server_args('parser.add_argument("--x")', "x: int = 1"))
    kernels = root / "kernels"
    kernels.mkdir()
    (kernels / "log.h").write_text('auto level = std::getenv("SGLANG_JIT_LEVEL");\n')
    found = extract(root)
    assert "SGLANG_JIT_LEVEL" in found.variables
    assert "SGLANG_JIT_LEVEL" in found.read


def test_a_typed_reader_tells_more_than_a_name(make: Make) -> None:
    root = make(
        server_args('parser.add_argument("--x")', "x: int = 1"),
        **{
            "srt/layers/attention": """
                import os
                if os.environ["SGLANG_BY_NAME_FIRST"] == "1":
                    pass
            """,
            "srt/layers/quantization": """
                def pad():
                    return not get_bool_env_var("SGLANG_BY_NAME_FIRST")
            """,
        },
    )
    made = extract(root).variables["SGLANG_BY_NAME_FIRST"]
    assert (made.type, made.default, made.dynamic) == ("bool", False, False)


def test_variables_that_steer_speculation(release: Release) -> None:
    assert release.variables.keys() & release.speculative == {
        "SGLANG_NGRAM_UNREAD",
        "SGLANG_VERSATILE",
    }
