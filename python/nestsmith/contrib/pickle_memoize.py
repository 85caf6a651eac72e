"""Results of functions kept in files of the working directory, in ``.pkl_memoize_py3``: for reference data of tests."""

import atexit
import functools
import os
import pathlib
import pickle

__all__ = ["Cache", "memoize"]


class Cache:
    """Results by arguments, in a file.

    Parameters
    ----------
    key : str
        Name of the file.
    save_at_exit : bool
        Whether new results are written when the process ends; `save` writes them at once.

    Read only files that you trust: Python's pickle format can run programs. So the folder has to belong to
    the user; RuntimeError otherwise.
    """

    cache_by_key: dict = {}

    def __init__(self, key, save_at_exit):
        Cache.cache_by_key[key] = self
        folder = pathlib.Path(f".pkl_memoize_py{3}")
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise RuntimeError(f"{folder.resolve()} belongs to another user; results are not read from it")
        self.path, self.save_at_exit, self.dirty = folder / key, save_at_exit, False
        try:
            self.cache = pickle.loads(self.path.read_bytes()) if self.path.is_file() else {}
        except (pickle.UnpicklingError, EOFError, ValueError, AttributeError, ImportError):
            self.cache = {}
        if save_at_exit:
            atexit.register(self.save)

    def save(self):
        """Writes the results, if there are new ones."""
        if self.dirty:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            self.path.write_bytes(pickle.dumps(self.cache, pickle.HIGHEST_PROTOCOL))
            self.dirty = False


def memoize(key, save_at_exit=False):
    """Decorator: keeps a function's results under its arguments, and the values that its closure and defaults hold, in the file `key`.

    Raises ValueError for values in its closure that are no numbers, texts or tuples of them.
    """

    def around(func):
        cells = [c.cell_contents for c in func.__closure__ or ()]
        held = [("closure", cells), ("defaults", func.__defaults__ or ())]
        for value in cells:
            if not isinstance(value, (int, float, str, bool, tuple, type(None))):
                raise ValueError(f"{func.__name__} holds {value!r}; results are kept for numbers, texts and tuples of them")
        name = f"{key}.{func.__name__}.pkl"
        cache: list = []

        @functools.wraps(func)
        def call(*args, **kwargs):
            if not cache:
                cache.append(Cache.cache_by_key.get(name) or Cache(name, save_at_exit))
            place = pickle.dumps((args, sorted(kwargs.items()), held))
            if place not in cache[0].cache:
                cache[0].cache[place], cache[0].dirty = func(*args, **kwargs), True
            return cache[0].cache[place]

        return call

    return around
