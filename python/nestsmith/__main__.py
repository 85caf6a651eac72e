"""The command ``nestsmith``, which ``python -m nestsmith`` is, too: tools as its subcommands."""

import importlib
import sys

from nestsmith import _version

__all__ = ["main"]

# name: (module with a function main(argv), what it does)
COMMANDS = {
    "tune": ("commands", "tune a model (ONNX, or .pt2 of torch.export) and write a network that is ready to run"),
    "run": ("commands", "run a network on arrays, time it"),
    "inspect": ("commands", "say what a model, a network or a tuning log holds"),
    "doctor": ("doctor", "say what works on this machine, and what the rest needs"),
    "log": ("log", "tuning logs: best records, statistics, merging, TVM's format"),
    "template-log": ("autotvm.record", "tuning logs of templates: pick the best, or make them readable"),
    "pretrain": ("pretrain", "train a cost model on logs"),
    "demo": ("demo", "tune ResNet-18, and compare it with onnxruntime"),
    "tracker": ("exec.rpc_tracker", "lend the devices of many machines"),
    "server": ("exec.rpc_server", "register a device with a tracker"),
    "devices": ("exec.query_rpc_tracker", "list the devices of a tracker and who waits for them"),
}


def _help():
    rows = [f"  {name:14s}{text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(["usage: nestsmith COMMAND ...   (nestsmith COMMAND --help: its options)", "", *rows, "",
                      "  nestsmith tune MODEL.onnx --target cuda --trials 2000 --out model.nsm",
                      "  nestsmith run model.nsm --input x=array.npy --out y.npy --benchmark", "",
                      "options: --help, --version. Exit status: 0 done; 1 the model, a file or the machine is at "
                      "fault (one line says how);",
                      "2 the command line is; 130 interrupted (tuning goes on when the command is given again)"])


def main(argv=None):
    """The command line; returns the exit status."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if not argv or argv[0] in ("-h", "--help"):
        print(_help())
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"nestsmith {_version.__version__}")
        return 0
    if argv[0] not in COMMANDS:
        print(f"nestsmith: there is no command {argv[0]!r}; the commands are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    module = COMMANDS[argv[0]][0]
    try:
        run = importlib.import_module(f"nestsmith.{module}").main
    except ImportError as e:
        print(f"nestsmith {argv[0]}: {e}", file=sys.stderr)
        return 1
    return run(argv if module == "commands" else argv[1:])


if __name__ == "__main__":
    raise SystemExit(main())
