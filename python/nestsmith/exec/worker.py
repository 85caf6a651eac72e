"""The start of a worker process: open the engine and hand over to its C loop.

The tuner runs this file by its path in Python's isolated mode (``python -I -S``), without importing the package: a worker
needs neither NumPy nor the user's script, and starts in a few hundredths of a second.
"""

import ctypes
import sys


def _words(argv):
    return (ctypes.c_char_p * (len(argv) + 1))(*(a.encode() for a in argv), None)


def main(argv: list[str]) -> int:
    """argv: path of the extension module, then "runner" and its options, "bridge", a socket and a command, or kind, socket,
    parent's process id, device type, device number."""
    if argv[1:2] == ["runner"]:
        return int(ctypes.CDLL(argv[0]).nestsmith_runner_main(len(argv) - 1, _words(argv[1:])))
    if argv[1:2] == ["bridge"]:
        return int(ctypes.CDLL(argv[0]).nestsmith_bridge_main(int(argv[2]), _words(argv[3:])))
    if len(argv) != 6:
        print("this program is started by nestsmith itself", file=sys.stderr)
        return 2
    return int(ctypes.CDLL(argv[0]).nestsmith_worker_main(ord(argv[1]), *(int(a) for a in argv[2:])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
