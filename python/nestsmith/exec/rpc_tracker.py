"""The tracker: lends the devices of the servers that register with it."""

import sys

try:
    from ..cluster.commands import tracker as main
except ModuleNotFoundError as e:
    if __name__ != "__main__":
        raise
    sys.exit(f"error: {e}")

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
