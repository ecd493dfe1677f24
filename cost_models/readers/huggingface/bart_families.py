"""BART and its kin: defaults of their configuration classes, and what differs between them."""

from collections.abc import Mapping
from dataclasses import dataclass

from cost_models.readers.huggingface.config import Default, options, sizes

_BART: Mapping[str, Default] = {
    **sizes(
        vocab_size=50265,
        d_model=1024,
        encoder_layers=12,
        decoder_layers=12,
        encoder_attention_heads=16,
        decoder_attention_heads=16,
        encoder_ffn_dim=4096,
        decoder_ffn_dim=4096,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        is_decoder=False,
    ),
    **options(activation_function="gelu", dropout=0.1, attention_dropout=0.0, scale_embedding=False),
}
DEFAULTS: Mapping[str, Mapping[str, Default]] = {
    "bart": _BART,
    "mbart": _BART,
    "plbart": {
        **_BART,
        **sizes(
            vocab_size=50005,
            d_model=768,
            encoder_layers=6,
            decoder_layers=6,
            encoder_attention_heads=12,
            decoder_attention_heads=12,
            encoder_ffn_dim=3072,
            decoder_ffn_dim=3072,
        ),
        **options(attention_dropout=0.1, scale_embedding=True),
    },
    "pegasus": _BART,
    "marian": {
        **_BART,
        **sizes(vocab_size=58101, decoder_vocab_size=None, share_encoder_decoder_embeddings=True),
    },
    "blenderbot-small": {
        **_BART,
        **sizes(
            d_model=512,
            encoder_layers=8,
            decoder_layers=8,
            encoder_ffn_dim=2048,
            decoder_ffn_dim=2048,
            max_position_embeddings=512,
        ),
    },
    "blenderbot": {
        **_BART,
        **sizes(
            vocab_size=8008,
            d_model=2560,
            encoder_layers=2,
            decoder_layers=24,
            encoder_attention_heads=32,
            decoder_attention_heads=32,
            encoder_ffn_dim=10240,
            decoder_ffn_dim=10240,
            max_position_embeddings=128,
        ),
    },
    "m2m_100": {
        **_BART,
        **sizes(vocab_size=128112),
        **options(activation_function="relu", attention_dropout=0.1, scale_embedding=True),
    },
}
"""BartConfig and its kin in transformers 5.24; a null decoder_vocab_size means vocab_size."""

NORM_EPS = 1e-5
"""Fixed in the classes."""


@dataclass(frozen=True, slots=True)
class Family:
    """What differs: extra rows of the position table, norms before or after, norms of embedding and stack."""

    position_rows: int | None
    placement_pre: bool
    embedding_norm: bool
    learned: bool = True


FAMILIES: Mapping[str, Family] = {
    "bart": Family(2, placement_pre=False, embedding_norm=True),
    "mbart": Family(2, placement_pre=True, embedding_norm=True),
    "plbart": Family(2, placement_pre=False, embedding_norm=True),
    "pegasus": Family(0, placement_pre=True, embedding_norm=False, learned=False),
    "marian": Family(0, placement_pre=False, embedding_norm=False, learned=False),
    "blenderbot-small": Family(0, placement_pre=False, embedding_norm=True),
    "blenderbot": Family(0, placement_pre=True, embedding_norm=False),
    "m2m_100": Family(None, placement_pre=True, embedding_norm=False, learned=False),
}
"""Position tables have two rows more in BART, mBART and PLBart; M2M-100's are computed, Pegasus' and Marian's
are computed too but stored as parameters. Stacks with norms before have a final norm."""
