"""Who has which device, as a list of events: no network, no clock."""

import random

import pytest

from nestsmith.cluster.ledger import RENEW_SECONDS, Ledger

FACTS = {"classes": {"1": "cpu/1000MHz/0"}}


def grants(events):
    return [(e[1], e[4]) for e in events if e[0] == "grant"]


def token(events):
    return next(e[3] for e in events if e[0] == "grant")


def test_higher_priorities_first_then_first_come():
    x = Ledger()
    held = token(x.board_added("a", "k", FACTS, 0) + x.acquire("holder", 1, "k", 0))
    assert x.acquire("low", 1, "k", 1, priority=0)[-1:] == [("wanted", "holder", "k")]
    for n, (who, priority) in enumerate([("first", 1), ("second", 1), ("urgent", 5)]):
        assert grants(x.acquire(who, n, "k", 2 + n, priority=priority)) == []
    assert x.summary(9)["queue_info"]["k"] == {"total": 1, "free": 0, "pending": 4}
    order, holder = [], "holder"
    for _ in range(4):
        events = x.release(holder, held, 10)
        (holder, _), = grants(events)
        held = token(events)
        order.append(holder)
    assert order == ["urgent", "first", "second", "low"]


def test_the_device_that_is_idle_for_longest_is_lent():
    x = Ledger()
    for t, a in enumerate("abc"):
        x.board_added(a, "k", FACTS, t)
    events = x.acquire("me", 1, "k", 5)
    assert grants(events) == [("me", "a")]
    x.release("me", token(events), 6)
    assert [grants(x.acquire("me", n, "k", 7))[0][1] for n in range(3)] == ["b", "c", "a"]


def test_a_late_board_serves_who_waits_and_one_that_goes_is_told():
    x = Ledger()
    assert x.acquire("me", 1, "k", 0) == []
    events = x.board_added("late", "k", FACTS, 5)
    assert grants(events) == [("me", "late")] and events[0][:2] == ("begin", "late")
    lost = x.board_removed("late", 6, "killed")
    assert [(e[0], e[1]) for e in lost] == [("lost", "me")] and "killed" in lost[0][3]
    assert x.release("me", token(events), 7) == [] and x.summary(8)["queue_info"] == {}


def test_a_client_that_is_lost_frees_its_devices_and_its_place():
    x = Ledger()
    x.board_added("a", "k", FACTS, 0)
    x.acquire("gone", 1, "k", 0)
    x.acquire("gone", 2, "k", 0)
    x.acquire("next", 1, "k", 0)
    events = x.client_lost("gone", 1)
    assert [e[0] for e in events] == ["end", "begin", "grant"] and grants(events) == [("next", "a")]
    assert x.requests == []


def test_leases_that_nobody_renews_end():
    x = Ledger()
    x.board_added("a", "k", FACTS, 0)
    x.acquire("stopped", 1, "k", 0)
    x.renew("stopped", RENEW_SECONDS - 1)
    assert x.tick(RENEW_SECONDS + 1) == []
    assert [e[0] for e in x.tick(2 * RENEW_SECONDS)] == ["lost", "end"]
    assert x.summary(99)["queue_info"]["k"]["free"] == 1


def test_a_lease_is_its_holders_alone():
    x = Ledger()
    x.board_added("a", "k", FACTS, 0)
    held = token(x.acquire("me", 1, "k", 0))
    assert x.release("thief", held, 1) == [] and x.release("me", "guess", 1) == [] and held in x.leases
    assert len(held) == 32


def test_requests_without_a_board_are_refused_with_what_is_there():
    x = Ledger()
    x.board_added("a", "other", FACTS, 0)
    x.acquire("me", 1, "k", 0, wait=60)
    assert x.tick(59) == []
    (what, who, number, why), = x.tick(60)
    assert (what, who, number) == ("refuse", "me", 1) and "'k'" in why and "none has ever registered" in why and "'other'" in why


def test_only_devices_of_the_class_and_no_others():
    x = Ledger()
    x.board_added("a", "k", FACTS, 0)
    x.board_added("b", "k", {"classes": {"1": "cpu/2000MHz/0"}}, 1)
    assert grants(x.acquire("me", 1, "k", 2, like="cpu/2000MHz/0")) == [("me", "b")]
    assert grants(x.acquire("me", 2, "k", 2, like="cpu/1000MHz/0", but=["a"])) == []
    x.renew("me", 90)
    (_, _, _, why), = x.tick(99)
    assert "cpu/1000MHz/0" in why and "besides a" in why
    assert grants(x.acquire("me", 3, "k", 2)) == [("me", "a")]


@pytest.mark.parametrize("seed", range(20))
def test_no_device_is_ever_lent_twice_and_none_is_forgotten(seed):
    """Random histories: at every moment each device has one holder, who has been told, or is idle with nobody waiting for it."""
    rng, x, holders, now = random.Random(seed), Ledger(), {}, 0.0
    for step in range(400):
        now += rng.random() * 5
        who, key, board = f"c{rng.randrange(4)}", f"k{rng.randrange(2)}", f"b{rng.randrange(5)}"
        what = rng.randrange(8)
        events = (
            x.board_added(board, f"k{int(board[1]) % 2}", FACTS, now) if what == 0 and board not in x.boards else
            x.board_removed(board, now) if what == 1 else
            x.acquire(who, step, key, now, priority=rng.randrange(3), wait=30) if what in (2, 3) else
            x.client_lost(who, now) if what == 4 and rng.random() < 0.2 else
            x.tick(now) if what == 5 else
            x.release(*rng.choice([(c, t) for t, c in holders.items()]), now) if holders else []
        )  # fmt: skip
        for c in range(4):
            x.renew(f"c{c}", now)
        for e in events:
            if e[0] == "grant":
                assert e[3] not in holders
                holders[e[3]] = e[1]
            elif e[0] == "lost":
                holders.pop(e[2])
            elif e[0] == "end":
                holders.pop(e[2], None)
        assert holders == {t: lease.client for t, lease in x.leases.items()}
        assert sorted(b.lease for b in x.boards.values() if b.lease) == sorted(x.leases)
        idle = {b.key for b in x.boards.values() if not b.lease}
        assert not idle & {r.key for r in x.requests}
