"""The commands that work on networks: ``nestsmith tune``, ``run`` and ``inspect``. The kind of a file is detected from its content."""

import argparse
import os
import sys
import time

import numpy as np

import nestsmith as ns  # its parts are imported when they are first used: --help answers at once
from nestsmith import files, numerics
from nestsmith.check import printable, some_names

__all__ = ["inspect", "main", "run", "tune"]

LIBRARIES = ".tar", ".so", ".nsm"
COMPILED = files.LIBRARY, files.ARCHIVE, files.NETWORK


class UserError(Exception):
    """What the user gave cannot be used; the text says why."""


# ---- arguments ----
def _shapes(items):
    """``name:1x3x224x224`` texts as a dictionary. The last colon counts: names may hold some."""
    out = {}
    for text in items:
        name, colon, dims = text.rpartition(":")
        parts = dims.split("x") if colon else []
        if not name or not parts or not all(p.isdigit() for p in parts):
            raise UserError(f"--shape {text!r}: write --shape NAME:1x3x224x224")
        out[name] = tuple(map(int, parts))
    return out


def _arrays(items):
    """``name=file.npy`` texts, or files alone, as (list by place, dictionary by name)."""
    by_place, by_name = [], {}
    for text in items:
        name, eq, path = text.partition("=")
        value = _array(path if eq else text)
        if eq:
            by_name[name] = value
        else:
            by_place.append(value)
    return by_place, by_name


def _array(path):
    try:
        value = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as e:
        raise UserError(f"--input {path}: {e}") from None
    if not isinstance(value, np.ndarray):
        raise UserError(f"--input {path}: it holds {len(value.files)} arrays; give a .npy file of one")
    return value


def _writable(option, path, endings=()):
    """`path`, if a file can be written there and its name ends as it should."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise UserError(f"{option} {path}: there is no directory {folder}")
    if endings and not path.endswith(endings):
        raise UserError(f"{option} {path}: its name must end in {' or '.join(endings)}")
    return path


def _parser():
    parser = argparse.ArgumentParser("nestsmith")
    parts = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    open_shape = "--shape", "NAME:1x3x224x224", "shape of an input that the ONNX file leaves open; may be repeated"
    p = _command(parts, "tune", tune, "tune a model and write a network that is ready to run")
    p.add_argument("model", help="ONNX file, or .pt2 file of torch.export")
    _option(p, "--target", "TARGET", 'such as "cuda", "opencl", "llvm -mcpu=znver3" (default: the best device)', default="auto")
    _option(p, "--device", "N", "number of the device (default 0)", type=int, default=0)
    _option(p, "--trials", "N", "candidates to measure, those in the log included (default: 64 per task)", type=int)
    _option(p, "--seconds", "S", "end tuning after so long", type=float)
    _option(p, "--log", "FILE", "tuning log to go on from and to append to (default: OUT, else MODEL.TARGET, with .json)")
    _option(p, "--out", "FILE", "network to write: .nsm, .so or .tar")
    _option(p, *open_shape, action="append", default=[])
    p.add_argument("--layout", default="auto", choices=numerics.LAYOUTS, help="layout of convolutions (default: auto)")
    p.add_argument("--precision", default="float32", choices=numerics.PRECISIONS, help="of the computation (default: float32)")
    p.add_argument("--verbose", action="store_true", help="show each search and each round")
    p.add_argument("--quiet", action="store_true", help="print nothing but errors")

    p = _command(parts, "run", run, "run a network")
    p.add_argument("library", help="file that tune wrote, or an ONNX file (compiled without tuning)")
    _option(p, "--input", "NAME=FILE.npy", "value of an input, or FILE.npy by place; else random values", action="append", default=[])
    _option(p, *open_shape, action="append", default=[])
    _option(p, "--out", "FILE", "where the output goes: .npy, or .npz for all outputs")
    p.add_argument("--benchmark", action="store_true", help="time it")
    p.add_argument("--report", action="store_true", help="time every layer")
    _option(p, "--target", "TARGET", "of an ONNX file", default="auto")

    p = _command(parts, "inspect", inspect, "say what a file holds")
    p.add_argument("file", help="ONNX file, library, or tuning log")
    _option(p, "--target", "TARGET", "that an ONNX file's tasks are for", default="auto")
    _option(p, *open_shape, action="append", default=[])
    _option(p, "--log", "FILE", "also say which tasks this log has schedules for")
    return parser


def _command(parts, name, f, text):
    p = parts.add_parser(name, help=text, description=f.__doc__)
    p.set_defaults(run=f)
    return p


def _option(parser, name, metavar, text, **more):
    parser.add_argument(name, metavar=metavar, help=text, **more)


# ---- commands ----
def tune(args):
    """Tunes an ONNX model and writes a library. Given again, it goes on from the log."""
    _is_file(args.model)
    if args.out:
        _writable("--out", args.out, LIBRARIES)
    if args.trials is not None and args.trials < 0:
        raise UserError(f"--trials {args.trials}: it must be at least 0")
    target = ns.compiled.machine_target() if args.target == "auto" else ns.target.Target(args.target)
    log = args.log or os.path.splitext(args.out or f"{args.model}.{target.kind.name}")[0] + ".json"
    if not args.out and not args.log:
        log = f"{os.path.splitext(os.path.basename(args.model))[0]}.{target.kind.name}.json"
    _writable("--log", log)
    verbose = 0 if args.quiet else 2 if args.verbose else 1
    begin = time.time()
    trials = args.trials
    if trials is None and args.seconds is None:
        trials = 64 * len(_tasks(args, target)[0])
    try:
        network = ns.compile(args.model, target=args.target, trials=trials, log=log, layout=args.layout,
                                   precision=args.precision, tune_seconds=args.seconds, shape=_shapes(args.shape),
                                   device=args.device, verbose=verbose)
    except KeyboardInterrupt:
        print(f"\ninterrupted; {log} has what was measured: give the same command to go on", file=sys.stderr)
        return 130
    if args.out:
        network.export(args.out)
    if verbose:
        print(network)
        best = network.benchmark()
        print(f"one run: {best.median * 1e3:.3f} ms (median; {best.min * 1e3:.3f} to {best.max * 1e3:.3f})")
        where = [f"schedules in {log}" if trials or args.seconds else "", f"network in {args.out}" if args.out else ""]
        print("; ".join(filter(None, [*where, f"{time.time() - begin:.0f} s in all"])))
    return 0


def run(args):
    """Runs a network on arrays and writes its outputs."""
    network = _network(args)
    if args.out:
        _writable("--out", args.out, (".npy", ".npz"))
    by_place, by_name = _arrays(args.input)
    free = [n for n in network.inputs if n not in by_name]
    if len(by_place) > len(free):
        raise UserError(f"{len(by_place)} inputs are given by place; the network takes {', '.join(network.inputs)}")
    by_name.update(zip(free, by_place))
    unknown = [n for n in by_name if n not in network.inputs]
    if unknown:
        raise UserError(f"--input {unknown[0]}=...: the network takes {', '.join(network.inputs)}")
    missing = [n for n in network.inputs if n not in by_name]
    if missing and args.out:
        raise UserError(f"no value for {some_names(missing)}: give --input NAME=FILE.npy")
    rng = np.random.default_rng(0)
    for n in missing:
        by_name[n] = _random(rng, *network.inputs[n])
    if missing:
        print(f"random values for {some_names(missing)}")
    out = network(**by_name)
    outputs = list(out) if isinstance(out, tuple) else [out]
    for k, (o, (_, dtype)) in enumerate(zip(outputs, network.outputs)):
        print(f"output {k}: {dtype}{list(o.shape)}, {_range(o, dtype)}")
    if args.out:
        _save(args.out, outputs)
    if args.benchmark:
        print(network.benchmark())
    if args.report:
        print(network.report())
    return 0


def inspect(args):
    """Says what an ONNX file, a library or a tuning log holds."""
    _is_file(args.file)
    kind = files.kind_of(args.file)
    if kind in COMPILED:
        return _inspect_library(args)
    if kind == files.LOG:
        return _inspect_log(args.file)
    return _inspect_model(args)


# ---- parts of commands ----
def _is_file(path):
    if not os.path.isfile(path):
        raise UserError(f"{path}: " + ("it is a directory" if os.path.isdir(path) else "there is no such file"))


def _network(args):
    _is_file(args.library)
    if files.kind_of(args.library) in COMPILED:
        return ns.load(args.library)
    return ns.compile(args.library, target=args.target, shape=_shapes(args.shape))


def _random(rng, shape, dtype):
    if not numerics.is_float(dtype):
        return np.zeros(shape, dtype)
    values = rng.standard_normal(shape)
    return numerics.to_bfloat16(values) if dtype == "bfloat16" else values.astype(dtype)


def _range(o, dtype):
    if not o.size:
        return "empty"
    o = numerics.from_bfloat16(o) if dtype == "bfloat16" else o
    return f"{float(o.min()):.6g} to {float(o.max()):.6g}" + ("" if np.isfinite(o).all() else ", NOT ALL FINITE")


def _save(path, outputs):
    if path.endswith(".npz"):
        np.savez(path, **{f"output_{k}": o for k, o in enumerate(outputs)})
    elif len(outputs) > 1:
        raise UserError(f"--out {path}: the network has {len(outputs)} outputs; give a name that ends in .npz")
    else:
        np.save(path, outputs[0])


def _tasks(args, target):
    """Tasks of a model with their weights, as `compile` cuts them; and the model."""
    read = ns.compiled.source.read(args.model if "model" in args else args.file, shape=_shapes(args.shape))
    _, _, tasks, weights = ns.compiled.build.cut(read, target, getattr(args, "layout", "auto"), getattr(args, "precision", "float32"))
    return tasks, weights, read


def _mflop(task):
    return max(0.0, task.compute_dag.flop_ct) / 1e6  # -1: not known


def _inspect_model(args):
    target = ns.compiled.machine_target() if args.target == "auto" else ns.target.Target(args.target)
    tasks, weights, read = _tasks(args, target)
    for p in ns.compiled.source.input_vars(read.mod, read.params):
        print(f"input {printable(p.name_hint, lines=False)}: {p.checked_type.dtype}{list(p.checked_type.shape)}")
    held = ns.auto_scheduler.holdings.Holdings.of_log(args.log) if args.log else None
    print(f"{len(tasks)} tasks for {target.kind.name}, {sum(_mflop(t) * w for t, w in zip(tasks, weights)) / 1e3:.3f} GFLOP")
    for i, (task, weight) in enumerate(zip(tasks, weights)):
        names = [ns.auto_scheduler.workload_keys.decode_workload_key(k) for k in task.layer_keys]
        there = "" if held is None else "  " + (held.why_not(names, target.kind.name) or "has a schedule")
        print(f"{i:4d}  x{int(weight):<3d} {_mflop(task):10.1f} MFLOP  {ns.auto_scheduler.display.short(task.desc)}{there}")
    return 0


def _inspect_library(args):
    network = ns.load(args.file)
    print(f"network for {network.target}, {len(network.lib.kernels)} programs, {ns.num_threads()} threads here")
    for n, (shape, dtype) in network.inputs.items():
        print(f"input {printable(n, lines=False)}: {dtype}{list(shape)}")
    for k, (shape, dtype) in enumerate(network.outputs):
        print(f"output {k}: {dtype}{list(shape)}")
    print(network.report())
    return 0


def _inspect_log(path):
    why = ns.auto_scheduler.log_files.no_log(path)
    if why:
        raise UserError(f"{path} {why}")
    return ns.auto_scheduler.log_tools.main(["--mode", "stats", "-i", path])


def main(argv=None):
    """The command line; returns the exit status."""
    args = _parser().parse_args(argv)
    try:
        return args.run(args)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (UserError, OSError, ValueError, TypeError, RuntimeError, NotImplementedError, ImportError, MemoryError) as e:
        if os.environ.get("NESTSMITH_TRACEBACK"):
            raise
        text = " ".join(str(e).split()) or type(e).__name__
        remedy = "; on the command line: --shape NAME:1x3x224x224" if "shape={" in text else ""
        print(f"nestsmith {args.command}: {text}{remedy}", file=sys.stderr)
        return 1
