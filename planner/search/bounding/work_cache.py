"""Kernel and message costs of the points that families' rows see, priced once per kind and kept."""

from dataclasses import dataclass, field, replace

import numpy as np

from cost_models.mesh import Int, MeshBatch, MeshKey
from cost_models.pricing import Pricer
from cost_models.row_work import RowWork

POINT_AXES = ("tp", "cp", "ep", "etp", "sp", "mbs")
"""All that a layer sees of a mesh, beside where its groups are placed."""


@dataclass(slots=True)
class WorkCache:
    """RowWork by kind of mesh; points are priced when they are first asked for."""

    pricer: Pricer
    rows: MeshBatch
    _point: Int = field(init=False)
    _first: Int = field(init=False)
    _kept: dict[MeshKey, tuple[np.ndarray, RowWork]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        columns = np.stack([getattr(self.rows, name) for name in POINT_AXES])
        _, self._first, inverse = np.unique(columns, axis=1, return_index=True, return_inverse=True)
        self._point = inverse.reshape(-1)

    def work(self, key: MeshKey, rows: Int) -> RowWork:
        """Work of rows under a kind."""
        points = self._point[rows]
        wanted = np.unique(points)
        if key.order.index("pp") < key.order.index("ep"):  # placement then depends on pp: not kept
            return self.pricer.work(replace(self.rows.take(rows), key=key))
        bare = MeshKey(scopes=key.scopes, cp_kind=key.cp_kind, activations=key.activations)
        place, kept = self._kept.get(bare, (np.full(self._first.size, -1), None))
        missing = wanted[place[wanted] < 0]
        if missing.size:
            new = self.pricer.work(replace(self.rows.take(self._first[missing]), key=key))
            place[missing] = np.arange(missing.size) + (0 if kept is None else kept.saved_bytes.shape[-1])
            kept = new if kept is None else joined([kept, new])
            self._kept[bare] = (place, kept)
        assert kept is not None  # rows are not empty
        return kept.take(place[points])


def joined(works: list[RowWork]) -> RowWork:
    """Works of several batches one after the other."""
    names = RowWork.__dataclass_fields__
    return RowWork(*(np.concatenate([getattr(w, n) for w in works], axis=-1) for n in names))
