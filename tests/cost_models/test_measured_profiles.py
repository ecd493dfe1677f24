"""Measured profiles on disk: read as written, refused by file and line where touched, used for one device alone."""

import json
import shutil
from pathlib import Path

import pytest

from cost_models.errors import BadInput
from cost_models.profiler.writer import folder_name, write_profile
from cost_models.profiles import MEASURED_VARIABLE, found, measured_profile, read_profile
from cost_models.profiles.measured import MANIFEST_FILE, POINTS_FILE, Point, point_line, read_points

MEASURED = Path(__file__).parents[1] / "data" / "measured"
EXAMPLE = next((MEASURED / "h200-sxm").iterdir())


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "h200-sxm" / EXAMPLE.name))


def test_a_profile_is_read_as_it_was_written(tmp_path: Path):
    profile = read_profile(EXAMPLE)
    again = tmp_path / "again"
    write_profile(again, profile.manifest, profile.points)
    assert (again / POINTS_FILE).read_bytes() == (EXAMPLE / POINTS_FILE).read_bytes()
    assert read_profile(again).points == profile.points
    assert profile.fact("capacity_bytes") == 150754820096
    assert profile.fact("nothing") is None
    assert profile.title.startswith(f"h200-sxm/{EXAMPLE.name} ")


def edited(line: str) -> str:
    values = json.loads(line)
    values["seconds"] *= 0.5
    return json.dumps(values, sort_keys=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (edited, "line 3 has the checksum"),
        (lambda line: line[:-20], "line 3 is not valid JSON"),
        (lambda line: "[]", "line 3 is no JSON object"),
        (lambda line: line.replace('"gemm"', '"gemm", "name": "gemm"'), "line 3 gives the key 'name' twice"),
        (
            lambda line: point_line(Point(kind="fact", name="x")).replace("fact", "guess"),
            "line 3 has the checksum",
        ),
    ],
)
def test_a_touched_line_is_refused_by_file_and_number(copy: Path, change, said: str):
    lines = (copy / POINTS_FILE).read_text().splitlines()
    lines[2] = change(lines[2])
    (copy / POINTS_FILE).write_text("\n".join(lines) + "\n")
    with pytest.raises(BadInput, match=said) as refused:
        read_profile(copy)
    assert str(copy / POINTS_FILE) in str(refused.value)


def test_lines_that_were_taken_out_or_doubled_are_refused(copy: Path):
    path = copy / POINTS_FILE
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    with pytest.raises(BadInput, match=r"not those that manifest\.json was written for"):
        read_profile(copy)
    path.write_text("".join([*lines, lines[0]]))
    with pytest.raises(BadInput, match=f"line {len(lines) + 1} measures what line 1 does"):
        read_profile(copy)


def test_a_manifest_names_its_wrong_key(copy: Path):
    path = copy / MANIFEST_FILE
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"budget_s": -1}))
    with pytest.raises(BadInput, match="budget_s"):
        read_profile(copy)
    path.unlink()
    with pytest.raises(BadInput, match="cannot be read"):
        read_profile(copy)


def test_a_file_that_is_being_written_ends_in_a_torn_line(tmp_path: Path):
    points = [Point(kind="fact", name=name, features={"value": 1.0}) for name in ("a", "b")]
    path = tmp_path / POINTS_FILE
    path.write_text(point_line(points[0]) + point_line(points[1])[:-9])
    assert read_points(path) == (points[0],)
    assert read_points(tmp_path / "absent") == ()


def test_the_newest_profile_of_the_very_device_is_taken(copy: Path, monkeypatch: pytest.MonkeyPatch):
    root = copy.parents[1]
    monkeypatch.setenv(MEASURED_VARIABLE, str(root))
    newer = Path(shutil.copytree(copy, copy.parent / "20270101-0000-torch-2.12.0"))
    profile = measured_profile("h200-sxm")
    assert profile is not None
    assert profile.folder == newer
    assert measured_profile("h100-sxm-80gb") is None
    # A folder renamed to another device is still not of that device.
    shutil.copytree(copy, root / "h100-sxm-80gb" / copy.name)
    assert measured_profile("h100-sxm-80gb") is None
    monkeypatch.setenv(MEASURED_VARIABLE, "")
    assert measured_profile("h200-sxm") is None


def test_a_processor_is_told_by_its_model_and_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    host = found.Host("Some CPU @ 3 GHz", 8)
    monkeypatch.setattr(found, "this_host", lambda: host)
    monkeypatch.setenv(MEASURED_VARIABLE, str(tmp_path))
    assert host.device == "cpu-some-cpu-3-ghz-8"
    plain = read_profile(EXAMPLE)
    own = plain.manifest.machine.model_copy(update={"processor": host.processor, "cores": 8})
    manifest = plain.manifest.model_copy(update={"device": host.device, "machine": own})
    write_profile(tmp_path / host.device / "20260101-0000-torch-2.11.0", manifest, plain.points)
    assert measured_profile("cpu") is not None
    monkeypatch.setattr(found, "this_host", lambda: found.Host(host.processor, 4))
    assert measured_profile("cpu") is None


def test_a_folder_that_cannot_be_written_is_bad_input(tmp_path: Path):
    profile = read_profile(EXAMPLE)
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        write_profile(tmp_path / "file" / "below", profile.manifest, profile.points)
    assert folder_name({"torch": "2.11.0+cu130"}).endswith("-torch-2.11.0-cu130")


def test_a_user_without_a_home_has_no_profiles_of_their_own(monkeypatch: pytest.MonkeyPatch):
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv(MEASURED_VARIABLE)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    assert len(found.folders()) == 1
