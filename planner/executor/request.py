"""What a run is asked for: options a user sets, and the order that launcher and workers share."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, StrictBool, StrictInt, StrictStr, ValidationError

from cost_models.errors import BadInput
from cost_models.specs.base import Frozen
from cost_models.specs.model import Role
from cost_models.specs.strategy import Strategy, StrategyRequest, strategy_from_mapping
from planner.evaluation import Context, complete_legal
from planner.plan_file import PlanFile, resolved_request
from planner.request import PlanRequest, SearchRequest
from planner.situation import Situation, resolve

SYNTHETIC: Final = "synthetic"
MAX_STEPS: Final = 1_000_000_000
MAX_SEED: Final = 2**31 - 1

Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class RunOptions(Frozen):
    """How a plan is run. Nothing here changes its layout.

    `data`: `synthetic`, a file (.npy or .bin holds tokens, anything else text), or `package.module:function`, which
    returns an iterable of samples. `first_sample` is the global index of the first sample, where a stopped run goes
    on. `steps` counts from the first step of the first run, wherever this one goes on. `max_norm` clips the gradient
    over all ranks; None leaves it alone. `timeout_s` ends a run whose ranks wait longer for each other in a step.
    """

    steps: Annotated[StrictInt, Field(ge=1, le=MAX_STEPS)] = 10
    seed: Annotated[StrictInt, Field(ge=0, le=MAX_SEED)] = 0
    data: Annotated[StrictStr, Field(min_length=1, max_length=4096)] = SYNTHETIC
    tokenizer: Annotated[StrictStr, Field(max_length=4096)] = ""
    data_dtype: Annotated[StrictStr, Field(pattern="^uint(16|32)$")] = "uint16"
    first_sample: Annotated[StrictInt, Field(ge=0)] = 0
    factory: Annotated[StrictStr, Field(max_length=400)] = ""
    lr: Positive = 3e-4
    weight_decay: Rate = 0.01
    adam_eps: Positive = 1e-8
    max_norm: Positive | None = 1.0
    warmup_steps: Annotated[StrictInt, Field(ge=0, le=MAX_STEPS)] = 0
    moe_aux_loss: Rate = 0.0
    """Factor of the load-balancing loss of routed experts; 0: none."""
    moe_aux_scope: Annotated[StrictStr, Field(pattern="^(batch|sequence)$")] = "batch"
    """Tokens among which it balances: those of a micro-batch on one data rank, or of each sequence."""
    mtp_weight: Rate = 0.3
    """Share of the mean loss of trained multi-token-prediction layers in the loss (DeepSeek-V3 2024, section 4.2)."""
    moe_bias_rate: Rate = 0.0
    """Change a step of the correction that balances routers which have one (DeepSeek-V3: 0.001); 0: none."""
    lora_alpha: Positive | None = None
    """What adapters add is multiplied by alpha / rank; None: by 1."""
    lora_init: Annotated[StrictStr, Field(pattern="^(zero|random)$")] = "zero"
    """B of an adapter begins at zero; random ones are for comparisons, where no gradient should be zero."""
    adapters: Annotated[StrictStr, Field(max_length=4096)] = ""
    """Folder that the adapters are written into after the last step, as the peft library does."""
    adapters_from: Annotated[StrictStr, Field(max_length=4096)] = ""
    """Folder of adapters, as the peft library writes them, to begin with."""
    dropout: StrictBool | None = None
    """None: as the plan's engine.dropout says."""
    verify: StrictBool = False
    profile: StrictBool = False
    log_dir: Annotated[StrictStr, Field(max_length=4096)] = ""
    restarts: Annotated[StrictInt, Field(ge=0, le=1000)] = 0
    timeout_s: Positive | None = None
    """None: a minute, or twenty predicted steps where that is more."""
    checkpoint: Annotated[StrictStr, Field(max_length=4096)] = ""
    """Folder of checkpoints; empty: none are written."""
    every: Annotated[StrictInt, Field(ge=1, le=MAX_STEPS)] = 100
    """Steps from one checkpoint to the next; the last step has one in any case."""
    keep: Annotated[StrictInt, Field(ge=0, le=MAX_STEPS)] = 3
    """Newest checkpoints that are kept; 0: all."""
    resume: Annotated[StrictStr, Field(max_length=4096)] = ""
    """A checkpoint or a folder of them to go on from; `auto`: the last good one of `checkpoint`, if there is one."""
    weights: Annotated[StrictStr, Field(max_length=4096)] = ""
    """A Hugging Face folder (config.json, safetensors files) that a fresh start takes its weights from; with a config
    alone they come from the seed."""
    save_weights: Annotated[StrictStr, Field(max_length=4096)] = ""
    """Folder that the weights are written into after the last step, as transformers reads them."""
    save_dtype: Annotated[StrictStr, Field(pattern="^(|fp32|bf16|fp16)$")] = ""
    """Element type of what is written; empty: the one that the config states."""
    save_shard_bytes: Annotated[StrictInt, Field(ge=1)] = 5_000_000_000
    """Most bytes of one file that is written; a larger tensor has one alone."""
    epochs: Annotated[StrictInt, Field(ge=1, le=MAX_STEPS)] | None = None
    """How often the data may be gone through; None: as often as the steps need it."""

    def lora_scale(self, rank: int) -> float:
        """What adapters of a rank add is multiplied by."""
        return 1.0 if self.lora_alpha is None else self.lora_alpha / max(rank, 1)


@dataclass(frozen=True, slots=True)
class RunOrder:
    """One run, complete: the question, the legal strategy, the options."""

    situation: Situation
    strategy: Strategy
    options: RunOptions

    @property
    def world_size(self) -> int:
        """Number of processes."""
        return self.strategy.world_size

    @property
    def unit(self) -> str:
        """What a step's batch is counted in."""
        return "samples" if self.situation.model.is_vision else "tokens"

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches per data-parallel rank and step."""
        return self.strategy.num_micro_batches(self.situation.job.global_batch)

    @property
    def predictions(self) -> int:
        """Multi-token-prediction layers that are trained."""
        trained = self.situation.job.options.train_mtp
        return len(self.situation.model.expanded(Role.MTP)) if trained else 0

    def to_json(self) -> dict[str, object]:
        """A document that needs no catalog to be read again."""
        return {
            "request": resolved_request(self.situation, SearchRequest()).model_dump(mode="json"),
            "strategy": self.strategy.to_json(),
            "options": self.options.model_dump(mode="json"),
        }

    def write(self, path: Path) -> None:
        """Write the document for the workers."""
        path.write_text(json.dumps(self.to_json()) + "\n", encoding="utf-8")


def order_of_plan(plan: PlanFile, options: RunOptions) -> RunOrder:
    """The run of a plan file's best strategy; raises BadInput where the engine refuses it."""
    situation = resolve(plan.request.model, plan.request.cluster, plan.request.job)
    return order_of(situation, strategy_from_mapping(plan.best_strategy()), options)


def order_of(situation: Situation, strategy: StrategyRequest, options: RunOptions) -> RunOrder:
    """The run of a strategy as stated; raises IllegalStrategy where the engine refuses it."""
    complete = complete_legal(Context.of(situation), strategy)
    return RunOrder(situation, complete, options)


def order_of_document(document: Mapping[str, Any]) -> RunOrder:
    """The order that `to_json` wrote; raises BadInput for what is none."""
    try:
        request = PlanRequest.model_validate(document["request"])
        options = RunOptions.model_validate(document["options"])
        strategy = strategy_from_mapping(document["strategy"])
    except (KeyError, TypeError, ValidationError) as error:
        what = " ".join(str(error).split())[:200]
        raise BadInput(f"this is no run order ({what}); write one with --dry-run -o") from None
    return order_of(resolve(request.model, request.cluster, request.job), strategy, options)


def read_order(path: Path) -> RunOrder:
    """The order that `write` wrote; raises BadInput for any other file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        what = " ".join(str(error).split())[:200]
        raise BadInput(f"{str(path)[:200]!r} is no run order ({what}); write it with --dry-run -o") from None
    return order_of_document(document)
