"""Curves of tuning runs: best time over trials and over time, as SVG without a plotting library.

``auto_scheduler.plot_log("log.json")`` in a notebook shows itself; ``plot_log("log.json").savefig("curve.svg")`` writes
a file. `Plot.figure` gives the same as a matplotlib figure.
"""

import html
import math
import os
import pathlib

from .measure_record import KEY, TIME, fallen, records_of
from .workload_keys import decode_workload_key

__all__ = ["Plot", "plot_log", "plot_latency"]

_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#17becf", "#7f7f7f")
_LEFT, _TOP, _WIDTH, _HEIGHT, _LEGEND = 62, 14, 560, 300, 190


class Plot:
    """Curves with a logarithmic axis of milliseconds.

    Parameters
    ----------
    curves : list of (label, [(x, milliseconds), ...])
        Best times so far: each point holds until the next one.
    xlabel : str
    right : float, optional
        Where the horizontal axis ends; at the last point by default.
    """

    def __init__(self, curves, xlabel, right=0.0):
        self.curves = [(label, [(float(x), float(y)) for x, y in points if y > 0]) for label, points in curves]
        self.curves = [c for c in self.curves if c[1]]
        self.xlabel, self.right = xlabel, float(right)

    def __repr__(self):
        return f"Plot({len(self.curves)} curves over {self.xlabel})"

    def _axes(self):
        xs = [x for _, c in self.curves for x, _ in c] or [1.0]
        ys = [y for _, c in self.curves for _, y in c] or [1.0]
        low, high = math.log10(min(ys)) - 0.05, math.log10(max(ys)) + 0.05
        return max(*xs, self.right, 1e-9), low, high

    def svg(self):
        """The picture as text."""
        right, low, high = self._axes()

        def px(x):
            return _LEFT + _WIDTH * x / right

        def py(y):
            return _TOP + _HEIGHT * (high - math.log10(y)) / (high - low)

        out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + _LEGEND}" height="{_TOP + _HEIGHT + 44}"'
            ' font-family="sans-serif" font-size="11">',
            f'<rect width="100%" height="100%" fill="white"/><rect x="{_LEFT}" y="{_TOP}" width="{_WIDTH}" '
            f'height="{_HEIGHT}" fill="none" stroke="#888"/>',
        ]
        for y in _ticks_log(low, high):
            out.append(
                f'<path d="M{_LEFT} {py(y):.1f}h{_WIDTH}" stroke="#ddd"/>'
                f'<text x="{_LEFT - 5}" y="{py(y) + 4:.1f}" text-anchor="end">{y:g}</text>'
            )
        for k in range(6):
            x = right * k / 5
            out.append(f'<text x="{px(x):.1f}" y="{_TOP + _HEIGHT + 16}" text-anchor="middle">{x:.4g}</text>')
        out.append(
            f'<text x="{_LEFT + _WIDTH / 2}" y="{_TOP + _HEIGHT + 34}" text-anchor="middle">{html.escape(self.xlabel)}'
            f'</text><text x="13" y="{_TOP + _HEIGHT / 2}" text-anchor="middle" '
            f'transform="rotate(-90 13 {_TOP + _HEIGHT / 2})">best latency (ms)</text>'
        )
        for n, (label, points) in enumerate(self.curves):
            colour = _COLOURS[n % len(_COLOURS)]
            path = f"M{px(points[0][0]):.1f} {py(points[0][1]):.1f}"
            for x, y in points[1:]:
                path += f"H{px(x):.1f}V{py(y):.1f}"
            out.append(f'<path d="{path}H{px(right):.1f}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
            if n < 20:
                at = _TOP + 10 + 15 * n
                out.append(
                    f'<text x="{_LEFT + _WIDTH + 8}" y="{at}" fill="{colour}">{html.escape(label[:26])} '
                    f"{points[-1][1]:.4g}</text>"
                )
        return "\n".join(out) + "\n</svg>\n"

    _repr_svg_ = svg

    def figure(self):
        """A matplotlib figure of the same curves. Raises ImportError that names the package to install."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise ImportError("this needs matplotlib: pip install matplotlib; .svg files need nothing") from None
        figure = Figure(figsize=(9, 4.5))
        self.draw(figure.add_subplot())
        return figure

    def draw(self, axes):
        """Draws the curves into matplotlib axes."""
        right = self._axes()[0]
        for label, points in self.curves:
            xs, ys = zip(*points, (right, points[-1][1]))
            axes.step(xs, ys, where="post", label=label)
        low, high = self._axes()[1:]
        scale = "log" if high - low > 1 else "linear"  # a logarithmic axis wants a range of ten at least
        axes.set(xlabel=self.xlabel, ylabel="best latency (ms)", yscale=scale, xlim=(0, right * 1.02))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}" if scale == "log" else "")
        axes.grid(alpha=0.3)
        if len(self.curves) > 1:
            axes.legend(fontsize="x-small")

    def savefig(self, path):
        """Writes ``.svg`` directly, other formats through matplotlib."""
        if os.fspath(path).lower().endswith(".svg"):
            pathlib.Path(path).write_text(self.svg(), encoding="utf-8")
        else:
            self.figure().savefig(path)


def _ticks_log(low, high):
    ticks = [m * 10.0**e for e in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5)]
    ticks = [t for t in ticks if low <= math.log10(t) <= high]
    return ticks or [float(f"{10 ** ((low + high) / 2):.2g}")]


def _layers(tasks, weights):
    """[(workloads of the task and of other ways to compute the same, weight)] of a network's tasks."""
    each = [(weights or {}).get(t.workload_key, 1.0) for t in tasks] if weights is None or isinstance(weights, dict) else list(weights)
    if len(each) != len(tasks):
        raise ValueError(f"weights has {len(each)} numbers; tasks has {len(tasks)}")
    return [({decode_workload_key(k) for k in t.layer_keys}, float(w)) for t, w in zip(tasks, each)]


def plot_log(log, by="trials", weights=None, tasks=None):
    """Best time so far of every task of a log, and their sum once all have a result.

    A log does not know its network: without `tasks` each task that it holds counts once, or as `weights` says, and so do other ways
    to compute the same layer, as Winograd's. With them the sum is the network's: only its layers count, each with its weight and in the
    fastest way that the log has.

    Parameters
    ----------
    log : str, pathlib.Path or list of them
    by : "trials" or "time"
        What the horizontal axis counts: records of the log, or seconds since its first one.
    weights : dict of str to number, or list of number, optional
        How often the network runs each workload key, or each of `tasks`; once if nothing is said.
    tasks : list of SearchTask, optional
        The network's, as `extract_tasks` gives them.

    Returns
    -------
    Plot
        Shows itself in a notebook; ``.savefig(path)`` writes it.

    Raises
    ------
    ValueError
        If `by` is something else, or the numbers of weights and tasks differ.
    FileNotFoundError
        If there is no such log.
    """
    if by not in ("trials", "time"):
        raise ValueError(f"by={by!r}: expected 'trials' or 'time'")
    fields = list(records_of(log))
    start = min((f[TIME] for f in fields if f[TIME] > 0), default=0)
    held = dict.fromkeys(decode_workload_key(f[KEY]) for f in fields)
    if tasks is None:
        weight = {decode_workload_key(k): float(w) for k, w in (weights or {}).items()}
        layers = [({t}, weight.get(t, 1.0)) for t in held]
        what = "weighted sum" if weights else "sum over tasks, weights 1"
    else:
        layers, what = _layers(tasks, weights), "network"
    lowest, curves, total = {}, {t: [] for t in held}, []
    for n, task, cost, f in fallen(fields, lambda f: decode_workload_key(f[KEY])):
        x = n if by == "trials" else max(0, f[TIME] - start)
        lowest[task] = cost
        curves[task].append((x, cost * 1e3))
        best = [min((lowest[t] for t in ways if t in lowest), default=None) for ways, _ in layers]
        now = 0.0 if None in best else sum(c * w for c, (_, w) in zip(best, layers)) * 1e3
        if now and (not total or now < total[-1][1]):
            total.append((x, now))
    named = [(f"{str(t[0])[:10]} {' '.join(map(str, t[1] or ()))}", c) for t, c in curves.items()]
    named.sort(key=lambda c: -c[1][-1][1] if c[1] else 0)
    return Plot([(what, total), *named] if len(held) > 1 or tasks is not None else named, "trials" if by == "trials" else "seconds")


def plot_latency(tsv="total_latency.tsv", by="trials"):
    """The estimated total latency that `LogEstimatedLatency` wrote, over trials or time."""
    points = []
    with open(tsv, encoding="utf-8") as f:
        for line in f:
            part = line.rstrip("\n").split("\t")
            row = dict(zip(part[::2], part[1::2]))
            try:
                points.append((int(row["Trials"]) if by == "trials" else float(row["ElapsedTime(s)"]),
                               float(row["EstimatedLatency(ms)"])))
            except (KeyError, ValueError):
                continue  # no estimate yet, or an unfinished line
    return Plot([("estimated total", points)], "trials" if by == "trials" else "seconds")
