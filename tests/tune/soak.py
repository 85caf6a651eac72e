"""A soak: one run after the other on one log, each ended by a signal, half of them beside a hostile neighbour.

    python tests/tune/soak.py 200      # a table: which signals, and how long until nothing of the run is there

A run (interrupted.py) is sent a signal in a window of its own or at a random moment, with or without handlers of the
user's, on the engine's runner or a user's, in the main thread or another one. After each: it ended as the signal says, no
process, lock or file is left, the log parses, every record that somebody was told about is in it, none is lost and none
was measured twice. The next run goes on from that log.
"""

import collections
import concurrent.futures
import pathlib
import random
import signal
import sys
import tempfile
import time

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent)]
from interrupted import name_of  # noqa: E402
from runs import Neighbour, default_signals, keys_of, launch_windows, left, limit, processes, told_and_kept, went_on  # noqa: E402

from helpers import PATIENCE, wait_until  # noqa: E402

# how: (signals that are sent, the word that the run says in the end, exit statuses)
HOW = {
    "INT": (("INT",), "interrupted", (0,)),
    "INT INT": (("INT", "INT"), "interrupted", None),  # the second may come when the run is over: any status
    "STOP CONT INT": (("STOP", "CONT", "INT"), "interrupted", (0,)),
    "TERM": (("TERM",), None, (-signal.SIGTERM,)),
    "TERM, handled": (("TERM",), "exit", (0,)),
    "HUP": (("HUP",), None, (-signal.SIGHUP,)),
    "HUP, ignored": (("HUP", "INT"), "interrupted", (0,)),
    "KILL": (("KILL",), None, (-signal.SIGKILL,)),
}
WINDOWS = ("start", "begin", "pre_tune", "predict", "update", "objective", "told", "write", "kept", "swallowed", "post_tune")
SECONDS = 2.0  # from the signal until nothing of the run is there, on an idle machine


def ignore_hangups():
    """As nohup does."""
    default_signals()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def plan(rng, how):
    """The run, and the moment at which its signal comes from outside if none came in a window."""
    sent = HOW[how][0]
    more = {"trials": 4000, "resume": True, "handlers": rng.sample(("CHLD", "ALRM", "USR1", "wakeup"), rng.randrange(4))}
    more.update({k: True for k in ("model", "foreign", "overlap") if rng.random() < 0.3})
    if how == "TERM, handled":
        more["handlers"].append("TERM")
    elif sent == ("INT",) and rng.random() < 0.1:
        more["thread"] = True
    if len(sent) == 1 and rng.random() < 0.5:
        more.update(window=rng.choice(WINDOWS), count=rng.randrange(1, 5), signal=sent[0])
        if how == "INT" and rng.random() < 0.3:
            more["again"] = "write"
    return more, rng.uniform(0, 6)


def ended(p, seconds):
    return wait_until(lambda: p.poll() is not None, seconds)


def send(p, names, rng):
    """Sends the signals, unless the run has ended; returns when the last one left."""
    for k, name in enumerate(names):
        if k and ended(p, rng.uniform(0.05, 0.5)):
            break
        p.send_signal(getattr(signal, "SIG" + name))
    return time.monotonic()


def disturb(p, folder, vandal, names, moment, rng):
    """Lets the run begin and be disturbed until the moment has come; then sends the signals, unless one came in a window.
    Returns when, or None."""
    out = folder / "out"
    assert wait_until(lambda: p.poll() is not None or "begin" in out.read_text()), "it does not begin"
    if vandal:
        vandal.start()
    ended(p, moment)
    if vandal:
        vandal.end.set()
        vandal.join()
    return send(p, names, rng) if p.poll() is None and "signal" not in out.read_text() else None


def times_of(lines, *words):
    """The moments that lines which begin with one of these words tell."""
    return [float(x.split()[1]) for x in lines if x.split()[0] in words]


def run_once(folder, rng, how, disturbed):
    """Starts a run, ends it, and says what it left: (how it was, seconds until nothing of it was there, problems, the acts of
    the neighbour)."""
    names, says, statuses = HOW[how]
    more, moment = plan(rng, how)
    prepare = ignore_hangups if how == "HUP, ignored" else default_signals
    with open(folder / "out", "w") as out, open(folder / "err", "w") as err:
        p = launch_windows(folder, more, out=out, err=err, prepare=prepare)
    vandal = Neighbour(rng.randrange(1 << 30), folder, p.pid) if disturbed and "window" not in more else None
    try:
        since = disturb(p, folder, vandal, names, moment, rng)
        hangs = not ended(p, PATIENCE)
    finally:
        p.kill()
        p.wait()
    lines, problems = (folder / "out").read_text().splitlines(), []
    since = since or max(times_of(lines, "signal"), default=time.monotonic())
    if hangs:
        problems.append("it does not end")
    elif (statuses and p.returncode not in statuses) or (says and not times_of(lines, says)):
        problems.append(f"exit status {p.returncode}, {lines[-3:]}, {(folder / 'err').read_text()[-2000:]}")
    if not wait_until(lambda: not processes(folder)):
        problems.append(f"processes are left: {processes(folder)}")
    seconds = time.monotonic() - since
    if seconds > limit(5 * SECONDS):
        problems.append(f"{seconds:.1f} s until nothing of it was there")
    said = f"(said so after {max(times_of(lines, 'interrupted', 'exit'), default=since) - since:.2f} s)"
    acts = vandal.done if vandal else collections.Counter()
    return f"{how} {more} {said}", seconds, [f"{how} {more}: {x}" for x in problems], acts


def check_log(folder, how, before):
    """(the keys of the log, problems)"""
    told, kept = told_and_kept(folder)
    try:
        keys = went_on(folder, before)
    except AssertionError as e:
        return keys_of(folder), [f"{how}: {e}"]
    names, problems = {name_of(*k) for k in keys}, []
    if not kept <= names:
        problems.append(f"{how}: {len(kept - names)} of {len(kept)} records that were told after the log was written")
    if HOW[how][1] and not told <= names:
        problems.append(f"{how}: {len(told - names)} of {len(told)} records that were told before the log was written")
    for name in ("told", "kept"):  # what a killed run did not come to write is measured again, or not
        (folder / name).unlink(missing_ok=True)
    return keys, problems


def soak(folder, runs, seed):
    """So many runs on one log. Returns ([(how, seconds, details)], problems, acts of the neighbours, number of
    records)."""
    rng, before, there, times, problems, acts = random.Random(seed), [], [], [], [], collections.Counter()
    folder.mkdir(parents=True)
    for k in range(runs):
        how = rng.choice(list(HOW))
        details, seconds, wrong, done = run_once(folder, rng, how, rng.random() < 0.7)
        before, lost = check_log(folder, how, before)
        there, new = left(folder), [x for x in left(folder) if x not in there]
        if new and HOW[how][1]:
            problems.append(f"run {k}, {how}: left {new}")
        elif new:
            acts["left by a killed run to the next one"] += 1
        problems += [f"run {k}, {x}" for x in wrong + lost]
        acts.update(done)
        times.append((how, seconds, details))
    with open(folder / "err", "w") as err:
        p = launch_windows(folder, {"resume": True, "trials": 16}, out=err, err=err)
    if not ended(p, 3 * PATIENCE) or p.returncode != 0:
        problems.append("the last run: " + (folder / "err").read_text()[-2000:])
    if left(folder) or processes(folder):
        problems.append(f"the last run left {left(folder)}, {processes(folder)}")
    return times, problems, acts, len(went_on(folder, before))


def soak_lanes(folder, runs, seed, lanes=2):
    """So many runs, on so many logs at once. As `soak`."""
    with concurrent.futures.ThreadPoolExecutor(lanes) as pool:
        parts = list(pool.map(lambda i: soak(folder / str(i), runs // lanes, seed + i), range(lanes)))
    times, problems = ([x for p in parts for x in p[i]] for i in (0, 1))
    return times, problems, sum((p[2] for p in parts), collections.Counter()), sum(p[3] for p in parts)


def table(times):
    """Lines: how many runs, the median, the 95th of 100 and the most seconds of each signal."""
    groups, out = collections.defaultdict(list), []
    for how, seconds, _ in times:
        groups[how].append(seconds)
        groups["all"].append(seconds)
    for how, s in groups.items():
        s.sort()
        out.append(f"{how:14} {len(s):4} runs   median {s[len(s) // 2]:5.2f} s   95 % {s[int(0.95 * len(s))]:5.2f} s   "
                   f"most {s[-1]:5.2f} s")  # fmt: skip
    slow = sorted(times, key=lambda x: -x[1])[:5]
    return "\n".join([*sorted(out), "the slowest:", *(f"{seconds:5.2f} s  {details}" for _, seconds, details in slow)])


def main(runs, seed):
    """Prints what happened."""
    with tempfile.TemporaryDirectory() as folder:
        times, problems, acts, records = soak_lanes(pathlib.Path(folder), runs, seed)
    print(table(times))
    print(f"{records} records; the neighbours: {dict(acts)}")
    print("\n".join(problems) or "nothing lost, nothing left")
    return bool(problems)


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
