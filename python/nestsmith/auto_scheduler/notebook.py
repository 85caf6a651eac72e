"""What a notebook shows while tuning: a progress bar or a line of numbers, the table of tasks, and two curves.

The best latency is drawn over trials and over time. The curves are redrawn after rounds only, because drawing takes
processor time that a measurement on the CPU would notice; the line is redrawn twice a second. matplotlib draws the
curves and tqdm (with ipywidgets) the bar where they are installed; without them the curves are SVG made here and the
line is text, and a sentence says what to install.
"""

import base64
import html
import importlib.util
import io
import sys
import time

from .plot import Plot

__all__ = ["NotebookView", "in_notebook"]

HINT = "Curves without matplotlib; for figures that can be edited: pip install matplotlib, then restart the kernel."


def in_notebook():
    """Whether this process is the kernel of a notebook (a terminal's IPython is not)."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


def _pre(text):
    """Text as HTML whose columns stay in line, in pages made of a notebook too, whose own style is for prose."""
    return f'<pre style="font-family: monospace; white-space: pre; line-height: 1.2">{html.escape(text)}</pre>'


def _there(*modules):
    return all(importlib.util.find_spec(m) is not None for m in modules)


class NotebookView:
    """The output of one tuning run in a notebook cell, redrawn in place.

    Parameters
    ----------
    show : callable, optional
        Takes the whole as HTML after each change; IPython's display by default.
    total : int
        Trials of the whole run, for the bar.
    matplotlib : bool, optional
        Draw with matplotlib; by default if it is installed.
    """

    def __init__(self, show=None, total=0, matplotlib=None):
        self.points, self.said, self.table, self.text, self.started = [], [], "", "", time.time()
        self.trials = 0
        self._show, self._handles, self._drawn, self._bar = show, {}, 0.0, None
        self.matplotlib = _there("matplotlib") if matplotlib is None else matplotlib
        if show is None and total > 0 and _there("ipywidgets"):
            from tqdm.notebook import tqdm

            self._bar = tqdm(total=total, unit="trial")

    def update(self, trials, line, final=False):
        """Trials so far and the line of numbers."""
        self.text, self.trials = line, trials
        if not final and time.time() - self._drawn < 0.5:
            return
        self._drawn = time.time()
        if self._show is not None:
            self._show(self.html())
            return
        if self._bar is not None:
            self._bar.update(trials - self._bar.n)
        self._put("line", {"text/plain": line, "text/html": _pre(line)})

    def point(self, trials, seconds):
        """The estimate after a round, in seconds, None while some task has no valid result."""
        if seconds is not None and (not self.points or seconds * 1e3 != self.points[-1][2]):
            self.points.append((trials, time.time() - self.started, seconds * 1e3))
            self._draw()

    def say(self, text):
        """Text that stays; the last few are shown."""
        self.said = [*self.said, text][-20:]
        self._draw()

    def finish(self, trials, line):
        """The last state, which a saved notebook keeps."""
        self.update(trials, line, final=True)
        self._draw()
        if self._bar is not None:
            self._bar.close()

    def plots(self):
        """The two curves as `Plot`: over trials and over seconds."""
        return [Plot([("estimate", [(n, ms) for n, _, ms in self.points])], "trials", self.trials),
                Plot([("estimate", [(t, ms) for _, t, ms in self.points])], "seconds", time.time() - self.started)]

    def figure(self):
        """Both curves as one matplotlib figure."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 3.2), layout="constrained")
        for axes, plot in zip(figure.subplots(1, 2), self.plots()):
            plot.draw(axes)
        return figure

    def _extra(self):
        parts = [self.table] if self.table else []
        return "\n".join(parts + self.said[-3:])

    def html(self):
        """Everything as HTML, with curves that need no plotting library."""
        out = _pre(self.text)
        if self.points:
            out += "".join(p.svg() for p in self.plots())
        if self._extra():
            out += _pre(self._extra())
        return out

    def _draw(self):
        if self._show is not None:
            self._show(self.html())
            return
        if self.points and self.matplotlib:
            data = io.BytesIO()
            self.figure().savefig(data, format="png", dpi=80)
            what = {"image/png": base64.b64encode(data.getvalue()).decode(), "text/plain": "best latency so far"}
            self._put("curves", what)
        elif self.points:
            svg = "".join(p.svg() for p in self.plots()) + f"<p>{HINT}</p>"
            self._put("curves", {"text/html": svg, "text/plain": HINT})
        if self._extra():
            text = self._extra()
            self._put("text", {"text/plain": text, "text/html": _pre(text)})

    def _put(self, name, data):
        from IPython.display import display

        if name not in self._handles:
            self._handles[name] = display(data, raw=True, display_id=True)
        else:
            self._handles[name].update(data, raw=True)
