"""Databases of measured configurations: what `callback.log_to_database` saves to, and scripts look results up in."""

from .log import measure_str_key

__all__ = ["Database", "DummyDatabase", "filter_inputs"]


class Database:
    """Base of databases."""

    def load(self, inp, get_all=False):
        """The last result of an input (all of them in a list with `get_all`), None if there is none."""
        raise NotImplementedError

    def save(self, inp, res, extend=False):
        """Keeps the result of an input: in place of earlier ones, or beside them with `extend`."""
        raise NotImplementedError


def filter_inputs(db, measure_inputs, retry=False):
    """Inputs without a result in the database; with `retry` also those whose last result is a failure."""
    return [i for i, res in ((i, db.load(i)) for i in measure_inputs) if res is None or (retry and res.error_no != 0)]


class DummyDatabase(Database):
    """A database in memory."""

    def __init__(self):
        self.db = {}

    def load(self, inp, get_all=False):
        found = self.db.get(measure_str_key(inp))
        return found if found is None or get_all else found[-1]

    def save(self, inp, res, extend=False):
        key = measure_str_key(inp)
        self.db[key] = [*(self.db.get(key, ()) if extend else ()), res]

    def flush(self):
        """Forgets everything."""
        self.db.clear()
