"""Where memory runs out there is an exception, not a dead process."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, resource
from nestsmith import _core, te
a = te.placeholder((64, 64), name="A")
dag = _core.ComputeDAG([a, te.compute((64, 64), lambda i, j: a[j, i] + 1, name="B")])
page = resource.getpagesize()
used = int(open("/proc/self/statm").read().split()[0]) * page

def child(extra):
    resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20) + extra, resource.RLIM_INFINITY))
    states = []
    try:
        while True:
            states.append(_core.State(dag))
    except MemoryError:
        return 0

for i in range(64):  # each time another allocation fails
    pid = os.fork()
    if pid == 0:
        os._exit(child(i * page))
    status = os.waitpid(pid, 0)[1]
    assert status == 0, (i, status)
"""


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="AddressSanitizer itself takes terabytes of addresses")
def test_states_until_memory_ends():
    r = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stderr[-500:]
