"""Random number generators of a rank: seeded apart for every part of the data, kept in checkpoints."""

import hashlib

import torch
from torch import Tensor

from planner.executor.mesh import Meshes

RANDOM = "random"


def seed_generators(seed: int, step: int, meshes: Meshes) -> None:
    """Start this rank's generators anew: alike over tensor-parallel ranks, which drop the same elements."""
    text = f"{seed}/{step}/{meshes.at.pp}/{meshes.data_rank}"
    torch.manual_seed(int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little"))


def random_states(meshes: Meshes) -> dict[str, Tensor]:
    """The states by a name that says whose they are: (pipeline rank, data rank) and how many there are."""
    whose = f"pp{meshes.at.pp}of{meshes.pp.size()}-data{meshes.data_rank}of{meshes.data_size}"
    found = {f"{RANDOM}/{whose}/cpu": torch.get_rng_state()}
    if meshes.device_type == "cuda":
        found[f"{RANDOM}/{whose}/cuda"] = torch.cuda.get_rng_state()
    return found


def set_random_state(key: str, state: Tensor) -> None:
    """Go on with a state that `random_states` gave."""
    if key.endswith("/cuda"):
        torch.cuda.set_rng_state(state)
    else:
        torch.set_rng_state(state)
