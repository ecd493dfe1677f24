"""Images on their way to the devices: what the processes of one node wait for each other.

Reading, decoding and copying run beside the step and are hidden for one process; several share the node's cores and
memory. t = images of the node a step * (1 - 1 / processes of the node) * IMAGE_S.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cost_models.mesh import MeshBatch
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.job import Job
from cost_models.specs.model import ModelSpec

IMAGE_S: Final = 4e-6
"""[Empirical] seconds an image: the median of 17 pairs of published ResNet-50 runs on one device and on a whole node,
less what reduction and stragglers explain (profiles/published: dle, mxnet, paddle, tensorflow; 0 to 21 us)."""


def input_seconds(model: ModelSpec, cluster: ClusterSpec, job: Job, meshes: MeshBatch) -> NDArray[np.float64]:
    """Seconds that a step waits for its images on each mesh, (B,); texts are ready long before."""
    if not model.is_vision:
        return np.zeros(meshes.size)
    readers = np.asarray(meshes.dp, dtype=float)
    sharing = np.minimum(readers, float(cluster.groups[0].devices_per_node))
    found: NDArray[np.float64] = job.global_batch / readers * (sharing - 1.0) * IMAGE_S
    return found
