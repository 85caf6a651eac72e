"""What a notebook shows while tuning: one cell output that is redrawn, a line of numbers above two curves."""

from __future__ import annotations

import html
import sys
import time

__all__ = ["NotebookView", "in_notebook"]


def in_notebook():
    """Whether this process is the kernel of a notebook (a terminal's IPython is not)."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


class NotebookView:
    """Redraws at most twice a second; text that was said stays below the curves.

    Parameters
    ----------
    show : callable, optional
        Takes the HTML; IPython's display by default.
    """

    def __init__(self, show=None):
        self.points, self.said, self.started = [], [], time.time()
        self._show, self._handle, self._drawn = show, None, 0.0

    def update(self, trials, seconds, line, final=False):
        """A new state: trials so far, estimate in seconds or None, the line of numbers."""
        if seconds is not None and (not self.points or seconds * 1e3 != self.points[-1][2]):
            self.points.append((trials, time.time() - self.started, seconds * 1e3))
        if final or time.time() - self._drawn >= 0.5:
            self._drawn = time.time()
            self._draw(self.html(line))

    def say(self, text):
        """Text that stays."""
        self.said.append(text)
        self.said = self.said[-20:]

    def html(self, line):
        """The picture as HTML."""
        from .plot import Plot

        out = f"<pre>{html.escape(line)}</pre>"
        if self.points:
            out += Plot([("estimate", [(n, ms) for n, _, ms in self.points])], "trials").svg()
            out += Plot([("estimate", [(t, ms) for _, t, ms in self.points])], "seconds").svg()
        if self.said:
            out += f"<pre>{html.escape(chr(10).join(self.said[-3:]))}</pre>"
        return out

    def _draw(self, text):
        if self._show is not None:
            self._show(text)
            return
        from IPython.display import HTML, display

        if self._handle is None:
            self._handle = display(HTML(text), display_id=True)
        else:
            self._handle.update(HTML(text))
