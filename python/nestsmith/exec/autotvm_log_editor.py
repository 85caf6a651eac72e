"""Keeps the best records of one log of templates, or of all in a directory.

``python -m nestsmith.exec.autotvm_log_editor --act pick-best --i FILE_OR_DIR [--o OUT]``
"""

import argparse
import logging
import os
import sys
import tempfile

from nestsmith.autotvm.record import pick_best

__all__ = ["main"]

logger = logging.getLogger("autotvm")


def _pick_all(folder, out):
    """The best of every ``*.log`` of a directory; what cannot be read is left out with a warning."""
    with tempfile.TemporaryDirectory(prefix="nestsmith-log-") as scratch:
        together = os.path.join(scratch, "all.log")
        with open(together, "w", encoding="utf-8") as f:
            for name in sorted(os.listdir(folder)):
                path = os.path.join(folder, name)
                if not name.endswith(".log") or (os.path.exists(out) and os.path.samefile(path, out)):
                    continue  # what OUT holds takes part as it is
                try:
                    pick_best(path, f)
                except (OSError, ValueError) as e:
                    logger.warning("Ignore invalid file %s: %s", path, e)
        pick_best(together, out)


def main(argv=None):
    """The command line; returns 0, or 1 after a message about a file.

    Parameters
    ----------
    argv : list of str, optional

    Returns
    -------
    int
    """
    parser = argparse.ArgumentParser(prog="nestsmith.exec.autotvm_log_editor", description=__doc__.splitlines()[0])
    parser.add_argument("--act", choices=["pick-best"], required=True, help="what to do")
    parser.add_argument("--i", required=True, metavar="FILE_OR_DIR", help="a log, or a directory of *.log")
    parser.add_argument("--o", metavar="OUT", help="where the records go; default FILE.best.log, or best.log for a directory")
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        if os.path.isdir(args.i):
            _pick_all(args.i, args.o or "best.log")
        else:
            pick_best(args.i, args.o or args.i + ".best.log")
    except (OSError, ValueError) as e:
        print(f"nestsmith.exec.autotvm_log_editor: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
