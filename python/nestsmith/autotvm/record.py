"""Tuning logs of templates: reading, writing, choosing.

``python -m nestsmith.autotvm.record --mode read --i LOG`` shows records, ``--mode pick`` keeps the best ones,
``--mode split`` makes a log per task.
"""

import argparse
import itertools
import logging
import os
import sys

from ..auto_scheduler.log_files import write_whole
from ..driver import build, lower
from .history import ApplyHistoryBest
from .log import AUTOTVM_LOG_VERSION, decode, encode, load_from_buffer, load_from_file, measure_str_key

__all__ = ["AUTOTVM_LOG_VERSION", "decode", "encode", "load_from_buffer", "load_from_file", "main", "measure_str_key",
           "pick_best", "split_workload"]

logger = logging.getLogger("autotvm")


def pick_best(in_file, out_file):
    """Keeps the fastest record of every task and device.

    Parameters
    ----------
    in_file : str or pathlib.Path
    out_file : str, pathlib.Path or open text file
        A file that exists takes part: its records are kept where they are the fastest. It is replaced in one piece, so that
        it stays whole whatever happens.

    Raises
    ------
    FileNotFoundError
        If there is no ``in_file``.
    ValueError
        If a file holds something, but not a single record.
    """
    is_path = isinstance(out_file, (str, os.PathLike))
    records = list(load_from_file(in_file))
    if is_path and os.path.isfile(out_file):
        records += load_from_file(out_file)
    history = ApplyHistoryBest(records)
    best = {id(pair[0]) for found in (history.best_by_model, history.best_by_targetkey) for pair in found.values()}
    lines = [encode(inp, res) + "\n" for inp, res in records if id(inp) in best]
    logger.info("Extract %d best records from the %d records of %s", len(lines), len(records), in_file)
    if is_path:
        write_whole(out_file, lines)
    else:
        out_file.writelines(lines)


def split_workload(in_file, clean=True):
    """Writes the records of each task to a log of its own, ``<in_file>.000.wkl`` and so on, in order of appearance.

    Parameters
    ----------
    in_file : str or pathlib.Path
    clean : bool
        Keep the first record of each configuration only.

    Returns
    -------
    list of str
        The files. Raises FileNotFoundError if there is no ``in_file``.
    """
    groups, seen, repeated = {}, set(), {}
    for inp, res in load_from_file(in_file):
        task = measure_str_key(inp, include_config=False)
        group = groups.setdefault(task, [])
        key = measure_str_key(inp)
        if clean and key in seen:
            repeated[task] = repeated.get(task, 0) + 1
            continue
        seen.add(key)
        group.append(encode(inp, res) + "\n")
    names = []
    for i, (task, lines) in enumerate(groups.items()):
        names.append(f"{os.fspath(in_file)}.{i:03d}.wkl")
        logger.info("Key: %s\tValid: %d\tDup: %d\t", task, len(lines), repeated.get(task, 0))
        write_whole(names[-1], lines)
    return names


def _read(args):
    for number, (inp, res) in enumerate(load_from_file(args.i)):
        if number < args.begin:
            continue
        if number >= args.end:
            break
        print("=" * 60)
        print(inp.target, inp.task, inp.config, res, sep="\n")
        if not (args.ir or args.code):
            continue
        with inp.target:
            sch, tensors = inp.task.instantiate(inp.config)
            if args.ir:
                print("-" * 60, lower(sch, tensors), sep="\n")
            if args.code:
                module = build(sch, tensors, target=inp.target)
                texts = [m.get_source() for m in itertools.chain(module.imported_modules, [module])]
                print("-" * 60, next(filter(None, texts), ""), sep="\n")


def main(argv=None):
    """The command line; returns 0, or 1 after a message about a file, an argument or a record.

    Parameters
    ----------
    argv : list of str, optional

    Returns
    -------
    int
    """
    parser = argparse.ArgumentParser(prog="nestsmith.autotvm.record", description="Tools for tuning logs of templates.")
    parser.add_argument("--mode", choices=["read", "pick", "split"], default="read")
    parser.add_argument("--i", required=True, metavar="LOG", help="the log")
    parser.add_argument("--o", metavar="LOG", help="where the best records go (pick; default LOG.best.log)")
    parser.add_argument("--begin", type=int, default=0, help="number of the first record to read, from 0")
    parser.add_argument("--end", type=int, default=5, help="number of the record behind the last one to read")
    parser.add_argument("--ir", action="store_true", help="show loops, too (read)")
    parser.add_argument("--code", action="store_true", help="show the source of kernels, too (read)")
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        if args.mode == "pick":
            pick_best(args.i, args.o or args.i + ".best.log")
        elif args.mode == "split":
            split_workload(args.i)
        else:
            _read(args)
    except (OSError, ValueError, RuntimeError, KeyError) as e:
        print(f"nestsmith.autotvm.record: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
