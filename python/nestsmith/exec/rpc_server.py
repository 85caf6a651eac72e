"""A server: registers a device with a tracker."""

import sys

try:
    from ..cluster.commands import server as main
except ModuleNotFoundError as e:
    if __name__ != "__main__":
        raise
    sys.exit(f"error: {e}")

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
