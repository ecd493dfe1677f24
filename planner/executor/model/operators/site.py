"""Where an operator module is built: its layer kind, its parameters, the tables that layers share."""

from dataclasses import dataclass

from cost_models.specs.model import LayerKind
from planner.executor.model.context_parallel import ContextParallel
from planner.executor.model.expert_parallel import ExpertParallel
from planner.executor.model.operators.tables import Tables
from planner.executor.model.options import BuildOptions
from planner.executor.model.parameters import Maker
from planner.executor.model.semantics import Semantics
from planner.executor.model.tensor_parallel import TensorParallel


@dataclass(frozen=True, slots=True)
class Site:
    """What an operator module needs beside the operator itself."""

    maker: Maker
    semantics: Semantics
    kind: LayerKind
    tables: Tables

    @property
    def options(self) -> BuildOptions:
        """Options of the build."""
        return self.maker.options

    @property
    def tp(self) -> TensorParallel:
        """The tensor-parallel group."""
        return self.maker.options.tensor_parallel

    @property
    def context(self) -> ContextParallel:
        """The context-parallel group."""
        return self.maker.options.context

    @property
    def experts(self) -> ExpertParallel:
        """The ranks that share routed experts."""
        return self.maker.options.experts

    @property
    def dropout(self) -> float:
        """Probability of an active dropout, else 0."""
        return self.options.dropout_probability if self.options.dropout else 0.0
