"""A campaign of injected faults: every candidate comes out once with the right verdict, and nothing is left behind."""

import json
import os
import random
import signal
import threading
import time

import numpy as np
import pytest

from nestsmith import _core
from nestsmith.auto_scheduler import RecordReader, RecordToFile

N = 1024
HEAD = "#include <stdint.h>\nint32_t k(void *const *args, void *const *work, void *par, void *pool) {"
HEAD += " const float *x = args[0]; float *y = args[1]; %s return 0; }\n/* %d */\n"
GOOD = "for (int i = 0; i < 1024; i++) y[i] = x[i] + 1;"
SLOW = "for (volatile int j = 0; j < 20; j++) for (volatile int i = 0; i < 1024; i++) y[i] = x[i] + 1;"
# body, error number, cause
FAULTS = {
    "crash": ("*(volatile int *)8 = 1;", 4, "worker-died"),
    "trap": ("__builtin_trap();", 4, "worker-died"),
    "exit": ("extern void _exit(int); _exit(0);", 4, "worker-died"),
    "error code": ("if (x != y) return 5;", 4, "launch-failure"),
    "nothing": ("", 5, "wrong-answer"),
    "wrong": ("for (int i = 0; i < 1024; i++) y[i] = x[i] + (i != 77);", 5, "wrong-answer"),
    "partial": ("for (int i = 0; i < 1023; i++) y[i] = x[i] + 1;", 5, "wrong-answer"),
    "outside": ("for (int i = 0; i < 1030; i++) y[i] = x[i % 1024] + 1;", 5, "wrong-answer"),
    "syntax": ("this is not C", 2, "compiler-error"),
}
ENDLESS = ("for (volatile int i = 0;;) i++;", 7, "run-timeout")


def children():
    """(process id, name) of the processes whose parent is this one, or one of its children."""
    out = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = open(f"/proc/{pid}/stat").read()
            line = open(f"/proc/{pid}/cmdline").read().replace("\0", " ")
        except OSError:
            continue
        if int(stat.rsplit(")", 1)[1].split()[1]) == os.getpid() and "resource_tracker" not in line:
            out.append((int(pid), line))
    return out


class Assassin(threading.Thread):
    """Kills the measuring worker and compilers now and then."""

    def __init__(self, seed):
        super().__init__(daemon=True)
        self.rng, self.end, self.workers, self.compilers = random.Random(seed), threading.Event(), 0, 0

    def run(self):
        while not self.end.wait(self.rng.uniform(0.3, 1.5)):
            found = children()
            kind = self.rng.choice(("worker.py", " -shared "))
            for pid, line in found:
                if kind in line:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        continue
                    if kind == "worker.py":
                        self.workers += 1
                    else:
                        self.compilers += 1
                    break


def campaign(n, seed, tmp_path):
    rng = random.Random(seed)
    x = (np.arange(N) % 7).astype("float32")
    before = set(os.listdir("/tmp"))
    manifest = json.dumps(
        {
            "format": 1,
            "target": "c",
            "entry": "k",
            "args": [
                {"name": t, "dtype": "float32", "shape": [N], "bytes": 4 * N, "align": 64, "read_only": t == "x"}
                for t in "xy"
            ],
            "work": [],
            "kernels": [{"name": "k", "params": [], "grid": [1, 1, 1], "block": [1, 1, 1]}],
        }
    )
    full_cache = tmp_path / "file"  # a cache that cannot be written costs nothing but time
    full_cache.write_text("not a directory")
    pipe = _core.Pipeline((0, 0, 1), 1, 0, n_compile=2, build_timeout=20, cache_dir=str(full_cache / "cache"))
    task = pipe.task(_core.TaskData([(4 * N, x, False, "float32"), (4 * N, x + 1, True, "float32")]))
    want, names = {}, {}
    for tag in range(n):
        name = rng.choice(list(FAULTS) + ["good", "good", "slow"])
        if tag % 50 == 25:
            name = "endless"
        names[tag] = name
        body, error, cause = FAULTS.get(
            name, ENDLESS if name == "endless" else (GOOD if name == "good" else SLOW, 0, "")
        )
        want[tag] = (error, cause)
        policy = (1, 1, 1, 0.3 if name == "endless" else 10.0, False, True, 0.0, False)
        pipe.submit(task, HEAD % (body, tag), manifest, tag, policy)
    killer = Assassin(seed)
    killer.start()
    done, deviating, limit = {}, [], time.time() + 1.0 * n + 60
    while pipe.pending and time.time() < limit:
        for tag, _, r, _, _ in pipe.poll(0.2):
            assert tag not in done, f"{tag} came out twice"
            done[tag] = r
            if (r["error_no"], r["cause"]) != want[tag]:
                deviating.append((tag, names[tag], r["error_no"], r["cause"], r["msg"][:200]))
    killer.end.set()
    killer.join()
    pipe.close()
    assert sorted(done) == list(range(n)), "a candidate was lost"
    # what was killed may say so, and nothing else may differ
    by_kill = [d for d in deviating if "signal 9" in d[4] or "worker died" in d[4] or "ended by signal" in d[4]]
    assert deviating == by_kill, deviating
    assert len(by_kill) <= killer.workers + killer.compilers, (by_kill, killer.workers, killer.compilers)
    assert all(names[t] in ("good", "slow") for t, r in done.items() if r["error_no"] == 0)
    ok = {t: r["costs"][0] for t, r in done.items() if r["error_no"] == 0}
    assert names[min(ok, key=ok.get)] == "good"
    assert children() == []
    left = [d for d in set(os.listdir("/tmp")) - before if d.startswith("nestsmith")]
    assert all(not any(f.startswith(f"{os.getpid()}-") for f in os.listdir(f"/tmp/{d}")) for d in left)
    return killer


def test_200_faults(tmp_path):
    campaign(200, 1, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(50))
def test_10000_faults(tmp_path, seed):
    campaign(200, 100 + seed, tmp_path)


def test_full_disk_loses_no_record(tmp_path):
    """The log is written late, not lost, when the disk is full for a while."""
    from nestsmith import auto_scheduler, te
    from nestsmith import target as targets

    @auto_scheduler.register_workload(override=True)
    def faults_plus(n):
        a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
        r = te.reduce_axis((0, n), name="k")
        return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=[r]), name="C")]

    real, log = tmp_path / "real.json", tmp_path / "log.json"
    log.symlink_to("/dev/full")
    task = auto_scheduler.SearchTask(func=faults_plus, args=(16,), target=targets.Target("llvm"))
    rounds = []

    def room(policy, inputs, results):
        rounds.append(len(inputs))
        if len(rounds) == 2:
            log.unlink()
            log.symlink_to(real)

    tuner = auto_scheduler.TaskScheduler([task], callbacks=[])
    tuner.tune(
        auto_scheduler.TuningOptions(
            9,
            num_measures_per_round=3,
            verbose=0,
            runner=auto_scheduler.LocalRunner(number=1, min_repeat_ms=0),
            measure_callbacks=[RecordToFile(str(log)), room],
        ),
        search_policy="sketch.random",
        search_policy_params={"evolutionary_search_population": 16, "sample_init_min_population": 4},
    )
    assert sum(rounds) == tuner.ct == 9 == len(list(RecordReader(str(real))))
