"""Two thousand mutated configs: each is read, with what it assumes listed, or refused with the key named."""

import json
import math
import random
import subprocess
import sys
import time
from copy import deepcopy

import pytest

from cost_models.errors import BadInput
from cost_models.readers import FAMILIES, read_model
from cost_models.specs.counts import count_parameters
from planner.validation.oracle import oracle_rows

CONFIGS = [row.config for row in oracle_rows() if row.model_type in FAMILIES and len(row.config) > 3]
CASES = 2000
SEED = 20261201
NUMBERS = (0, -1, -4096, 1, 3, 7, 10**9, 10**30, 0.5, -0.5, 4096.0, 1e308, math.nan, math.inf, -math.inf)
OTHERS = (None, True, False, "", "4096", "relu", [], [1], ["full_attention"], {}, {"a": {"b": [None]}}, [[]])
SPELLINGS = (
    ("num_experts", "num_local_experts", "n_routed_experts"),
    ("hidden_size", "d_model", "n_embd"),
    ("num_hidden_layers", "n_layer", "num_layers"),
    ("num_attention_heads", "n_head", "num_heads"),
)
MOST_SECONDS = 0.05
PROGRAM = "from planner.cli import main; main()"


def leaves(config, path=()):
    """Paths of every key, nested ones too."""
    for key, value in config.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))


def part(config, path):
    for key in path:
        config = config[key]
    return config


def drop(config, draw):
    for path in draw.sample(sorted(leaves(config)), k=min(draw.randint(1, 3), len(config))):
        if path in set(leaves(config)):  # not dropped with the object it was in
            part(config, path[:-1]).pop(path[-1])


def retype(config, draw):
    path = draw.choice(sorted(leaves(config)))
    part(config, path[:-1])[path[-1]] = draw.choice((*NUMBERS, *OTHERS))


def scale(config, draw):
    paths = [path for path in sorted(leaves(config)) if type(part(config, path)) is int]
    if paths:
        path = draw.choice(paths)
        inner = part(config, path[:-1])
        inner[path[-1]] = draw.choice(
            (inner[path[-1]] * 2, inner[path[-1]] + 1, -inner[path[-1]], str(inner[path[-1]]))
        )


def swap(config, draw):
    config["model_type"] = draw.choice(sorted(FAMILIES))
    config.pop("architectures", None)


def spell(config, draw):
    names = draw.choice(SPELLINGS)
    for name in draw.sample(names, k=2):
        config[name] = draw.choice((8, 16, 64, 128))


def bury(config, draw):
    key = draw.choice(("text_config", "vision_config", "rope_scaling", "rope_parameters", "layer_types"))
    config[key] = draw.choice((deepcopy(config), *OTHERS, *NUMBERS))


MUTATIONS = (drop, drop, retype, retype, scale, scale, swap, spell, bury)


def mutated(number):
    draw = random.Random(SEED + number)
    config = deepcopy(dict(draw.choice(CONFIGS)))
    for mutation in draw.choices(MUTATIONS, k=draw.choice((1, 1, 1, 2, 3))):
        mutation(config, draw)
    return config


def attempt(config):
    """Processor seconds of one reading, and the refusal if it was one."""
    started = time.process_time()
    try:
        assert count_parameters(read_model(config, reader="plain")).parameters > 0
    except BadInput as error:
        return time.process_time() - started, error
    return time.process_time() - started, None


def test_a_mutated_config_is_read_or_refused_by_its_key():
    for number in range(CASES):
        config = mutated(number)
        seconds, error = attempt(config)
        if seconds > MOST_SECONDS:  # the first config of a family imports its reader
            seconds = min(attempt(config)[0] for _ in range(3))
        assert seconds < MOST_SECONDS, number
        if error is not None:
            assert error.pointer.startswith("/"), (number, error.detail)
            named = [each for each in error.pointer.split("/")[1:] if not each.isdecimal()]
            assert any(each in error.detail for each in named), (number, error.pointer, error.detail)
            assert len(error.detail) < 500, number


@pytest.mark.slow
def test_the_command_line_ends_with_0_or_2(tmp_path):
    for number in range(0, CASES, CASES // 20):
        config = mutated(number)
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(config))
        command = [sys.executable, "-c", PROGRAM, "inspect", "--model", str(path), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode in (0, 2), (number, done.stderr)
        assert "Traceback" not in done.stderr
        assert (done.stdout == "") == (done.returncode == 2)
        if done.returncode == 0:
            assert isinstance(json.loads(done.stdout)["assumed"], list)
