"""What a user may say to Slurm."""

from typing import Annotated

from pydantic import Field, StrictBool, StrictInt, StrictStr

from cost_models.specs.base import Frozen

Word = Annotated[StrictStr, Field(max_length=200, pattern=r"^[A-Za-z0-9_.,:=+@%\[\]()|&*!/-]*$")]
Line = Annotated[StrictStr, Field(max_length=2000, pattern=r"^[^\x00-\x1f\x7f]*$")]


class SlurmOptions(Frozen):
    """Where and how long a job may run; empty values are left to the cluster's own defaults.

    `time` is Slurm's own notation (minutes, or days-hours:minutes:seconds). `gres` replaces the GPUs that the plan's
    nodes ask for. `exclusive` takes whole nodes (None: where they have GPUs). `setup` is one line of shell that runs
    on every node first, for example `module load cuda`. `extra` are further sbatch options, separated by blanks.
    """

    partition: Word = ""
    account: Word = ""
    qos: Word = ""
    time: Word = ""
    reservation: Word = ""
    constraint: Word = ""
    nodelist: Word = ""
    exclude: Word = ""
    gres: Word = ""
    mem: Word = ""
    cpus_per_node: Annotated[StrictInt, Field(ge=1, le=100_000)] | None = None
    exclusive: StrictBool | None = None
    setup: Line = ""
    extra: Line = ""
