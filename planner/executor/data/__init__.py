"""Samples by global index, so that every layout sees the same global batch and a run can go on where it stopped.

Sample g of a run belongs to step g // global_batch; data-parallel rank r of D takes the r-th of D equal, contiguous
parts of each global batch. All tensor- and pipeline-parallel ranks of one data-parallel rank read the same samples.
The position of a run is one number, the global index of its next sample.
"""

from planner.executor.data.base import Batch, Sampler, Source
from planner.executor.data.choose import check_file, data_violations, open_source

__all__ = ["Batch", "Sampler", "Source", "check_file", "data_violations", "open_source"]
