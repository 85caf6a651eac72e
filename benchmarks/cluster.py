"""What measuring on many machines costs: python benchmarks/cluster.py [--out docs/results/cluster.md]

    python benchmarks/cluster.py --devices 2 [--target cuda] [--mode strict] [--min-repeat-ms 200]    # ResNet-18, against one

Rows: requests to the ledger with 100 devices; the tracker's part of a candidate; ten simulated devices (a table of costs, 50 ms each)
kept busy by one tuner; two boards of this machine against one. Simulated devices are in this process: they speak the board's part of
the conversation and sleep where a board would measure."""

import argparse
import contextlib
import os
import pathlib
import socket
import statistics
import sys
import tempfile
import threading
import time

sys.path[:0] = [os.path.join(os.path.dirname(__file__), "..", "python"), os.path.join(os.path.dirname(__file__), "..", "tests", "rpc"),
                os.path.join(os.path.dirname(__file__), "..", "tests")]  # fmt: skip

from fleet import Fleet

from nestsmith import rpc
from nestsmith.cluster.client import Client
from nestsmith.cluster.lanes import Batch, Lanes
from nestsmith.cluster.ledger import Ledger
from nestsmith.target import Target

FACTS = {"classes": {"1": "simulated"}, "shown": ""}
RESULT = {"error": 0, "costs": [1e-3], "full": True, "msg": ""}


def ledger(boards=100, requests=2000):
    """Milliseconds of a lease and its release, in the ledger alone and over the network with one device."""
    x = Ledger()
    for k in range(boards):
        x.board_added(f"b{k}", "k", FACTS, 0)
    begin = time.perf_counter()
    for n in range(requests):
        token = next(e[3] for e in x.acquire("me", n, "k", n) if e[0] == "grant")
        x.release("me", token, n)
    return 1e3 * (time.perf_counter() - begin) / requests


class Simulated:
    """A lease of a device that is none: it answers a batch after what its candidates cost."""

    def __init__(self, seconds, busy):
        self.seconds, self.busy, self.token, self.address, self.facts = seconds, busy, os.urandom(4).hex(), f"sim{len(busy)}", FACTS
        self.lost, self.wanted, self.number = "", False, len(busy)
        busy.append(0.0)

    def ask(self, message, seconds=0):
        if message["do"] == "measure":
            spent = self.seconds * len(message["items"])
            time.sleep(spent)
            self.busy[self.number] += spent
        return {"results": [RESULT] * len(message.get("items", [])), "canary": 0.0}

    def release(self):
        pass


class Pool:
    """A client whose devices are simulated."""

    def __init__(self, seconds):
        self.seconds, self.busy = seconds, []

    def acquire(self, *args):
        return Simulated(self.seconds, self.busy)

    def close(self):
        pass


def ten_devices(devices=10, candidates=2000, cost=0.05, batch=4):
    """Share of the time that the devices are busy."""
    lanes = Lanes("sim", n_parallel=devices)
    lanes._client = pool = Pool(cost)
    begin = time.perf_counter()
    items = [(b"x" * 20000, "{}")] * batch
    futures = [lanes.submit(Batch("t", Target("llvm"), list, items, {"timeout": 1})) for _ in range(candidates // batch)]
    for f in futures:
        f.result()
    share = sum(pool.busy) / (devices * (time.perf_counter() - begin))
    lanes.close()
    return share


def over_the_network(fleet, rounds=50, size=16):
    """Milliseconds of a lease with its release, and those that a conversation adds to a candidate of a batch of `size`."""
    client, lease_ms, talk_ms = Client("127.0.0.1", fleet.port), [], []
    for _ in range(rounds):
        begin = time.perf_counter()
        lease = client.acquire("board")
        lease_ms.append(1e3 * (time.perf_counter() - begin))
        begin = time.perf_counter()
        lease.release()
        lease_ms[-1] += 1e3 * (time.perf_counter() - begin)
    lease = client.acquire("board")
    lease.ask({"do": "open", "limit": 0})
    for _ in range(rounds):
        begin = time.perf_counter()
        lease.ask({"do": "ask", "request": {"op": "put", "name": "x"}, "data": b"x" * 20000 * size})
        talk_ms.append(1e3 * (time.perf_counter() - begin) / size)
    client.close()
    return statistics.median(lease_ms), statistics.median(talk_ms)


def late_server(fleet):
    """Seconds from a server's registration to the first answer to a client that waits for it, and from its start."""
    tracker, got = rpc.connect_tracker("127.0.0.1", fleet.port), []

    def ask():
        with tracker.request("late") as remote:
            remote.listdir()
            got.append(time.perf_counter())

    t = threading.Thread(target=ask)
    t.start()
    while not tracker.summary()["queue_info"].get("late", {}).get("pending"):
        time.sleep(0.01)
    begin = time.perf_counter()
    fleet.serve("late")
    there = time.perf_counter()
    t.join()
    tracker.close()
    return got[0] - there, got[0] - begin


def boards(fleet, n):
    """Candidates per second on n boards of this machine, whose candidates take 50 ms each."""
    from test_runners import remote_matmul

    from nestsmith import auto_scheduler

    task = auto_scheduler.SearchTask(func=remote_matmul, args=(64,), target="llvm")
    states = auto_scheduler.SketchPolicy(task, verbose=0).sample_initial_population()[:32]
    inputs = [auto_scheduler.MeasureInput(task, s) for s in states]
    built = auto_scheduler.LocalBuilder().build(inputs, 0)
    runner = auto_scheduler.RPCRunner("board", "127.0.0.1", fleet.port, n_parallel=n, min_repeat_ms=200, mode="strict")
    runner.run(inputs[:2], built[:2], 0)
    begin = time.perf_counter()
    futures = [runner.start(inputs[k : k + 4], built[k : k + 4]) for k in range(0, len(inputs), 4)]
    for f in futures:
        f.result()
    rate = len(inputs) / (time.perf_counter() - begin)
    runner.close()
    return rate


class Rate:
    """Callback of the task scheduler: when how many trials were done. Ends the run after so many minutes."""

    def __init__(self, minutes):
        self.points, self.end = [], time.time() + 60 * minutes

    def pre_tune(self, scheduler, task_id):
        pass

    def post_tune(self, scheduler, task_id):
        self.points.append((time.time(), scheduler.ct))
        if time.time() > self.end:
            raise TimeoutError

    @property
    def per_second(self):
        """Without the first tenth, in which processes start."""
        (begin, before), (end, after) = self.points[len(self.points) // 10], self.points[-1]
        return (after - before) / (end - begin)


def tuned(fleet, n, args, tasks, weights, log):
    """Tunes with n devices; prints trials, their rate, the estimate and where the time went. Returns trials per second."""
    from nestsmith import auto_scheduler

    runner = auto_scheduler.RPCRunner("board", "127.0.0.1", fleet.port, n_parallel=n, min_repeat_ms=args.min_repeat_ms, mode=args.mode)
    builder, rate, compiling = auto_scheduler.LocalBuilder(timeout=args.timeout), Rate(args.minutes), []
    build = builder.build

    def counted(inputs, verbose):
        built = build(inputs, verbose)
        compiling.extend(b.time_cost for b in built)
        return built

    builder.build = counted
    tuner = auto_scheduler.TaskScheduler(tasks, weights, callbacks=[rate])
    options = auto_scheduler.TuningOptions(
        args.trials, num_measures_per_round=args.round, runner=runner, builder=builder, verbose=0,
        measure_callbacks=[auto_scheduler.RecordToFile(log)],
    )  # fmt: skip
    begin = time.time()
    with contextlib.suppress(TimeoutError):
        tuner.tune(options)
    seconds, split, lanes = time.time() - begin, tuner.measurer.split, builder.n_parallel
    print(f"{n} devices: {tuner.ct} trials in {seconds:.0f} s, {rate.per_second:.2f} per second, estimate {1e3 * tuner.cur_score:.4f} ms\n"
          f"  devices busy {100 * runner.lanes.busy / (n * seconds):.0f} % ({runner.lanes.busy / max(1, tuner.ct):.3f} s a trial), "
          f"compile threads {100 * sum(compiling) / (lanes * seconds):.0f} % of {lanes} ({sum(compiling) / max(1, len(compiling)):.2f} s "
          f"a program), search {split.search:.0f} s, training {split.train:.0f} s", flush=True)  # fmt: skip
    runner.close()
    return rate.per_second


def winners(fleet, k, args, tasks, weights, log):
    """Estimate in ms of the best candidates of a log, all measured in full on device k."""
    from nestsmith import auto_scheduler

    known = [(t, w, i) for t, w in zip(tasks, weights) if (i := auto_scheduler.load_best_record(log, t.workload_key)[0])]
    inputs = [auto_scheduler.MeasureInput(t, auto_scheduler.recover_measure_input(i, True).state) for t, _, i in known]
    builder = auto_scheduler.LocalBuilder()
    runner = auto_scheduler.RPCRunner(f"board{k}", "127.0.0.1", fleet.port, min_repeat_ms=max(100, args.min_repeat_ms), mode="strict")
    results = runner.run(inputs, builder.build(inputs, 0), 0)
    runner.close()
    assert not any(r.error_no for r in results), [r.error_msg for r in results]
    return 1e3 * sum(w * statistics.mean(r.costs) for (_, w, _), r in zip(known, results)), len(known)


def devices(args):
    """ResNet-18 over a tracker with all devices against one: trial rates; what each device says of the winners."""
    from measuring import resnet18

    tasks, weights = resnet18(Target(args.target), args.image)[2:]
    with contextlib.closing(Fleet()) as fleet, tempfile.TemporaryDirectory() as folder:

        def serve(keys):
            """A board for each key, with the device of that place."""
            fleet.man()
            for k, key in enumerate(keys):
                fleet.environment = {"CUDA_VISIBLE_DEVICES": devices_of_host()[k]}
                fleet.serve(key)

        rates = []
        for n in (args.devices, 1):
            log = os.path.join(folder, f"{n}.json")
            serve(["board"] * n)
            rates.append(tuned(fleet, n, args, tasks, weights, log))
            serve([f"board{k}" for k in range(n)])
            got, known = zip(*[winners(fleet, k, args, tasks, weights, log) for k in range(n)])
            print(f"  its winners of {known[0]} tasks measured in full: {', '.join(f'{g:.4f}' for g in got)} ms"
                  + (f", {100 * (max(got) / min(got) - 1):.2f} % apart (wanted: <= 2 %)" if n > 1 else ""), flush=True)  # fmt: skip
            if n > 1 and args.free:
                pathlib.Path(args.free).touch()
        print(f"trial rate of {args.devices} devices against one: {rates[0] / rates[1]:.2f} x (wanted: >= 1.6 x)", flush=True)


def devices_of_host():
    """The names of this host's GPUs, as CUDA_VISIBLE_DEVICES has them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(k) for k in range(64)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=0)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--trials", type=int, default=1024)
    parser.add_argument("--minutes", type=float, default=60, help="for each of the runs")
    parser.add_argument("--round", type=int, default=16)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--min-repeat-ms", type=int, default=100)
    parser.add_argument("--free", help="a file that appears when all devices but the first are not needed any more")
    parser.add_argument("--mode", default="auto", choices=("auto", "strict"), help="strict: every trial is timed in full")
    parser.add_argument("--timeout", type=float, default=15, help="seconds a program may take to compile")
    parser.add_argument("--out", help="the file for the table (without --devices)")
    args = parser.parse_args()
    if args.devices:
        devices(args)
        return
    rows = [("ledger, 100 devices: lease and release", f"{ledger():.3f} ms", "<= 10 ms"),
            ("ten simulated devices, 50 ms a candidate: busy", f"{100 * ten_devices():.1f} %", ">= 90 %")]  # fmt: skip
    with contextlib.closing(Fleet()) as fleet:
        fleet.man("board", "board")
        lease, talk = over_the_network(fleet)
        rows.append(("lease and release over the network", f"{lease:.2f} ms", "<= 10 ms"))
        rows.append(("carrying a candidate of 20 kB, in batches of 16", f"{talk:.2f} ms", "<= 5 ms"))
        after, start = late_server(fleet)
        rows.append((f"a late server has work after its registration ({start:.2f} s after its start)", f"{after:.2f} s", "<= 2 s"))
        one, two = boards(fleet, 1), boards(fleet, 2)
        rows.append((f"two boards against one ({one:.2f} and {two:.2f} candidates/s)", f"{two / one:.2f} x", ">= 1.8 x"))
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end"
    print(f"{socket.gethostname()}, {machine}")
    for what, got, want in rows:
        print(f"{what:<70} {got:>10}   {want}")
    if args.out:
        lines = ["# What a tracker costs", "", f"`python benchmarks/cluster.py --out FILE`, everything on one machine: {machine}.", "",
                 "| What | Measured | Wanted |", "|---|---|---|", *(f"| {' | '.join(r)} |" for r in rows)]  # fmt: skip
        pathlib.Path(args.out).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
