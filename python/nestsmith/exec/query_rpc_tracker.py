"""Prints which devices a tracker has and who waits for them."""

import sys

try:
    from ..cluster.commands import query as main
except ModuleNotFoundError as e:
    if __name__ != "__main__":
        raise
    sys.exit(f"error: {e}")

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
