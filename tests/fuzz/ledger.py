"""Hostile talk to the tracker, in this process: bytes as they come from a connection are read as Dask reads them, and the plugin of the
real (never started) scheduler hears what they hold, as clients and as servers say it. Whatever comes, messages raise ValueError or are
obeyed, nothing is unpickled, and the ledger's books stay right.

    python tests/fuzz/ledger.py 10000000 [SECONDS]
"""

import asyncio
import itertools
import random
import sys
import time

import msgpack
from distributed.protocol import core

from nestsmith.cluster import engine, tracker

TALKERS, BOARDS, LOOK_EVERY = [f"c{k}" for k in range(6)], [f"tcp://b{k}" for k in range(6)], 16
ODD = [None, True, -1, 0, 1, 2**63, -(2**63), 2**64 - 1, 1.5, float("nan"), float("inf"), "", "k", "x" * 300, "\x1b[2J", "\ud800", b"", b"\x80\x05.",
       [], [[]], {}, {"": {}}, {"__Pickled__": 1}, {"__Serialized__": 1}, {"__Set__": True, "as-list": [1, []]},
       {"__Enum__": True, "__module__": "os", "__name__": "system", "name": "x"}]  # fmt: skip


class Unpickled(BaseException):
    """Never seen."""


def client_words(rng, leases):
    """A client's message that makes sense."""
    do = rng.choice(["acquire", "acquire", "release", "release", "cancel", "renew", "summary"])
    m = {"do": do}
    if do in ("acquire", "cancel", "summary"):
        m["id"] = rng.randrange(20)
    if do == "acquire":
        m.update(key=rng.choice("kl"), priority=rng.randrange(-1, 3), like=rng.choice([None, None, "fast", "slow"]),
                 but=rng.sample(BOARDS, rng.randrange(3)), wait=rng.choice([0, 0.5, 60]))  # fmt: skip
    elif do == "release":
        m["lease"] = rng.choice(leases) if leases else "0" * 32
    return m


def server_words(rng, versions):
    """What a server says of itself."""
    facts = {"key": rng.choice("kl"), "versions": versions, "classes": {"1": rng.choice(["fast", "slow"])}, "machine": "x", "device": "local",
             "shown": ""}  # fmt: skip
    return {"nestsmith": facts}


def spoil(rng, m):
    """One field somewhere that is gone, odd or more."""
    at = m
    while isinstance(at, dict) and at and rng.random() < 0.7:
        name = rng.choice(list(at))
        if not isinstance(at[name], dict) or rng.random() < 0.3:
            break
        at = at[name]
    name = rng.choice([*at, "do", "x", "__Pickled__", "__Set__"])
    if rng.random() < 0.3:
        at.pop(name, None)
    else:
        at[name] = rng.choice(ODD)
    return m


def bend(rng, data):
    """Bytes changed, taken away, put in, or cut."""
    data = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        how = rng.randrange(4)
        if how == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif how == 1:
            data[at:at] = rng.randbytes(rng.randrange(1, 5))
        elif how == 2:
            del data[at : at + rng.randrange(1, 9)]
        elif rng.random() < 0.2:
            del data[at:]
    return bytes(data)


def look(x):
    """Whether the books are right: every lease has its board and every lent board its lease; nobody waits for an idle board that
    fits."""
    assert sorted(b.lease for b in x.boards.values() if b.lease) == sorted(x.leases)
    assert all(x.boards.get(lease.board.address) is lease.board and lease.board.lease == t for t, lease in x.leases.items())
    for r in x.requests:
        assert not any(b.lease is None and b.key == r.key and r.fits(b) for b in x.boards.values())
    x.summary(0.0)


async def talk(count, seconds, seed):
    def unpickled(*args, **kwargs):
        raise Unpickled(args)

    scheduler = tracker.Tracker(host="127.0.0.1", port=0, protocol="tcp", dashboard=False)
    plugin, rng, told, end = tracker.LedgerPlugin(scheduler, None), random.Random(seed), {"heard": 0, "refused": 0}, time.monotonic() + seconds
    engine._unpickle, before = unpickled, engine._unpickle
    versions = tracker.own_versions()
    try:
        for n in itertools.count():
            if n >= count or (n % 1024 == 0 and time.monotonic() > end):
                break
            ledger = plugin.ledger
            as_server = rng.random() < 0.1
            m = server_words(rng, dict(versions)) if as_server else client_words(rng, list(ledger.leases))
            kind = rng.random()
            data = msgpack.packb(spoil(rng, m) if kind < 0.3 else m, use_bin_type=True, unicode_errors="surrogatepass")
            frames = [bend(rng, data) if kind > 0.6 else data]
            if rng.random() < 0.02:
                frames += [bend(rng, msgpack.packb({"pickled-obj": b"\x80\x05.", "num-sub-frames": rng.randrange(3)})), rng.randbytes(4)]
            try:
                m = core.loads(frames)
            except Exception:  # noqa: BLE001 - Dask answers with it, and the connection goes on
                told["refused"] += 1
                m = None
            address, who = rng.choice(BOARDS), rng.choice(TALKERS)
            if as_server:
                if address not in ledger.boards:
                    plugin.hear_of(address, m)
            elif m is not None:
                try:
                    plugin.hear(who, who, m)
                    told["heard"] += 1
                except ValueError:
                    told["refused"] += 1
                    plugin._do(ledger.client_lost(who, time.monotonic()))  # as its connection ends
            if rng.random() < 0.01:
                plugin.remove_worker(scheduler, address)
            if n % LOOK_EVERY == 0:
                plugin._do(ledger.tick(time.monotonic() + rng.choice([0, 0, 20, 40])))
                look(ledger)
    finally:
        engine._unpickle = before
        await scheduler.close()
    return n, told


def campaign(count, seconds=1e9, seed=0):
    """(messages, what became of them)."""
    return asyncio.run(talk(count, seconds, seed))


if __name__ == "__main__":
    begin = time.monotonic()
    seen, became = campaign(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 1e9, seed=int(begin))
    print(f"{seen} messages, {seen / (time.monotonic() - begin):.0f}/s, {became}")
