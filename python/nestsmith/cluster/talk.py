"""What clients and servers say to the tracker, checked before the ledger hears of it: whoever is at the other end may be anybody."""

from .. import check

__all__ = ["MOST_SECONDS", "MOST_TEXT", "heard", "key_of", "told"]

MOST_TEXT, MOST_ITEMS, MOST_SECONDS = 256, 1000, 1e12


def _text(x):
    return isinstance(x, str) and len(x) <= MOST_TEXT and x.isprintable()


def _whole(x):
    return type(x) is int


def _seconds(x):
    return type(x) in (int, float) and abs(x) <= MOST_SECONDS


def _texts(x):
    return isinstance(x, (list, tuple)) and len(x) <= MOST_ITEMS and all(map(_text, x))


def _table(x):
    return isinstance(x, dict) and len(x) <= MOST_ITEMS and _texts(list(x)) and _texts(list(x.values()))


def _class(x):
    return x is None or _text(x)


_CLIENT = {"acquire": {"id": _whole, "key": _text, "priority": _whole, "like": _class, "but": _texts, "wait": _seconds},
           "cancel": {"id": _whole}, "release": {"lease": _text}, "renew": {}, "summary": {"id": _whole}}
_SERVER = {"key": _text, "versions": _table, "classes": _table, "machine": _text, "device": _text, "shown": _text}


def _fields(message, table, what):
    for name, right in table.items():
        if name not in message or not right(message[name]):
            raise ValueError(f"{what}: {name!r} is {str(message.get(name))[:60]!r}")
    return {name: message[name] for name in table}


def key_of(text):
    """The key, if it is one. Raises TypeError or ValueError."""
    if not check.text("key", text) or not _text(text):
        raise ValueError(f"key is {text[:60]!r}; it is printable text of 1 to {MOST_TEXT} characters, as rpc_server --key was given")
    return text


def heard(message):
    """(what to do, its fields) of a client's message: "acquire" (id, key, priority, like, but, wait), "cancel" (id), "release"
    (lease), "renew", "summary" (id). Raises ValueError for anything else."""
    do = message.get("do") if isinstance(message, dict) else None
    if not isinstance(do, str) or do not in _CLIENT:
        raise ValueError(f"a client says {str(message)[:60]!r}")
    return do, _fields(message, _CLIENT[do], f"a client's {do}")


def told(facts):
    """What a server says of its device: key, versions, classes by device type, machine, device, the address to show. Raises
    ValueError if it is not that."""
    if not isinstance(facts, dict):
        raise ValueError("it is no server of nestsmith")
    return _fields(facts, _SERVER, "a server's facts")
