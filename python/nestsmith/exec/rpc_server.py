"""A server: registers a device with a tracker."""

from . import cluster_command

__all__ = ["main"]

main = cluster_command("server", __name__)
