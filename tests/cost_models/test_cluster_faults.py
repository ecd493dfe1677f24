"""A cluster file that is wrong is told where, and not what only follows from that."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from cost_models.errors import InvalidCluster
from cost_models.profiles import cluster_from_spec

GOOD: dict[str, Any] = {
    "name": "ours",
    "groups": [{"device": "a100-sxm-80gb", "nodes": 2, "devices_per_node": 8}],
    "tiers": [
        {"name": "nvlink", "bytes_per_s": 300e9, "latency_s": 2e-6},
        {"name": "ib", "bytes_per_s": 25e9, "latency_s": 5e-6},
    ],
}


def _drop(spec: dict[str, Any], key: str) -> Any:
    return spec["groups"][0].pop(key)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: s["groups"][0].update(nodes=1.5), r"groups\.0\.nodes: .*integer, not 1\.5; correct it"),
        (lambda s: s["groups"][0].update(nodes="2"), r"groups\.0\.nodes: .*integer, not '2'; correct it"),
        (lambda s: _drop(s, "nodes"), r"^cluster: groups\.0\.nodes is missing; write name"),
        (lambda s: _drop(s, "device"), r"^cluster: groups\.0\.device is missing; write name"),
        (lambda s: s["groups"][0].update(device=3), r"groups\.0\.device is 3; write .*name in quotes"),
        (lambda s: s.update(groups=s["groups"][0]), r"^cluster: groups is a table; write a list"),
        (
            lambda s: s.update(group=s.pop("groups")),
            r"^cluster: unknown key group \(did you mean groups\?\); groups is missing; write name",
        ),
        (
            lambda s: s["tiers"][1].update(latency=s["tiers"][1].pop("latency_s")),
            r"^cluster: unknown key tiers\.1\.latency \(did you mean latency_s\?\); tiers\.1\.latency_s is missing",
        ),
        (lambda s: s["tiers"][0].update(colour="red"), r"^cluster: unknown key tiers\.0\.colour; remove it"),
        (lambda s: s["tiers"][0].update(oversubscription=0.5), r"greater than or equal to 1, not 0\.5"),
    ],
)
def test_the_place_that_is_wrong_is_named_alone(
    change: Callable[[dict[str, Any]], object], sentence: str
) -> None:
    spec = copy.deepcopy(GOOD)
    change(spec)
    with pytest.raises(InvalidCluster, match=sentence) as caught:
        cluster_from_spec(spec)
    assert "devices_per_domain" not in caught.value.detail


def test_the_description_itself_is_whole() -> None:
    assert cluster_from_spec(GOOD).num_devices == 16
