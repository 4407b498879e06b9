"""A recipe of several roles: each is laid over what they share, and says where that was written."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclaunch.core.errors import InputError, Place
from speclaunch.deployments.recipe.compose import quick_compose
from speclaunch.deployments.recipe.hydra_compose import hydra_compose
from speclaunch.deployments.recipe.load import Recipe, load, load_sound_part, of_role, role_names
from speclaunch.deployments.recipe.source import Composition, RecipeProvenance
from speclaunch.engine.releases.command import is_secret_key

PD = """\
defaults:
  - base
  - _self_
name: pd
args:
  model_path: deepseek-ai/DeepSeek-V3
  page_size: 64
  tp_size: 8
engine:
  env: {A: "1", B: "2"}
hardware: {name: h100:8}
roles:
  prefill:
    args: {tensor_parallel_size: 16, nnodes: 2}
    engine: {env: {B: null}}
  decode:
    replicas: 2
    hardware: {name: h200:8}
    args:
      page_size: null
      json_model_override_args: {a: {b: 1}}
router:
  args: {policy: cache_aware}
"""


def written(tmp_path: Path, text: str = PD, name: str = "pd") -> str:
    path = tmp_path / f"{name}.yaml"
    path.write_text(text)
    return str(path)


def roles(recipe: Recipe) -> dict[str, Recipe]:
    return {str(one.role): one for one in recipe.roles}


def refused(tmp_path: Path, text: str, *overrides: str) -> list[tuple[str, int, str | None]]:
    with pytest.raises(InputError) as caught:
        load(written(tmp_path, text), overrides)
    return [
        (one.message, one.place.line if one.place is not None else 0, one.help)
        for one in caught.value.problems
    ]


def test_each_role_is_laid_over_what_is_shared(tmp_path: Path) -> None:
    found = roles(load(written(tmp_path)))
    prefill, decode = found["prefill"].deployment, found["decode"].deployment
    assert (prefill.name, decode.name) == ("pd/prefill", "pd/decode")
    assert prefill.args["tensor_parallel_size"] == 16
    assert "tp_size" not in prefill.args  # the same argument by another name
    assert decode.args["tp_size"] == 8
    assert prefill.args["page_size"] == 64
    assert decode.args["page_size"] is None
    assert prefill.engine.env == {"A": "1", "B": None}
    assert decode.engine.env == {"A": "1", "B": "2"}
    assert (prefill.hardware.name, decode.hardware.name) == ("h100:8", "h200:8")
    assert prefill.args["disaggregation_mode"] == "prefill"
    assert decode.args["disaggregation_mode"] == "decode"
    assert not prefill.roles
    assert prefill.router is None


def test_places_are_those_of_the_role_or_the_shared_line(tmp_path: Path) -> None:
    path = written(tmp_path)
    found = roles(load(path))

    def line(role: str, *keys: str) -> int:
        place = found[role].place(*keys)
        assert place.path == path
        return place.line

    assert line("prefill", "args", "tensor_parallel_size") == 14
    assert line("prefill", "args", "page_size") == 7
    assert line("decode", "args", "page_size") == 20
    assert line("prefill", "hardware", "name") == 11
    assert line("decode", "hardware", "name") == 18
    assert line("prefill", "args", "disaggregation_mode") == 13
    assert line("prefill", "engine", "env", "A") == 10
    assert found["decode"].start == Place(path, 16, 3, 6)


def test_the_surroundings_of_a_role(tmp_path: Path) -> None:
    found = roles(load(written(tmp_path)))
    prefill, decode = found["prefill"].server_context, found["decode"].server_context
    assert prefill is not None
    assert decode is not None
    assert prefill.group == decode.group
    assert (prefill.group.name, prefill.group.platform) == ("pd", "recipe")
    assert prefill.nodes is not None
    assert (prefill.nodes.value, prefill.nodes.place.line) == (2, 14)
    assert decode.nodes is None
    assert prefill.replicas is None
    assert decode.replicas is not None
    assert decode.replicas.value == 2
    (router,) = prefill.group.routers
    assert router.program == "sglang_router"
    assert router.options["policy"].value == "cache_aware"
    assert [one.role for one in router.upstreams] == ["prefill", "decode"]


def test_a_recipe_without_roles_is_its_own_only_role() -> None:
    found = load("eagle3_llama8b")
    assert found.roles == (found,)
    assert found.role is None


def test_one_that_only_names_its_roles(tmp_path: Path) -> None:
    text = "args: {model_path: m}\nroles:\n  prefill:\n  decode: {}\n  other:\n"
    found = roles(load(written(tmp_path, text)))
    assert found["prefill"].deployment.args["disaggregation_mode"] == "prefill"
    assert "disaggregation_mode" not in found["other"].deployment.args


def test_a_role_may_say_its_mode_itself(tmp_path: Path) -> None:
    text = "args: {model_path: m}\nroles:\n  prefill: {args: {disaggregation_mode: null}}\n"
    found = roles(load(written(tmp_path, text)))
    assert found["prefill"].deployment.args["disaggregation_mode"] is None


def test_the_name_of_a_role_counts_more_than_a_shared_mode(tmp_path: Path) -> None:
    text = "args: {model_path: m, disaggregation_mode: decode}\nroles:\n  prefill:\n  decode:\n"
    found = roles(load(written(tmp_path, text)))
    assert found["prefill"].deployment.args["disaggregation_mode"] == "prefill"


def test_all_arguments_may_stand_in_the_roles(tmp_path: Path) -> None:
    text = "description: x\nroles:\n  a: {args: {model_path: m}}\n"
    assert roles(load(written(tmp_path, text)))["a"].deployment.args == {"model_path": "m"}


def test_null_takes_a_section_away(tmp_path: Path) -> None:
    text = PD.replace("hardware: {name: h200:8}", "hardware: null\n    recovery: {policy: null}")
    found = roles(load(written(tmp_path, text)))
    assert found["decode"].deployment.hardware.name == "auto"
    assert found["prefill"].deployment.hardware.name == "h100:8"


def test_a_variable_that_is_not_set_is_that_of_its_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET_HERE", raising=False)
    text = PD.replace("nnodes: 2", 'nnodes: "${oc.env:NOT_SET_HERE}"')
    found = roles(load(written(tmp_path, text)))
    assert [one.key for one in found["prefill"].unset] == ["args.nnodes"]
    assert found["prefill"].unset[0].place.line == 14
    assert not found["decode"].unset
    context = found["prefill"].server_context
    assert context is not None
    assert context.nodes is not None
    assert not context.nodes.known


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("old", "new", "message", "line", "help_"),
    [
        ("replicas: 2", "replica: 2", "unknown key 'roles.decode.replica'", 17, "`replicas`"),
        ("replicas: 2", "tp_size: 2", "unknown key 'roles.decode.tp_size'", 17, "roles.decode.args.tp_size"),
        ("replicas: 2", "replicas: 0", "roles.decode.replicas: input should be greater", 17, None),
        ("replicas: 2", "replicas: many", "roles.decode.replicas: input should be a valid integer", 17, None),
        ("{name: h200:8}", "{nam: h200:8}", "unknown key 'roles.decode.hardware.nam'", 18, "name"),
        ("{name: h200:8}", "{name: h2:8}", "roles.decode.hardware.name: ", 18, None),
        ("{name: h200:8}", "h200:8", "roles.decode.hardware: expected `key: value`", 18, None),
        ("  decode:", "  Decode:", "roles.Decode: 'Decode' cannot be the name of a role", 16, None),
        ("  decode:", "  router:", "roles.router: the router is not a role", 16, None),
        ("  decode:", "  1:", "roles.1: ", 16, None),
        ("{B: null}", "{1B: x}", "roles.prefill.engine.env.1B: ", 15, None),
        ("policy: cache_aware", "policy: [", "not valid YAML", 23, None),
        ("router:", "routers:", "unknown key 'routers'", 22, "router"),
        ("  args: {policy", "  arg: {policy", "unknown key 'router.arg'", 23, "args"),
        ("hardware: {name: h100:8}", "hardware: {name: x9}", "hardware.name: ", 11, None),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_once_at_its_place(
    tmp_path: Path, old: str, new: str, message: str, line: int, help_: str | None
) -> None:
    assert old in PD
    found = refused(tmp_path, PD.replace(old, new, 1))
    assert len(found) == 1, found
    assert found[0][0].startswith(message), found
    assert found[0][1] == line
    assert help_ is None or help_ in (found[0][2] or ""), found


@pytest.mark.parametrize("value", ["[a, b]", "text", "5", "{prefill: 5}", "{prefill: [x]}"])
def test_roles_that_are_none(tmp_path: Path, value: str) -> None:
    text = f"args: {{model_path: m}}\nroles: {value}\n"
    assert len(refused(tmp_path, text)) == 1


def test_limits_that_contradict_each_other_over_two_places(tmp_path: Path) -> None:
    text = PD.replace("replicas: 2", "recovery: {floors: {mem_fraction_static: 0.99}}")
    (found,) = refused(tmp_path, text)
    assert found[0].startswith("roles.decode.recovery: floors.mem_fraction_static (0.99)")
    assert found[1] == 17


def test_an_argument_whose_name_is_a_number(tmp_path: Path) -> None:
    text = PD.replace("  tp_size: 8\n", "  1: 2\n")
    sound, (problem,) = load_sound_part(written(tmp_path, text))
    assert sound is not None
    assert problem.message == "args.1: input should be a valid string"
    assert len(sound.parts) == 2


def test_the_sound_part_of_a_recipe(tmp_path: Path) -> None:
    text = PD.replace("{name: h200:8}", "{nam: h200:8}").replace("replicas: 2", "replica: 2")
    sound, problems = load_sound_part(written(tmp_path, text))
    assert len(problems) == 2
    assert sound is not None
    assert roles(sound)["decode"].deployment.hardware.name == "h100:8"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("override", "message", "help_"),
    [
        ("roles.prefil.args.tp_size=4", "the recipe has no role 'prefil'", "did you mean `prefill`?"),
        ("roles.prefill.hardware.nam=x", "unknown key 'roles.prefill.hardware.nam'", "`roles.prefill.hardware.name`"),
        ("roles.decode.tp_size=4", "unknown key 'roles.decode.tp_size'", "roles.decode.args.tp_size=4"),
        ("roles.decode.replicas=0", "roles.decode.replicas: ", ""),
        ("role.decode.replicas=1", "unknown key 'role.decode.replicas'", ""),
        ("router.prt=1", "unknown key 'router.prt'", "`router.port`"),
    ],
)  # fmt: skip
def test_overrides_that_are_refused(
    tmp_path: Path, override: str, message: str, help_: str
) -> None:
    with pytest.raises(InputError) as caught:
        load(written(tmp_path), [override])
    (problem,) = caught.value.problems
    assert problem.message.startswith(message)
    assert help_ in (problem.help or "")
    assert problem.place is not None
    assert problem.place.text == override


def test_overrides_of_roles_where_there_are_none() -> None:
    with pytest.raises(InputError, match="no roles"):
        load("eagle3_llama8b", ["roles.prefill.args.tp_size=4"])


OVERRIDES = (
    ("roles.prefill.args.tp_size=4",),
    ("roles.decode.replicas=3", "router.args.policy=random"),
    ("roles.decode.engine.env.A=x", "roles.decode.hardware.name=cpu"),
    ("router.port=9000", "router.replicas=2"),
    ("roles.decode.args.page_size=1", "args.page_size=16"),
    ("deploy.image=lmsysorg/sglang", "roles.decode.recovery.policy=budget"),
)


@pytest.mark.thorough
@pytest.mark.parametrize("overrides", OVERRIDES)
def test_the_quick_way_is_that_of_hydra(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    path = Path(written(tmp_path))
    found = quick_compose(path, str(path), overrides, ())
    assert found is not None
    expected = hydra_compose(path, str(path), overrides, ())
    assert found.raw == expected.raw
    assert dict(found.provenance.places) == dict(expected.provenance.places)


@pytest.mark.thorough
def test_overrides_count_for_their_role_or_for_all(tmp_path: Path) -> None:
    path = written(tmp_path)
    found = roles(load(path, ["args.page_size=16", "roles.decode.args.tp_size=4"]))
    assert found["prefill"].deployment.args["page_size"] == 16
    assert found["decode"].deployment.args["page_size"] is None  # the role's own counts more
    assert found["decode"].deployment.args["tp_size"] == 4
    assert found["decode"].place("args", "tp_size").text == "roles.decode.args.tp_size=4"
    assert set(roles(load(path, ["~roles.decode"]))) == {"prefill"}
    assert set(roles(load(path, ["+roles.more.args.tp_size=1"]))) == {"prefill", "decode", "more"}


def test_a_recipe_that_is_made_of_another(tmp_path: Path) -> None:
    written(tmp_path)
    text = "defaults: [pd, _self_]\nname: more\nroles:\n  decode: {args: {tp_size: 2}}\n"
    found = roles(load(written(tmp_path, text, "more")))
    assert found["decode"].deployment.args["tp_size"] == 2
    assert found["decode"].deployment.hardware.name == "h200:8"
    assert found["prefill"].deployment.name == "more/prefill"


def test_groups_fill_the_shared_part(tmp_path: Path) -> None:
    text = "defaults:\n  - base\n  - model: deepseek_v3\n  - _self_\nroles: {prefill: , decode: }\n"
    found = roles(load(written(tmp_path, text)))
    assert found["prefill"].deployment.args["model_path"] == "deepseek-ai/DeepSeek-V3"


def test_secrets_of_roles_are_secrets() -> None:
    assert is_secret_key("roles.prefill.args.api_key")
    assert is_secret_key("++roles.prefill.engine.env.HF_TOKEN")
    assert not is_secret_key("roles.prefill.args.tp_size")


SCALARS = st.none() | st.booleans() | st.integers(-5, 99) | st.text(max_size=5)
ARGS = st.dictionaries(
    st.sampled_from(["tp_size", "tensor_parallel_size", "page_size", "nnodes", "x"]),
    SCALARS | st.dictionaries(st.sampled_from("ab"), SCALARS, max_size=2) | st.lists(SCALARS),
    max_size=4,
)


@pytest.mark.thorough
@settings(max_examples=200, deadline=None)
@given(ARGS, ARGS)
def test_whatever_is_laid_over_whatever(base: dict[str, Any], own: dict[str, Any]) -> None:
    values = {"args": base, "roles": {"a": {"args": own}, "b": None}}
    before = copy.deepcopy(values)
    whole = Composition("x", Path("x.yaml"), values, RecipeProvenance({}), ())
    assert role_names(values) == ("a", "b")
    assert of_role(whole, "b").values["args"] == base
    found = of_role(whole, "a").values["args"]
    for name, value in own.items():
        if not isinstance(value, dict):
            assert found[name] == value
    assert set(own) <= set(found)
    if {"tp_size", "tensor_parallel_size"} & set(own):
        assert {"tp_size", "tensor_parallel_size"} & set(found) <= set(own)
    assert values == before  # what is shared is no role's to change


@pytest.mark.thorough
def test_more_roles_than_anybody_has(tmp_path: Path) -> None:
    many = "".join(f"  r{number}: {{args: {{tp_size: 1}}}}\n" for number in range(5000))
    found = refused(tmp_path, f"args: {{model_path: m}}\nroles:\n{many}")
    assert [message for message, *_ in found] == ["roles: 5000 roles; a recipe can have at most 64"]


@pytest.mark.parametrize(
    "text", ["args: {model_path: m}\nroles: {}\n", "args: {model_path: m}\nrouter: {}\n"]
)
def test_a_recipe_with_nothing_of_its_roles(tmp_path: Path, text: str) -> None:
    found = load(written(tmp_path, text))
    assert found.roles == (found,)


def test_places_of_roles_that_take_a_section_away(tmp_path: Path) -> None:
    text = PD.replace("hardware: {name: h200:8}", "engine: null")
    found = roles(load(written(tmp_path, text)))["decode"]
    assert found.deployment.engine.env == {}
    assert ("engine", "env", "A") not in found.provenance.places
