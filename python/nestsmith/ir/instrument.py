"""What watches passes: a context of passes tells its instruments when it begins and ends, and before and after every pass.

>>> timing = PassTimingInstrument()
>>> with transform.PassContext(opt_level=3, instruments=[timing]):
...     lib = relay.build(mod, "llvm")
...     print(timing.render())
"""

import pathlib
import time

__all__ = ["PassInstrument", "pass_instrument", "PassTimingInstrument", "PassPrintingInstrument", "PrintBeforeAll", "PrintAfterAll", "DumpIR"]


class PassInstrument:
    """Base class; every method may be left out."""

    def enter_pass_ctx(self):
        """The context begins."""

    def exit_pass_ctx(self):
        """The context ends."""

    def should_run(self, mod, info):
        """Whether a pass is to run."""
        return True

    def run_before_pass(self, mod, info):
        """A pass (`info` has its `name` and `opt_level`) is about to run on a module."""

    def run_after_pass(self, mod, info):
        """A pass has run and made this module."""


def pass_instrument(pi_cls=None):
    """Decorator: a class with some of the methods of :class:`PassInstrument` becomes one."""

    def make(cls):
        return type(cls.__name__, (cls, PassInstrument), {"__doc__": cls.__doc__, "__module__": cls.__module__})

    return make(pi_cls) if pi_cls is not None else make


class PassTimingInstrument(PassInstrument):
    """How long each pass takes, those that it runs itself among them."""

    def __init__(self):
        self._lines, self._begun = [], []

    def enter_pass_ctx(self):
        self._lines, self._begun = [], []

    exit_pass_ctx = enter_pass_ctx

    def run_before_pass(self, mod, info):
        self._begun.append((len(self._lines), time.perf_counter()))
        self._lines.append((len(self._begun) - 1, info.name, 0.0))

    def run_after_pass(self, mod, info):
        at, start = self._begun.pop()
        self._lines[at] = (*self._lines[at][:2], time.perf_counter() - start)

    def render(self):
        """A line for each pass since the context began, indented below the pass that ran it; call it before the context ends."""
        return "".join(f"{'  ' * depth}{name}: {seconds * 1e6:.0f}us\n" for depth, name, seconds in self._lines)


class PassPrintingInstrument(PassInstrument):
    """Prints the module before and after the passes of these names."""

    def __init__(self, print_before_pass_names=(), print_after_pass_names=()):
        self._before, self._after = set(print_before_pass_names), set(print_after_pass_names)

    def run_before_pass(self, mod, info):
        if info.name in self._before:
            print(f"Print IR before: {info.name}\n{mod}\n")

    def run_after_pass(self, mod, info):
        if info.name in self._after:
            print(f"Print IR after: {info.name}\n{mod}\n")


class PrintBeforeAll(PassInstrument):
    """Prints the name of every pass, and the module before it."""

    def run_before_pass(self, mod, info):
        print(f"Before Running Pass: {info.name}\n{mod}")


class PrintAfterAll(PassInstrument):
    """Prints the name of every pass, and the module after it."""

    def run_after_pass(self, mod, info):
        print(f"After Running Pass: {info.name}\n{mod}")


class DumpIR(PassInstrument):
    """Writes the module after each pass to a file of its own, ``<number>_<pass>.ir``, in a folder; `refresh`: those of the last time go."""

    def __init__(self, dump_dir, refresh=False):
        self.dir, self.number, self.refresh = pathlib.Path(dump_dir), 0, refresh

    def enter_pass_ctx(self):
        self.dir.mkdir(parents=True, exist_ok=True)
        if self.refresh:
            for old in self.dir.glob("*.ir"):
                old.unlink()

    def run_after_pass(self, mod, info):
        (self.dir / f"{self.number:03d}_{info.name.replace('.', '_')}.ir").write_text(str(mod))
        self.number += 1
