"""Ctrl-C while the engine searches in the main thread: heard at once, whatever Python code the engine is calling."""

import contextlib
import io
import os
import signal
import threading

import pytest

from nestsmith import auto_scheduler, target, te


@pytest.fixture(autouse=True)
def ctrl_c():
    """As in a program that a user starts; who runs the tests in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@auto_scheduler.register_workload
def interrupted_matmul(n):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    r = te.reduce_axis((0, n), name="k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=[r]), name="C")]


class Screen(io.StringIO):
    """Where the search shows its progress. Somebody sees a word there and presses Ctrl-C."""

    def __init__(self, word):
        super().__init__()
        self.word, self.pressed = word, 0

    def write(self, text):
        if self.word in text and not self.pressed:  # a second press may be heard when all is over
            self.pressed += 1
            os.kill(os.getpid(), signal.SIGINT)
        return super().write(text)


class Model(auto_scheduler.PythonBasedModel):
    pressed, heard = 0, threading.Event()

    def predict(self, task, states):
        self.pressed += 1
        if self.pressed == 1:
            os.kill(os.getpid(), signal.SIGINT)
        self.heard.wait()
        return [0.5] * len(states)


def policy(model=None, verbose=1):
    task = auto_scheduler.SearchTask(func=interrupted_matmul, args=(64,), target=target.Target("llvm"))
    return auto_scheduler.SketchPolicy(task, model or auto_scheduler.AnalyticModel(), seed=1, verbose=verbose)


@pytest.mark.parametrize("word", ["Generate Sketches", "Sample Initial Population", "GA Iter", "EvolutionarySearch"])
def test_at_each_line_of_progress(word):
    p, screen = policy(), Screen(word)
    with contextlib.redirect_stdout(screen), pytest.raises(KeyboardInterrupt):
        p.evolutionary_search(p.sample_initial_population(), 8)
    assert screen.pressed
    assert p.sample_initial_population(), "it can go on"


def test_in_a_cost_model():
    """The rest of the population is not scored any more."""
    model = Model()
    p = policy(model, 0)

    def hear(number, frame):
        model.heard.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, hear)
    with pytest.raises(KeyboardInterrupt):
        p.sample_initial_population()
    assert 1 <= model.pressed < 64, "of the 128 chunks of a population"
