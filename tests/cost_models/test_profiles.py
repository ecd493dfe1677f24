"""The catalog: every entry loads, and the figures that decide plans are what the vendors print."""

import hashlib
import json
import shutil
import time
from pathlib import Path

import pytest

from cost_models import profiles
from cost_models.errors import InvalidCluster, InvalidModel
from cost_models.specs.device import DeviceSpec

GIB = 1024**3


@pytest.fixture(scope="module")
def devices():
    return {name: profiles.load_device(name) for name in profiles.list_devices()}


def figures(device: DeviceSpec):
    """Every figure of a device with its field's name."""
    for field in DeviceSpec.model_fields:
        value = getattr(device, field)
        if hasattr(value, "kind"):
            yield field, value
    for precision, figure in device.peak_flops.items():
        yield f"peak_flops.{precision}", figure


def test_every_device_of_the_contract_is_there():
    wanted = (
        "v100-sxm2-16gb v100-sxm2-32gb v100-sxm3-32gb a100-sxm-40gb a100-sxm-80gb a100-pcie-40gb "
        "a100-pcie-80gb a800-sxm-80gb h100-sxm-80gb h100-pcie h800-sxm h200-sxm b200 b300 gb200 gb300 "
        "l4 l40s a10g rtx-4090 mi250x mi300x mi325x mi355x cpu"
    )
    assert set(wanted.split()) == set(profiles.list_devices())


def test_names_are_the_file_names_and_sources_are_short_sentences(devices):
    for name, device in devices.items():
        assert device.name == name
        for field, figure in figures(device):
            assert 5 < len(figure.source) < 200, (name, field)


def test_measured_stands_only_beside_a_reading_of_the_device(devices):
    for name, device in devices.items():
        for field, figure in figures(device):
            if figure.kind == "measured":
                assert field in {"capacity_bytes", "compute_units"}, (name, field)
                assert "that PyTorch prints for" in figure.source, (name, field)
            assert figure.kind != "fitted", (name, field)


@pytest.mark.parametrize(
    ("name", "precision", "flops"),
    [
        ("v100-sxm2-32gb", "fp16", 125e12),
        ("v100-sxm2-32gb", "fp32", 15.7e12),
        ("a100-sxm-80gb", "bf16", 312e12),  # 624 with sparsity
        ("a100-pcie-80gb", "bf16", 312e12),
        ("a100-sxm-80gb", "tf32", 156e12),
        ("h100-sxm-80gb", "bf16", 989.4e12),  # 1,979 with sparsity
        ("h100-sxm-80gb", "fp8", 1978.9e12),  # 3,958 with sparsity
        ("h100-pcie", "bf16", 756e12),
        ("h200-sxm", "fp8", 1978.9e12),
        ("b200", "bf16", 2.25e15),  # 4.5 with sparsity
        ("b200", "nvfp4", 9e15),
        ("b300", "fp8", 4.5e15),
        ("b300", "nvfp4", 14e15),  # 18 with sparsity: not its double
        ("gb200", "bf16", 2.5e15),
        ("gb200", "fp8", 5e15),
        ("gb300", "nvfp4", 15e15),
        ("l4", "bf16", 121e12),
        ("l40s", "bf16", 362.05e12),
        ("a10g", "bf16", 70e12),
        ("rtx-4090", "bf16", 165.2e12),
        ("mi250x", "bf16", 191.5e12),  # 383 a package of two GCDs
        ("mi300x", "bf16", 1307.4e12),
        ("mi355x", "fp8", 5033.2e12),
    ],
)
def test_peaks_are_dense(devices, name, precision, flops):
    assert devices[name].peak(precision) == pytest.approx(flops, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("v100-sxm2-16gb", 15.78),
        ("v100-sxm2-32gb", 31.74),
        ("a100-sxm-40gb", 39.59),
        ("a100-sxm-80gb", 79.15),
        ("h100-sxm-80gb", 79.18),
        ("h200-sxm", 139.80),
        ("b200", 178.35),
        ("gb200", 184.31),
        ("b300", 267.69),
        ("gb300", 276.50),
        ("mi300x", 191.98),
        ("mi325x", 255.98),
        ("mi355x", 287.98),
        ("mi250x", 63.98),
    ],
)
def test_capacity_is_what_the_driver_reports(devices, name, gib):
    assert devices[name].capacity_bytes.value / GIB == pytest.approx(gib, abs=0.006)


def test_precisions_follow_the_architecture(devices):
    assert not any(devices["v100-sxm2-32gb"].supports(p) for p in ("bf16", "tf32", "fp8"))
    for name, device in devices.items():
        assert device.supports("fp32"), name
        assert device.supports("nvfp4") == (device.architecture == "blackwell"), name
        assert device.supports("fp8") == (
            device.architecture in {"ada", "hopper", "blackwell", "cdna3", "cdna4"}
        ), name
        assert device.supports("mxfp8") == (device.architecture in {"blackwell", "cdna4"}), name


def test_lower_precision_is_never_slower(devices):
    order = ("fp32", "tf32", "bf16", "fp8", "nvfp4")
    for name, device in devices.items():
        peaks = [device.peak(p) for p in order if device.supports(p)]
        if name != "cpu":  # a core converts bf16 in software
            assert peaks == sorted(peaks), name


def test_bandwidths_are_decimal(devices):
    expected = {"v100-sxm2-32gb": 0.9, "a100-sxm-80gb": 2.039, "h100-sxm-80gb": 3.35, "h200-sxm": 4.8}
    for name, terabytes in expected.items():
        assert devices[name].memory_bytes_per_s.value == pytest.approx(terabytes * 1e12)


def test_every_preset_of_the_contract_is_there():
    wanted = (
        "dgx-1 dgx-1-16 dgx-2 dgx-a100 dgx-a100-40 dgx-h100 dgx-h800 dgx-h200 dgx-b200 dgx-b300 gb200-nvl72 "
        "gb300-nvl72 hgx-a800 a100-pcie h100-pcie l40s l4 a10g rtx-4090 mi250x mi300x mi325x mi355x cpu"
    )
    assert set(wanted.split()) == set(profiles.list_clusters())


@pytest.mark.parametrize(
    ("name", "inner_gb_per_s", "outer_gb_per_s", "shared_by", "per_node"),
    [
        ("dgx-1", 150, 12.5, 2, 8),  # four 100 Gb/s ports for eight GPUs
        ("dgx-2", 150, 12.5, 2, 16),
        ("dgx-a100", 300, 25, 1, 8),  # 600 GB/s both ways; eight 200 Gb/s ports
        ("dgx-h100", 450, 50, 1, 8),
        ("dgx-h800", 200, 50, 1, 8),  # 400 GB/s both ways
        ("hgx-a800", 200, 25, 1, 8),
        ("dgx-b200", 900, 50, 1, 8),
        ("dgx-b300", 900, 100, 1, 8),
        ("gb200-nvl72", 900, 50, 1, 4),
        ("mi300x", 448, 50, 1, 8),  # seven links of 64 GB/s
    ],
)
def test_links_are_one_way_per_device(name, inner_gb_per_s, outer_gb_per_s, shared_by, per_node):
    cluster = profiles.load_preset(name)
    inner, outer = cluster.tiers[0], cluster.tiers[-1]
    assert inner.bytes_per_s.value == inner_gb_per_s * 1e9
    assert outer.bytes_per_s.value == outer_gb_per_s * 1e9
    assert outer.shared_by == shared_by
    assert cluster.groups[0].devices_per_node == per_node


@pytest.mark.parametrize("name", profiles.list_clusters())
def test_every_preset_loads_at_any_size_quickly(name):
    started = time.perf_counter()
    cluster = profiles.load_preset(name)
    assert time.perf_counter() - started < 0.1  # about 1 ms on an idle core
    assert cluster.is_homogeneous
    assert cluster.name == name
    for devices in (1, 7, 12, 256):
        sized = profiles.load_preset(name, devices)
        assert sized.num_devices == devices
        if name != "cpu":
            assert cluster.with_devices(devices) == sized
    if name != "cpu":
        assert cluster.groups[0].source


@pytest.mark.parametrize(
    ("text", "devices", "domains"),
    [
        ("gb200-nvl72", 72, [72, 72]),
        ("gb200-nvl72:256", 256, [64, 256]),
        ("gb200-nvl72:144", 144, [72, 144]),
        ("gb300-nvl72:36", 36, [72, 72]),
        ("dgx-h100", 8, [8, 8]),
        ("dgx-h100:64", 64, [8, 64]),
        ("dgx-h100:7", 7, [8, 8]),
        ("dgx-h100:12", 12, [8, 12]),
    ],
)
def test_preset_with_a_number(text, devices, domains):
    cluster = profiles.load_cluster(text)
    assert cluster.num_devices == devices
    assert [tier.devices_per_domain for tier in cluster.tiers] == domains


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dgx-h100:0", "a cluster of 0 devices; give at least 1"),
        ("dgx-h100:-8", "a cluster of -8 devices"),
        ("dgx-h100:99999999", "give at most 10,000,000"),
        ("dgx-h100:many", "is no number of devices; write a whole number, as in dgx-h100:64"),
        ("dgx-h100:", "is no number of devices"),
        ("dgx-h100:1.5", "is no number of devices"),
        ("dgx-h100:" + "9" * 5000, "is no number of devices"),
        ("dgx_h100", "did you mean dgx-h100"),
        ("zzzzzz", "see `planner catalog clusters`"),
        ("", "is not one of the"),
        ("cluster.yaml", "neither .toml nor .json"),
        ("missing/cluster.toml", "cannot be read"),
    ],
)
def test_refuses_what_names_no_cluster(text, message):
    with pytest.raises(InvalidCluster, match=message):
        profiles.load_cluster(text)


@pytest.mark.parametrize("name", ["../devices/cpu", "/etc/hostname", "dgx-h100.toml", "dgx-h100\0", "."])
def test_names_reach_no_file_outside_the_catalog(name):
    with pytest.raises(InvalidCluster, match="not one of"):
        profiles.load_preset(name, 8)
    with pytest.raises(InvalidCluster, match="not one of"):
        profiles.load_device(name)
    with pytest.raises(InvalidModel, match="not one of"):
        profiles.model_config(name)


def test_unknown_names_carry_the_allowed_ones():
    with pytest.raises(InvalidCluster, match="did you mean h100-sxm-80gb") as caught:
        profiles.load_device("h100-smx-80gb")
    assert caught.value.allowed == profiles.list_devices()


OWN_TOML = """
name = "ours"
[[groups]]
device = "a100-sxm-80gb"
nodes = 3
devices_per_node = 4
[[tiers]]
name = "nvlink"
devices_per_domain = 4
bytes_per_s = 300e9
latency_s = 2e-6
[[tiers]]
name = "ethernet"
bytes_per_s = 12.5e9
latency_s = 20e-6
shared_by = 4
"""


def test_a_users_file_in_toml_and_in_json_is_the_same_cluster(tmp_path: Path):
    toml, as_json = tmp_path / "ours.toml", tmp_path / "ours.json"
    toml.write_text(OWN_TOML)
    cluster = profiles.load_cluster(str(toml))
    assert cluster.num_devices == 12
    assert cluster.device == profiles.load_device("a100-sxm-80gb")
    assert cluster.tiers[1].bytes_per_s.source == "given by the user"
    as_json.write_text(cluster.model_dump_json())
    assert profiles.load_cluster(str(as_json)) == cluster


@pytest.mark.parametrize(
    ("suffix", "text", "message"),
    [
        (".toml", OWN_TOML + "\ncolour = 'red'\n", r"unknown key tiers\.1\.colour"),
        (".toml", OWN_TOML.replace("300e9", "nan"), "bytes_per_s"),
        (".toml", OWN_TOML.replace("300e9", "'fast'"), "bytes_per_s"),
        (".toml", OWN_TOML.replace("nodes = 3", "nodes = 0"), "give at least 1"),
        (".toml", OWN_TOML.replace("a100-sxm-80gb", "a100-sxm"), "did you mean a100-sxm-"),
        (".toml", "name = ", "does not parse"),
        (".json", "{", "does not parse"),
        (".json", "[1]", "holds a list"),
        (".json", "[" * 100_000, "does not parse"),
        (".json", "{}", "cluster: name and groups and tiers are missing; write name = "),
    ],
)
def test_refuses_broken_files_by_what_is_wrong(tmp_path: Path, suffix, text, message):
    path = tmp_path / f"ours{suffix}"
    path.write_text(text)
    with pytest.raises(InvalidCluster, match=message):
        profiles.load_cluster(str(path))


def test_refusals_point_at_the_wrong_key():
    raw = profiles.load_preset("dgx-h100").model_dump()
    del raw["groups"][0]["device"]["title"]
    with pytest.raises(InvalidCluster, match=r"groups\.0\.device\.title is missing") as caught:
        profiles.cluster_from_spec(raw)
    assert caught.value.pointer == "/cluster/groups/0/device/title"


def test_refuses_a_file_that_is_not_text(tmp_path: Path):
    path = tmp_path / "ours.json"
    path.write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(InvalidCluster, match="does not parse"):
        profiles.load_cluster(str(path))


def test_the_host_is_divided_among_its_processes():
    whole, quarter = profiles.host_device(1), profiles.host_device(4)
    for field in ("capacity_bytes", "memory_bytes_per_s", "vector_flops", "compute_units"):
        assert getattr(quarter, field).value == pytest.approx(getattr(whole, field).value / 4), field
    assert quarter.peak("fp32") == pytest.approx(whole.peak("fp32") / 4)
    assert profiles.load_cluster("cpu:4").device == quarter
    many = profiles.load_cluster("cpu:512").device
    assert many.context_bytes.value < many.capacity_bytes.value


def test_catalog_models_are_json_objects_with_a_family_and_a_source():
    sources = (profiles.profiles_root() / "models" / "sources.tsv").read_text().splitlines()
    names = profiles.list_models()
    assert sorted(line.split("\t")[0] for line in sources[1:]) == sorted(names)
    assert {len(line.split("\t")) for line in sources} == {4}
    for name in names:
        config = profiles.model_config(name)
        assert config["model_type"], name
        json.dumps(config, allow_nan=False)
    with pytest.raises(InvalidModel, match=r"did you mean llama-3\.1-70b"):
        profiles.model_config("llama-3.1-7b0")


@pytest.mark.parametrize(("name", "billions"), [("gpt3-175b", 174.6), ("megatron-1t", 1008.0)])
def test_gpt_models_have_the_size_of_their_paper(name, billions):
    # Narayanan et al. (SC 2021), equation 2: P = 12 l h^2 (1 + 13 / 12h + (V + s) / 12lh)
    config = profiles.model_config(name)
    layers, hidden = config["n_layer"], config["n_embd"]
    rest = 13 / (12 * hidden) + (config["vocab_size"] + config["n_positions"]) / (12 * layers * hidden)
    assert 12 * layers * hidden**2 * (1 + rest) / 1e9 == pytest.approx(billions, abs=0.05)


def test_hash_covers_every_data_file_and_follows_the_root(tmp_path: Path, monkeypatch):
    original = profiles.profiles_sha256()
    assert len(original) == hashlib.sha256().digest_size * 2
    copy = tmp_path / "profiles"
    shutil.copytree(profiles.profiles_root(), copy)
    monkeypatch.setenv(profiles.ROOT_VARIABLE, str(copy))
    assert profiles.profiles_root() == copy
    assert profiles.profiles_sha256() == original
    other = tmp_path / "changed"
    shutil.copytree(copy, other)
    with (other / "devices" / "l4.toml").open("a") as file:
        file.write("# changed\n")
    monkeypatch.setenv(profiles.ROOT_VARIABLE, str(other))
    assert profiles.profiles_sha256() != original
