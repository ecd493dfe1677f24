"""Messages to seconds: who sits where, the algorithms of the library, links shared by concurrent groups."""

from cost_models.communication.collectives import (
    collective_seconds,
    group_interference,
    members_inside,
    parameter_server_seconds,
)
from cost_models.communication.message_table import MessageTable, message_seconds, stack_messages
from cost_models.communication.network import Network, load_fabric, network_of
from cost_models.communication.routing import expert_groups
from cost_models.communication.spans import (
    ExpertGroups,
    Span,
    crosses,
    expected_destinations,
    members_per_domain,
    spans_of_order,
)

__all__ = [
    "ExpertGroups",
    "MessageTable",
    "Network",
    "Span",
    "collective_seconds",
    "crosses",
    "expected_destinations",
    "expert_groups",
    "group_interference",
    "load_fabric",
    "members_inside",
    "members_per_domain",
    "message_seconds",
    "network_of",
    "parameter_server_seconds",
    "spans_of_order",
    "stack_messages",
]
