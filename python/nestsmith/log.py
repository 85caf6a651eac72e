"""Short name of the log tools: ``python -m nestsmith.log --mode stats -i log.json``."""

from nestsmith.auto_scheduler.log_tools import main

__all__ = ["main"]

if __name__ == "__main__":
    raise SystemExit(main())
