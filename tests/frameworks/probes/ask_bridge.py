"""Runs in an environment with Megatron-Bridge 0.6: overrides of a recipe as JSON lines in, verdicts out.

A hand-built container of a dense or mixed GPT takes the overrides by Bridge's own function and is then validated by
Bridge's own. Much around it is not there (Transformer Engine, other model families, data builders) and is stood in for
by empty modules: names of fields and `ConfigContainer.validate` are asked, nothing about building a model.
"""

import contextlib
import importlib.abc
import importlib.machinery
import io
import json
import sys
import types
import typing
from pathlib import Path

import torch
import typing_extensions

typing.override = typing_extensions.override  # the package declares Python 3.12; this is its only need of it


class Properties:
    """What validation asks of a Hopper device."""

    major, minor, multi_processor_count, name, total_memory = 9, 0, 132, "target", 80 << 30


torch.cuda.get_device_capability = lambda *_: (9, 0)
torch.cuda.get_device_properties = lambda *_: Properties()

noise = io.StringIO()
REAL_MODELS = ("gpt_provider", "common", "gpt", "model_provider", "transformer_config")
ABSENT = ("transformer_engine", "comet_ml", "mlflow", "wandb", "apex", "nvidia_resiliency_ext", "webdataset")
ABSENT += (
    "timm",
    "mistral_common",
    "qwen_vl_utils",
    "causal_conv1d",
    "mamba_ssm",
    "flash_attn",
    "modelopt",
    "fla",
)


class Empty(types.ModuleType):
    """A module whose every name is an empty class."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *_, **__: None})


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what is not there, and Bridge's families that want another transformers."""

    def find_spec(self, name, path, target=None):
        """An empty module for what is stood in for."""
        parts = name.split(".")
        family = name.startswith("megatron.bridge.models.") and parts[3] not in REAL_MODELS
        data = name.startswith(
            ("megatron.bridge.data.builders.", "megatron.bridge.data.energon", "megatron.energon")
        )
        if family or data or parts[0] in ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        """The module itself."""
        return Empty(spec.name)

    def exec_module(self, module):
        """Nothing is run."""


with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
    # Megatron-Core comes first, so that it finds Transformer Engine absent.
    import megatron
    import megatron.core.extensions.transformer_engine
    import megatron.core.optimizer
    import megatron.core.utils
    import megatron.training.arguments
    import megatron.training.models

    megatron.core.utils.get_te_version()
    sys.meta_path.insert(0, StandIns())
    bridge = next(Path(root) / "bridge" for root in megatron.__path__ if (Path(root) / "bridge").is_dir())
    for name, folder in (("megatron.bridge", bridge), ("megatron.bridge.models", bridge / "models")):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [str(folder)]
    from megatron.bridge.models.gpt_provider import GPTModelProvider

    sys.modules["megatron.bridge.models"].GPTModelProvider = GPTModelProvider
    sys.modules["megatron.bridge.models"].T5ModelProvider = type("T5ModelProvider", (), {})
    from megatron.bridge.training import config as bridge_config
    from megatron.bridge.training.comm_overlap import CommOverlapConfig
    from megatron.bridge.training.mixed_precision import get_mixed_precision_config
    from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides


def container(case):
    """A recipe's configuration: sizes of the model, everything else Bridge's defaults."""
    return bridge_config.ConfigContainer(
        train=bridge_config.TrainingConfig(
            train_iters=10, micro_batch_size=1, global_batch_size=case["world"]
        ),
        model=GPTModelProvider(
            **case["model"], bf16=True, params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16
        ),
        optimizer=bridge_config.OptimizerConfig(lr=1e-4, min_lr=1e-5),
        scheduler=bridge_config.SchedulerConfig(lr_decay_style="cosine", lr_warmup_iters=1),
        dataset=bridge_config.MockGPTDatasetConfig(
            random_seed=1,
            seq_length=case["model"]["seq_length"],
            reset_position_ids=False,
            reset_attention_mask=False,
            eod_mask_loss=False,
            dataloader_type="single",
        ),
        logger=bridge_config.LoggerConfig(),
        tokenizer=bridge_config.TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size=1000),
        checkpoint=bridge_config.CheckpointConfig(),
        comm_overlap=CommOverlapConfig(tp_comm_overlap=False),
        mixed_precision=None,
    )


def verdict(case):
    """The overrides taken, the precision found by its name, the container validated."""
    bridge_config.get_world_size_safe = lambda: case["world"]
    try:
        with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
            given = container(case)
            words = [word for word in case["words"] if not word.startswith("mixed_precision=")]
            names = [word.partition("=")[2] for word in case["words"] if word.startswith("mixed_precision=")]
            given = process_config_with_overrides(given, cli_overrides=words) or given
            given.validation.eval_global_batch_size = given.train.global_batch_size
            given.validation.eval_micro_batch_size = given.train.micro_batch_size
            for name in names:
                given.mixed_precision = get_mixed_precision_config(name)
            given.validate()
            return {
                "ok": True,
                "dp": given.data_parallel_size,
                "tp": given.model.tensor_model_parallel_size,
                "batch": [given.train.global_batch_size, given.train.micro_batch_size],
            }
    except BaseException as error:
        return {"ok": False, "error": f"{type(error).__name__}: {error}"[:2000]}


for line in sys.stdin:
    print(json.dumps(verdict(json.loads(line))), flush=True)
