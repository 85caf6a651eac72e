"""The tracker: lends the devices of the servers that register with it."""

from . import cluster_command

__all__ = ["main"]

main = cluster_command("tracker", __name__)
