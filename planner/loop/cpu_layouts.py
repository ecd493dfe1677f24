"""Layouts of gloo processes: one, then every way of dividing a step over two and four, cheapest launches first."""

from typing import Final

from planner.loop.cases import Layout, LoopModel

LLAMA: Final = LoopModel(
    name="llama",
    config={
        "model_type": "llama",
        "hidden_size": 512,
        "num_hidden_layers": 6,
        "intermediate_size": 1536,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 8192,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
    },
    seq_len=256,
    small={
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 256,
    },
    small_seq_len=32,
)
"""28 million parameters: products large enough for a core's full rate, steps short enough for a dozen of them."""

CPU_LAYOUTS: Final = (
    Layout("mbs=2", 1, "torch", 4, "single", LLAMA),
    Layout("mbs=4", 1, "torch", 8, "single", LLAMA),
    Layout("mbs=4,recompute=full", 1, "torch", 8, "single", LLAMA),
    Layout("mbs=2,recompute=selective:mlp", 1, "torch", 4, "single", LLAMA),
    Layout("dp=2,mbs=2", 2, "ddp", 8, "ddp", LLAMA),
    Layout("dp=2,mbs=4,recompute=full:3", 2, "ddp", 8, "ddp", LLAMA),
    Layout("dp=2,mbs=2,zero=1", 2, "torch", 8, "zero1", LLAMA),
    Layout("dp=2,mbs=2,zero=2", 2, "fsdp2", 8, "fsdp", LLAMA),
    Layout("dp=2,mbs=2,zero=3", 2, "fsdp2", 8, "fsdp", LLAMA),
    Layout("tp=2,mbs=2", 2, "torch", 4, "tp", LLAMA),
    Layout("tp=2,mbs=4", 2, "torch", 8, "tp", LLAMA),
    Layout("pp=2,mbs=2,stages=3+3", 2, "torch", 8, "pp", LLAMA),
    Layout("pp=2,mbs=1,schedule=gpipe,stages=4+2", 2, "torch", 4, "pp", LLAMA),
    Layout("pp=2,dp=2,mbs=1,zero=1,stages=3+3", 4, "torch", 8, "four", LLAMA),
)
