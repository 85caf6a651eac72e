"""Short name of the log tools: ``nestsmith log --mode stats -i log.json``, or ``python -m nestsmith.log``."""

import nestsmith as ns
from nestsmith.auto_scheduler import log_tools

__all__ = ["main"]


def _tasks_of_model(path, target, layout, precision):
    """The tasks of a model's file as `nestsmith.compile` cuts it, and how often each occurs."""
    return ns.compiled.build.cut(ns.compiled.source.read(path), ns.target.Target(target), layout or "auto", precision)[2:]


def main(argv=None):
    """The command line of `auto_scheduler.log_tools`, which also reads models."""
    return log_tools.main(argv, _tasks_of_model)


if __name__ == "__main__":
    raise SystemExit(main())
