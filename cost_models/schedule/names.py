"""Names of the pipeline schedules of the contract, and how each of them lays stages on ranks."""

from enum import StrEnum


class ScheduleName(StrEnum):
    """A pipeline schedule, spelt as on the command line."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    ZB_H1 = "zb-h1"
    ZB_V = "zb-v"
    DUALPIPE = "dualpipe"
    DUALPIPE_V = "dualpipe-v"

    @property
    def is_modelled(self) -> bool:
        """Whether the cost model prices the schedule: all but dualpipe, whose ranks hold copies of two stages."""
        return self is not ScheduleName.DUALPIPE

    @property
    def splits_backward(self) -> bool:
        """Whether its lists hold input gradients and weight gradients as operations of their own."""
        return self in (
            ScheduleName.ZB_H1,
            ScheduleName.ZB_V,
            ScheduleName.DUALPIPE,
            ScheduleName.DUALPIPE_V,
        )

    @property
    def has_two_chunks(self) -> bool:
        """Whether every rank holds exactly two chunks: two stages of a V, or one of each direction."""
        return self in (ScheduleName.ZB_V, ScheduleName.DUALPIPE, ScheduleName.DUALPIPE_V)
