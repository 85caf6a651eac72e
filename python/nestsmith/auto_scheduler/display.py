"""What a tuning run shows: the live line, the marks of each candidate, the choice of how much.

Three ways to show a run, chosen by `progress` and by `TuningOptions(verbose=...)`:

* text, the default with ``verbose=1``: everything the reference prints (search, marks, a table before each round), and a
  live line where standard error is a terminal;
* bar: the live line, or one line per round where there is no terminal, and the table of tasks at the start, after each
  quarter of the trials and at the end; the default in notebooks, which show the line and two curves;
* none, the same as ``verbose=0``.

All of it is written by the main process, so notebooks and pipes see the same.
"""

import collections
import contextlib
import math
import sys
import time

from nestsmith import check

from . import notebook
from .cost import FAILED, cause_of, seconds_of

__all__ = ["progress", "style", "emit", "title", "marks", "short", "Progress"]

MODES = "auto", "bar", "marks", "none"
_mode = {"now": "auto"}


def progress(mode="auto"):
    """Chooses how tuning runs of this process show themselves; also usable as ``with nestsmith.progress("bar"):``.

    Parameters
    ----------
    mode : str
        "bar": a live line and a few tables. "marks": the reference's text with its marks and without a live line.
        "none": nothing. "auto": what ``verbose`` and the surroundings (terminal, pipe, notebook) suggest.

    Returns
    -------
    context manager
        Restores the earlier mode at the end of its block.

    Raises
    ------
    ValueError
        If the mode is none of these.
    """
    check.one_of_names("progress mode", mode, MODES)
    restore = contextlib.ExitStack()
    restore.callback(_mode.update, now=_mode["now"])
    _mode["now"] = mode
    return restore


def style(verbose):
    """"none", "bar" or "text": what a run that starts now shows."""
    mode = _mode["now"]
    if verbose < 1 or mode == "none":
        return "none"
    if mode == "auto":
        return "bar" if verbose == 1 and notebook.in_notebook() else "text"
    return "text" if mode == "marks" else "bar"


def emit(text):
    """Prints text, above the live progress line if there is one."""
    tqdm = getattr(sys.modules.get("tqdm"), "tqdm", None)
    if getattr(tqdm, "_instances", None):
        tqdm.write(text)
    else:
        print(text, flush=True)


def title(name):
    """A title as progress output shows it."""
    emit("-" * 70 + "\n" + "-" * 30 + f"  [ {name} ]\n" + "-" * 70)


_MARKS = {0: (".", "*"), 1: (".E", ""), 2: (".E", ""), 6: (".T", ""), 5: (".", "*W"), 7: (".", "*T")}


def marks(errors, group=32):
    """One line for each group of candidates: how building went, then how running went, from their error numbers.

    ``.`` built, ``.E`` not built, ``.T`` build timeout; ``*`` run, ``*E`` run error, ``*T`` run timeout, ``*W`` wrong
    answer.
    """
    lines = []
    for k in range(0, len(errors), group):
        pairs = [_MARKS.get(e, (".", "*E")) for e in errors[k : k + group]]
        lines.append("".join(b for b, _ in pairs) + "".join(r for _, r in pairs))
    return "\n".join(lines)


def short(desc):
    """A task's description without the prefixes that all have: ``conv2d_add_relu_3``."""
    first = desc.split(",")[0]
    for prefix in ("vm_mod_", "tvmgen_default_", "fused_"):
        first = first.removeprefix(prefix)
    return first.replace("nn_", "").replace("contrib_conv2d_winograd_without_weight_transform", "conv2d_winograd")


def _minutes(seconds):
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Progress:
    """One live line on a terminal or in a notebook, one line per round elsewhere.

    Parameters
    ----------
    total : int
        Trials of the whole run.
    verbose : int
        0 shows nothing, 1 what `style` says, 2 every result as well.
    seconds : float, optional
        After which the run ends, if it is not at its end before.
    """

    WINDOW = 5  # rounds that the rate and the remaining time are taken from

    def __init__(self, total, verbose=1, seconds=None):
        self.total, self.verbose, self.done, self.errors = total, verbose, 0, 0
        self.style = style(verbose)
        self.label, self.estimate, self.note, self.finished = "", None, "", False
        self.causes, self.best_speed = collections.Counter(), 0.0
        self.started = time.time()
        self.until = None if seconds is None else self.started + seconds
        self.rounds = collections.deque([(self.started, 0)], self.WINDOW + 1)
        self.bar = self.view = None
        if self.style == "none" or total <= 0:
            return
        if self.style == "bar" and notebook.in_notebook():
            self.view = notebook.NotebookView(total=total)
        elif sys.stderr.isatty() and _mode["now"] != "marks":
            from tqdm.auto import tqdm

            self.bar = tqdm(
                total=total, mininterval=0.2, dynamic_ncols=True, leave=True,
                bar_format="{desc}{n_fmt} trials, {unit}" if seconds is not None else "{desc}{n_fmt}/{total_fmt} |{bar:12}| {unit}",
                unit="",  # the unit is free text: our numbers
            )

    def task(self, label):
        """The task being searched or measured."""
        self.label = label
        self._show()

    def result(self, batch, res, inp=None):
        """One measured candidate."""
        self.done += 1
        if res.error_no != 0:
            self.errors += 1
            self.causes[cause_of(res)] += 1
        if self.bar is not None:
            self.bar.update(1)
        if self.verbose >= 2 and self.style == "text" and inp is not None:
            self._say_result(res, inp)
        self._show()

    def _say_result(self, res, inp):
        seconds = seconds_of(res)
        speed = inp.task.compute_dag.flop_ct / seconds / 1e9 if seconds < FAILED else 0.0
        self.best_speed = max(self.best_speed, speed)
        rule = "=" * 50
        self.say(f"{rule}\nNo: {self.done}\tGFLOPS: {speed:.2f} / {self.best_speed:.2f}\tresults: {res}\n{rule}\n{inp.state}")

    def set_estimate(self, seconds, note=""):
        """The objective so far in seconds, None while some task has no valid result; `note` says how many have."""
        self.estimate, self.note = seconds, note
        self._show()
        if self.view is not None:
            self.view.point(self.done, seconds)

    def measured(self, batch):
        """After a round: its marks, where the reference's text goes to a pipe or a file. (A user's own builder and
        runner print their own.)"""
        results = [r for r in batch.results if r is not None]
        if self.style != "text" or self.bar is not None or not results or batch.future is not None:
            return
        title("Measure")
        print(f"Get {len(results)} programs to measure:\n{marks([r.error_no for r in results])}\nTime elapsed for "
              f"measurement: {batch.ended - batch.started:.2f} s", flush=True)

    def round_line(self):
        """After a round: the rate is known anew, and the line is printed where there is no terminal."""
        self.rounds.append((time.time(), self.done))
        if self.style != "none" and self.bar is None and self.view is None and self.done > 0:
            print(self.line(), flush=True)

    def seconds_left(self):
        """Seconds until the time limit of the run; infinity if it has none."""
        return math.inf if self.until is None else self.until - time.time()

    def rate(self):
        """(seconds per trial or None, remaining seconds or None) from the last rounds."""
        (t0, n0), (t1, n1) = self.rounds[0], self.rounds[-1]
        clock = max(0, self.seconds_left())
        per = (t1 - t0) / (n1 - n0) if n1 > n0 else None
        left = max(0, self.total - self.done) * per if per is not None and len(self.rounds) > 2 else math.inf
        return per, min(left, clock) if min(left, clock) < math.inf else None

    def _numbers(self):
        best = f"best {self.estimate * 1e3:.3f} ms" if self.estimate is not None else "best -"
        best += f" ({self.note})" if self.note else ""
        kinds = ", ".join(f"{cause} {n}" for cause, n in self.causes.most_common(2))
        failed = f"failed {self.errors}" + (f" ({kinds})" if kinds else "")
        per, left = self.rate()
        rate = "- s/trial" if per is None else f"{per:.2f} s/trial"
        eta = "ETA -" if left is None else f"ETA {_minutes(left)}"
        if self.finished:
            eta = f"{_minutes(time.time() - self.started)} in all"
        return [best, failed, rate, eta]

    def line(self):
        """The line of numbers as text."""
        of = "" if self.until is not None else f"/{self.total}"  # the clock ends the run, as a rule
        return f"[{self.label}]  trials {self.done}{of}  " + "  ".join(self._numbers())

    def _show(self):
        if self.view is not None:
            self.view.update(self.done, self.line())
        if self.bar is not None:
            self.bar.set_description_str(f"[{self.label[:32]}] ", refresh=False)
            self.bar.unit = ", ".join(self._numbers())

    def table(self, text):
        """The table of tasks: above the live line, or in its place in a notebook."""
        if self.view is not None:
            self.view.table = text
        else:
            self.say(text)

    def say(self, text):
        """Text above the live line."""
        if self.style == "none":
            return
        if self.bar is not None:
            self.bar.write(text)
        elif self.view is not None:
            self.view.say(text)
        else:
            print(text, flush=True)

    def close(self):
        """Ends the live line."""
        if self.finished:
            return
        self.finished = True
        if self.view is not None:
            self.view.finish(self.done, self.line())
        if self.bar is not None:
            self._show()
            self.bar.close()
            self.bar = None
