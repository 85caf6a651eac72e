"""Reports of what a network's operators take."""

import csv
import io
import json

__all__ = ["Report"]

_NAME, _TIME, _SHARE = "Name", "Duration (us)", "Percent"


class Report:
    """Times of the calls of a run.

    Parameters
    ----------
    calls : list of dict
        One per call: "Name", "Duration (us)", "Device", "Count", "Argument Shapes" and what else is known.
    device_metrics : dict of dict
        By device: "Duration (us)" of the whole run.
    configuration : dict
        What was run.
    """

    def __init__(self, calls, device_metrics, configuration):
        self.calls = [dict(c) for c in calls]
        self.device_metrics = {k: dict(v) for k, v in device_metrics.items()}
        self.configuration = dict(configuration)

    def _rows(self, sort, aggregate):
        total = sum(c[_TIME] for c in self.calls) or 1.0
        rows: dict = {}
        for i, call in enumerate(self.calls):
            key = (call[_NAME], call.get("Argument Shapes"), call.get("Device")) if aggregate else i
            row = rows.setdefault(key, {**call, _TIME: 0.0, "Count": 0})
            row[_TIME] += call[_TIME]
            row["Count"] += call.get("Count", 1)
        out = [{**r, _SHARE: 100 * r[_TIME] / total} for r in rows.values()]
        return sorted(out, key=lambda r: -r[_TIME]) if sort else out

    def table(self, sort=True, aggregate=True, col_sums=True):
        """The report as text.

        Parameters
        ----------
        sort : bool
            The longest first.
        aggregate : bool
            One row for all calls of an operator with the same shapes.
        col_sums : bool
            With the sums of times, shares and counts, and the total of each device.
        """
        rows = self._rows(sort, aggregate)
        if col_sums:
            rows.append({_NAME: "Sum", **{k: sum(r[k] for r in rows) for k in (_TIME, _SHARE, "Count")}})
            rows += [{_NAME: "Total", "Device": d, **m} for d, m in self.device_metrics.items()]
        columns = list(dict.fromkeys([_NAME, _TIME, _SHARE, "Device", "Count", "Argument Shapes", *(k for r in rows for k in r)]))
        lines = [columns, *([f"{r[k]:,.2f}" if isinstance(r.get(k), float) else str(r.get(k, "")) for k in columns] for r in rows)]
        width = [max(len(line[i]) for line in lines) for i in range(len(columns))]
        text = ["  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, width))) for line in lines]
        return "\n".join([text[0], "-" * len(text[0]), *text[1:]])

    def csv(self):
        """The calls as CSV."""
        out = io.StringIO()
        rows = self._rows(sort=False, aggregate=False)
        writer = csv.DictWriter(out, list(dict.fromkeys(k for r in rows for k in r)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()

    def json(self):
        """Everything as JSON; `from_json` reads it."""
        return json.dumps({"calls": self.calls, "device_metrics": self.device_metrics, "configuration": self.configuration})

    @classmethod
    def from_json(cls, s):
        """The report of a JSON text. Raises ValueError if it is none."""
        try:
            return cls(**json.loads(s))
        except (TypeError, AttributeError) as e:
            raise ValueError(f"the text is no report: {e}") from None

    def __str__(self):
        return self.table()
