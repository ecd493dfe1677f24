"""What a user may say to Kubernetes."""

from typing import Annotated, Literal

from pydantic import Field, StrictInt, StrictStr

from cost_models.specs.base import Frozen

Label = Annotated[StrictStr, Field(max_length=253, pattern=r"^[A-Za-z0-9]?[A-Za-z0-9._/-]*$")]
Image = Annotated[StrictStr, Field(max_length=500, pattern=r"^[A-Za-z0-9._:/@-]+$")]
Quantity = Annotated[StrictStr, Field(max_length=32, pattern=r"^[0-9]*[0-9.]*[A-Za-z]{0,2}$")]


class KubernetesOptions(Frozen):
    """Which object is submitted where, and what a node's pod asks for.

    `kind` is `jobset` or `trainjob` (with `runtime`, a ClusterTrainingRuntime whose job is called `node`). `claim` is
    a PersistentVolumeClaim that all nodes mount at /run-dir, for checkpoints. `gpu_resource` is the name under which
    the cluster counts GPUs. `topology` is the node label inside whose domains all nodes of the job must lie.
    `shared_memory` is the size of /dev/shm, which NCCL and data loaders use. An empty `context` is the current one.
    """

    image: Image = "parallelism-planner:torch"
    kind: Literal["jobset", "trainjob"] = "jobset"
    namespace: Label = "default"
    context: Label = ""
    runtime: Label = "torch-distributed"
    service_account: Label = ""
    queue: Label = ""
    claim: Label = ""
    topology: Label = ""
    gpu_resource: Label = "nvidia.com/gpu"
    cpu: Quantity = ""
    memory: Quantity = ""
    shared_memory: Quantity = "16Gi"
    keep_s: Annotated[StrictInt, Field(ge=0)] = 86_400
    """Seconds that a finished JobSet is kept."""
