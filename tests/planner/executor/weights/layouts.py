"""Tiny models of the library through files into layouts and back: how far everything is from the library's own."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from tests.planner.executor.model.configs import Config
from tests.planner.executor.model.library import library_model, load_model_of
from tests.planner.executor.ranks import run_ranks
from tests.planner.executor.weights.ranks_at_work import SEQUENCE, Done, Work, first_steps

SAMPLES = 8


@dataclass(frozen=True, slots=True)
class Case:
    """A model, its layout, its engine, what its job trains."""

    config: Config
    strategy: str
    engine: str = "torch"
    trainable: str = "all"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Largest differences from the library's loss and logits, and of the written folder's logits from them; the
    largest share of the folder's bytes that a rank read, and all ranks' together."""

    loss: float
    logits: float
    written: float
    most_read: float
    all_read: float

    @property
    def is_equal(self) -> bool:
        """Within 1e-5 in fp32; what is written is what was read."""
        return self.loss < 1e-5 and self.logits < 1e-5 and self.written == 0.0


def through(cases: Mapping[str, Case], world: int, folder: Path) -> dict[str, Outcome]:
    """Save the library's models, load them on so many ranks, take the first step, write them, load them again."""
    libraries, works = {}, []
    for name, case in cases.items():
        libraries[name] = library_model(case.config, seed=3)
        source, target = folder / name / "source", folder / name / "written"
        libraries[name].save_pretrained(source, max_shard_size="100KB")
        torch.manual_seed(0)
        ids, targets = torch.randint(3, case.config["vocab_size"], (2, SAMPLES, SEQUENCE)).unbind(0)
        options = {"save_weights": str(target), "save_shard_bytes": 70_000}
        job = {"options": {"job.trainable": case.trainable}}
        works.append(Work(source, case.strategy, ids, targets, case.engine, options, job))
    found = run_ranks(first_steps, world, works, timeout_s=300.0)
    ranks = zip(*found, strict=True)
    return {
        name: _outcome(libraries[name], work, done)
        for (name, work, done) in zip(cases, works, ranks, strict=True)
    }


def _outcome(library: nn.Module, work: Work, done: tuple[Done, ...]) -> Outcome:
    with torch.no_grad():
        expected = library(work.ids).logits
        total = nn.functional.cross_entropy(expected.flatten(0, 1), work.targets.flatten())
        again = load_model_of(Path(work.options["save_weights"]))(work.ids).logits
    by_rank = {each.data_rank: each.logits for each in done if each.logits is not None}
    logits = torch.cat([by_rank[rank] for rank in sorted(by_rank)])[..., : expected.shape[-1]]
    loaded = done[0].loaded
    assert loaded is not None
    return Outcome(
        max(abs(each.loss - float(total)) for each in done),
        float((logits - expected).abs().max()),
        float((again - expected).abs().max()),
        max(loaded.read_bytes) / loaded.num_bytes,
        sum(loaded.read_bytes) / loaded.num_bytes,
    )
