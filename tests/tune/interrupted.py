"""A tuning run that sends itself a signal in a window of the user's choice; test_signals.py starts it.

    python interrupted.py '[{"window": "predict", "count": 3, "signal": "INT"}]'

Several runs follow each other on one log. Windows are places where users' code runs (callbacks, a cost model, an objective)
or where the system tells of what the run does (`sys.addaudithook`: the log is opened); where there is neither, the one who
started the run sends the signal. Two files tell what the run has told its users: "told" has a line for each result that
came before the log was written, "kept" one for each that came after.
"""

import faulthandler
import hashlib
import json
import os
import signal
import socket
import sys
import threading
import time

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
from matmuls import long_task, options, small, tasks_of  # noqa: E402

from helpers import children  # noqa: E402
from nestsmith import auto_scheduler  # noqa: E402

LOG = "log.json"


def note(text):
    """A line of standard output, at once and from any thread."""
    os.write(1, (text + "\n").encode())


def name_of(key, steps):
    """What stands for a record in the files "told" and "kept"."""
    return hashlib.md5((key + steps).encode()).hexdigest()


class Windows:
    """Sends the signal when the chosen window is passed for the `count`-th time; "again" is a second window, for a second
    signal later."""

    def __init__(self, window=None, count=1, signal="INT", again=None, **_):
        self.todo = [(window, count), *([(again, 1)] if again else [])]
        self.number, self.passed = getattr(__import__("signal"), "SIG" + signal), 0

    def go_by(self, window):
        if not self.todo or self.todo[0][0] != window:
            return
        self.passed += 1
        if self.passed < self.todo[0][1]:
            return
        self.todo.pop(0)
        self.passed = 0
        note(f"signal {time.monotonic()}")
        os.kill(os.getpid(), self.number)


def watch_log(windows):
    """Passes the window "write" when the log is opened to be written."""

    def hook(event, args):
        if event == "open" and args[0] == LOG and args[2] & os.O_APPEND:
            windows.go_by("write")

    sys.addaudithook(hook)


class Told(auto_scheduler.MeasureCallback):
    """Writes the results that it hears of to a file of its name, then passes a window of that name."""

    def __init__(self, name, windows):
        self.name, self.windows = name, windows
        self.file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def callback(self, policy, inputs, results):
        names = [name_of(i.task.workload_key, i.state.state_object.steps()) for i in inputs]
        os.write(self.file, "".join(n + "\n" for n in names).encode())
        self.windows.go_by(self.name)


class Deaf(auto_scheduler.MeasureCallback):
    """Swallows what is raised in it."""

    def __init__(self, windows):
        self.windows = windows

    def callback(self, policy, inputs, results):
        try:
            self.windows.go_by("swallowed")
        except:  # noqa: E722 - the mistake that users make
            pass


class Around(auto_scheduler.TaskSchedulerCallback):
    """Callbacks of the scheduler."""

    def __init__(self, windows):
        self.windows = windows

    def start(self, task_scheduler):
        self.windows.go_by("start")

    def pre_tune(self, task_scheduler, task_id):
        self.windows.go_by("pre_tune")

    def post_tune(self, task_scheduler, task_id):
        self.windows.go_by("post_tune")


class Model(auto_scheduler.XGBModel):
    """The engine's model behind Python: its scorer is called while states are sampled (first) and evolved (later)."""

    windows: Windows

    def scorer(self, task, engine=None):
        super().scorer(task, engine)
        return auto_scheduler.CostModel.scorer(self, task, engine)

    def predict(self, task, states):
        self.windows.go_by("predict")
        return super().predict(task, states)

    def update(self, inputs, results):
        self.windows.go_by("update")
        super().update(inputs, results)


def reap(number, frame):
    """A handler that waits for all children, whosever they are, as servers do."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except OSError:
        pass


def set_handlers(names):
    """What other parts of a user's program may have set."""
    if "CHLD" in names:
        signal.signal(signal.SIGCHLD, reap)
    if "ALRM" in names:
        signal.signal(signal.SIGALRM, lambda number, frame: None)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    if "USR1" in names:
        faulthandler.register(signal.SIGUSR1, file=open(os.devnull, "w"))
    if "wakeup" in names:
        ends = socket.socketpair()
        for end in ends:
            end.setblocking(False)
        signal.set_wakeup_fd(ends[1].fileno(), warn_on_full_buffer=False)
        set_handlers.keep = ends
    if "TERM" in names:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit("told to end"))


def run(trials=400, target="llvm", resume=False, model=False, foreign=False, overlap=False, long=False, tell=None, batch=8, **more):
    """The run; what it is interrupted by comes out. overlap: it searches while it measures, as on a GPU."""
    auto_scheduler.TaskScheduler._overlap = lambda self: overlap or target != "llvm"
    windows = Windows(**more)
    watch_log(windows)
    tuner = auto_scheduler.TaskScheduler(
        [long_task()] if long else tasks_of(32, 48, target=target),
        load_log_file=LOG if resume and os.path.exists(LOG) else None,
        callbacks=[Around(windows)],
        objective_func=lambda costs: (windows.go_by("objective"), sum(costs))[1],
    )
    opt = options(trials, batch, LOG)
    opt.runner = (type("Mine", (auto_scheduler.LocalRunner,), {}) if foreign else auto_scheduler.LocalRunner)(
        number=1, repeat=1, min_repeat_ms=0, timeout=20, busy="turns"
    )
    opt.measure_callbacks[:0] = [Told("told", windows)]
    opt.measure_callbacks += [Told("kept", windows), Deaf(windows)]
    if tell is not None:
        tell(tuner)
    cost_model = None
    if model:
        cost_model = Model(seed=1)
        cost_model.windows = windows
    note("begin")
    windows.go_by("begin")
    tuner.tune(opt, search_policy="sketch.random", search_policy_params=small(), cost_model=cost_model)
    return tuner.ct


def run_in_thread(**more):
    """Signals arrive in the main thread, which waits for the one that tunes and has it stopped."""
    tuners, done, out = [], threading.Event(), []

    def tune():
        try:
            out.append(run(tell=tuners.append, **more))
        finally:
            done.set()

    threading.Thread(target=tune).start()
    try:
        done.wait()  # Thread.join takes an interrupted wait for the thread's end (python/cpython#90882)
    except KeyboardInterrupt:
        for tuner in tuners:
            tuner.stop()
        done.wait()
        raise
    return out[0]


def main(runs):
    for how in runs:
        set_handlers(how.pop("handlers", ()))
        try:
            note(f"end {(run_in_thread if how.pop('thread', False) else run)(**how)}")
        except KeyboardInterrupt:
            note(f"interrupted {time.monotonic()}")
        except SystemExit as e:
            note(f"exit {time.monotonic()} {e}")
        note(f"children {len(children())}")
    signal.setitimer(signal.ITIMER_REAL, 0)  # the interpreter's end takes the handler away


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
