"""The configuration refuses what cannot be built and survives a round trip through TOML."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hw import config, fabric
from hw.errors import InputError


@pytest.mark.parametrize("name", config.preset_names())
def test_every_preset_loads_and_names_itself(name: str) -> None:
    machine = config.load(name)
    assert machine.name == name
    assert machine.derived.buffer_a.depth * machine.derived.buffer_a.banks == machine.buffer_a_bytes


@pytest.mark.parametrize(
    ("source", "settings", "name"),
    [
        ("tiny", {}, "tiny"),
        ("tiny", {"rows": 4, "cgra": "none"}, "tiny with rows=4, cgra=none"),
        ("tiny", {"rows": 8, "convolutions": False}, "tiny with convolutions=false"),
        ("test", {"cgra": "torus4x4"}, "test with cgra=torus4x4"),
        ("tiny", {"rows": 4, "name": "mine"}, "mine"),
        (config.load("tiny", {"rows": 4, "cols": 4}), {"rows": 16}, "tiny with cols=4, rows=16"),
        (config.load("tiny", {"rows": 4}), {"rows": 4}, "tiny with rows=4"),
    ],
)
def test_a_name_tells_the_fields_that_were_set(
    source: str | config.MachineConfig, settings: dict[str, object], name: str
) -> None:
    made = config.load(source, settings)
    assert made.name == name
    assert config.load(made) == made


def test_presets_have_the_arrays_they_are_known_for() -> None:
    sizes = {n: (config.load(n).rows, config.load(n).cols) for n in ("test", "tiny", "default")}
    assert sizes == {"test": (4, 4), "tiny": (8, 8), "default": (16, 16)}


def test_toml_text_reads_back_to_the_same_machine(tmp_path: Path) -> None:
    machine = config.load("lean").replace(name='"mine" × \U0001f600', channels=9)
    (tmp_path / "mine.toml").write_text(config.to_toml(machine), encoding="utf-8")
    assert config.load(str(tmp_path / "mine.toml")) == machine


def test_a_machine_with_a_grid_reads_back_to_the_same_machine(tmp_path: Path) -> None:
    machine = config.load("test").replace(name="mine", cgra=fabric.load("mixed4x4"))
    (tmp_path / "mine.toml").write_text(config.to_toml(machine))
    assert config.load(str(tmp_path / "mine.toml")) == machine


def test_a_grid_is_a_preset_a_file_or_a_table(tmp_path: Path) -> None:
    mesh = fabric.load("mesh2x2")
    (tmp_path / "grid.toml").write_text(fabric.to_toml(mesh))
    (tmp_path / "a.toml").write_text('preset = "test"\ncgra = "mesh2x2"\n')
    (tmp_path / "b.toml").write_text('preset = "test"\ncgra = "grid.toml"\n')
    (tmp_path / "c.toml").write_text('preset = "test"\n[cgra]\npreset = "mesh4x4"\nrows = 2\ncols = 2\n')
    machines = [config.load(str(tmp_path / f"{name}.toml")) for name in "abc"]
    machines.append(config.load("test", dict([config.parse_setting("cgra=mesh2x2")])))
    assert {m.cgra.as_dict() == mesh.as_dict() for m in machines if m.cgra} == {True}
    assert len({m.hash for m in machines}) == 1
    assert machines[0].hash != config.load("test").hash


def test_a_wrong_grid_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('preset = "test"\n[cgra]\npreset = "mesh4x4"\nrows = 0\n')
    with pytest.raises(InputError, match=r"a.toml: cgra: rows must be .* 1 to 64, not 0"):
        config.load(str(tmp_path / "a.toml"))
    with pytest.raises(InputError, match=r"a fabric must be a preset .* not 'nothing'"):
        config.load("test", {"cgra": "nothing"})
    with pytest.raises(InputError, match="cgra must be a fabric, not 3"):
        config.load("test", {"cgra": 3})


def test_patches_of_convolutions_can_be_left_out(tmp_path: Path) -> None:
    bare = config.load("test", dict([config.parse_setting("convolutions=false")]))
    (tmp_path / "bare.toml").write_text(config.to_toml(bare))
    assert (
        config.load(str(tmp_path / "bare.toml"))
        == bare
        == config.load("test").replace(name=bare.name, convolutions=False)
    )
    assert bare.hash != config.load("test").hash
    assert bare.lacks("load_b_conv") == "convolutions = true"
    assert config.load("test").lacks("load_b_conv") is None
    for value in ("no", "0"):
        with pytest.raises(InputError, match=f"convolutions .* must be true or false, not '{value}'"):
            config.load("test", dict([config.parse_setting(f"convolutions={value}")]))


def test_what_a_description_says_of_the_grid() -> None:
    machine = config.load("test").replace(cgra=fabric.load("mesh2x2"))
    values = json.loads(json.dumps(machine.as_dict()))
    assert (values["cgra"]["name"], values["cgra"]["rows"]) == ("mesh2x2", 2)
    assert machine.replace(cgra=None).as_dict()["cgra"] is None


def test_every_preset_has_a_grid_that_can_be_taken_away(tmp_path: Path) -> None:
    for name in config.preset_names():
        machine = config.load(name)
        assert machine.cgra is not None
        assert machine.cgra.name == {"tiny": "small3x3", "test": "compact4x4", "lean": "shared4x4"}.get(
            name, "vector3x4"
        )
        bare = config.load(name, dict([config.parse_setting("cgra=none")]))
        assert bare.replace(name=name) == machine.replace(cgra=None)
    (tmp_path / "a.toml").write_text('preset = "test"\nname = "test"\ncgra = "none"\n')
    assert config.load(str(tmp_path / "a.toml")) == config.load("test").replace(cgra=None)
    bare = config.load("lean").replace(cgra=None, name="bare")
    (tmp_path / "bare.toml").write_text(config.to_toml(bare))
    assert config.load(str(tmp_path / "bare.toml")) == bare


def test_a_file_may_start_from_a_preset(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('preset = "tiny"\nwarps = 4\n')
    machine = config.load(str(tmp_path / "a.toml"), {"channels": 5})
    assert (machine.rows, machine.warps, machine.channels, machine.name) == (8, 4, 5, "a with channels=5")


def test_the_hash_tells_hardware_apart_and_ignores_name_and_memories() -> None:
    machine = config.load("test")
    assert machine.replace(load_a_latency=99).hash == machine.hash
    assert machine.replace(name="other").hash == machine.hash
    assert machine.replace(channels=15).hash != machine.hash


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 6}, "rows .* must be a power of two, not 6"),
        ({"cols": 128}, "cols .* must be 2 to 64, not 128"),
        ({"warps": 0}, "warps .* must be 1 to 16, not 0"),
        ({"warps": True}, "warps must be a whole number"),
        ({"channel_depth": 7}, "channel_depth .* must be 8 to 255, not 7"),
        ({"store_bytes": 32}, "store_bytes must be at most the 16 bytes"),
        ({"acc_bytes": 64}, "acc_bytes must give each of the 2 banks the 4 rows .* 128 bytes .* not 64"),
        (
            {"rows": 64, "load_a_bytes": 128, "acc_bytes": 65536},
            "buffer_a_bytes must hold 64 bytes .* 8192 are needed, not 4096",
        ),
        ({"buffer_a_bytes": 64}, "buffer_a_bytes must hold 16 bytes .* 128 are needed, not 64"),
    ],
)
def test_a_wrong_combination_is_refused_with_the_reason(changes: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        config.load("test").replace(**changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows = ", "not valid TOML"),
        ("colour = 3", "unknown field 'colour'"),
        ("rows = 4.5", "rows must be a whole number"),
        ('preset = "nowhere"', "unknown preset 'nowhere'; valid are default, large, lean, test, tiny"),
        ("raws = 4", "unknown field 'raws'; did you mean 'rows'\\? `heald config show default` lists all"),
        ("preset = 3", "preset must be text"),
        ("name = 3", "name must be text"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        config.load(str(path))
    assert "bad.toml" in str(caught.value)


@pytest.mark.parametrize("text", [f"rows = {'9' * 5000}", f"rows = {'[' * 5000}"])
def test_numbers_and_nesting_without_end_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "machine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"machine\.toml: not valid TOML"):
        config.load(str(path))


@pytest.mark.parametrize("source", ["x" * 300, f"{'x' * 300}.toml"])
def test_a_name_that_no_file_can_have_is_refused(source: str) -> None:
    with pytest.raises(InputError, match=r"(x|toml): cannot be read: .*too long"):
        config.load(source)


@pytest.mark.parametrize("name", ["\udcff", "two\nlines", 7])
def test_a_machine_has_a_name_that_can_be_printed(name: object) -> None:
    with pytest.raises(InputError, match="test: name must be text that can be printed, not "):
        config.load("test", {"name": name})


def test_an_unknown_preset_names_those_that_exist() -> None:
    with pytest.raises(InputError, match="default, large, lean, test, tiny"):
        config.load("huge")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows", "^--set rows needs a value, as in --set rows=16$"),
        ("cgra=", "^--set cgra needs a value, as in --set cgra=compact4x4$"),
        ("rows=x", "^--set rows must be a whole number from 2 to 64, not 'x'$"),
        ("row=8", r"^--set: unknown field 'row'; did you mean 'rows'\? `heald config show default` lists"),
        ("voltage=3", "^--set: unknown field 'voltage'; `heald config show"),
        ("=4", "^--set: unknown field ''"),
    ],
)
def test_wrong_settings_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        config.parse_setting(text)
