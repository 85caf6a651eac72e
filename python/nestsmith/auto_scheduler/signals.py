"""Signals during a run: noted when they come, acted upon where the run can stop.

Python calls the handler of a signal between any two steps of a program, and a handler may raise: KeyboardInterrupt for
Ctrl-C, what users want for other signals. An exception that can come anywhere can be lost anywhere. Between a measurement
and its record it loses the record; in the code of a lock it leaves the lock held, and the next one who needs it waits
forever; in a destructor it is printed and forgotten. So a run holds the signals: handlers are only noted, and called by
`Held.check`, which the run does some fifty times a second. Users' code that a run calls is the exception (`Held.call`):
there handlers are called at once, as everywhere else.
"""

import signal
import threading

from nestsmith import forks

__all__ = ["Held"]

_ALL = sorted(s for s in signal.valid_signals() if s < signal.SIGRTMIN)
_ENDS = (KeyboardInterrupt, SystemExit)  # what a handler raises to end the run, whatever users' code makes of it


class Held:
    """Holds the signals that have a handler in Python for a ``with`` block, in the main thread; elsewhere none arrive.

    Signals without such a handler do what they always do: ignored ones stay ignored, SIGTERM ends the process.
    """

    def __init__(self):
        self._handlers, self._came = {}, []
        self._open, self._raised = False, None
        forks.renew(self)

    def _forked(self):
        """A child that users' code has forked holds no signals."""
        self._put_back()
        self._came.clear()

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            try:
                for number in _ALL:
                    handler = signal.getsignal(number)
                    if callable(handler):
                        self._handlers[number] = handler
                        signal.signal(number, self._come)
            except BaseException:  # of a handler that was not replaced yet
                self._put_back()
                raise
        return self

    def __exit__(self, kind, error, trace):
        handlers, raised = self._put_back(), None
        for number in self._came:
            if number == signal.SIGINT and isinstance(error, KeyboardInterrupt):
                continue  # pressed again while the run was ending
            try:
                handlers[number](number, None)
            except BaseException as e:
                raised = raised or e
        self._came.clear()
        if raised is not None:
            raise raised

    def _put_back(self):
        handlers, raised = self._handlers, None
        for number, handler in handlers.items():
            try:
                if signal.getsignal(number) == self._come:  # else users' code has set another one
                    signal.signal(number, handler)
            except BaseException as e:
                raised = raised or e
        if raised is not None:
            raise raised
        return handlers

    def _come(self, number, frame):
        if self._open:
            self._act(number, frame)
        else:
            self._came.append(number)

    def _act(self, number, frame):
        try:
            self._handlers[number](number, frame)
        except BaseException as e:
            self._raised = e
            raise

    def check(self):
        """Calls the handlers of the signals that have come. Raises what they raise."""
        while self._came:
            self._act(self._came.pop(0), None)

    def call(self, function, *arguments):
        """Calls users' code, in which handlers may be called at any moment. A KeyboardInterrupt or SystemExit of theirs
        ends the call also where that code swallows it or makes another error of it."""
        before, self._open, self._raised = self._open, True, None
        try:
            return function(*arguments)
        finally:
            self._open = before
            raised, self._raised = self._raised, None
            if isinstance(raised, _ENDS):
                raise raised
