"""Prints which devices a tracker has and who waits for them."""

from . import cluster_command

__all__ = ["main"]

main = cluster_command("query", __name__)
