"""Held signals: noted, acted upon in check() and in users' code, and never lost in either."""

import os
import signal
import threading

import pytest

from nestsmith.auto_scheduler.signals import Held


class Late(Exception):
    """What the handler of an alarm raises."""


@pytest.fixture
def alarms():
    """The handler of SIGUSR1 raises KeyboardInterrupt, that of SIGUSR2 raises Late, that of SIGURG counts."""
    counted = []

    def end(number, frame):
        raise KeyboardInterrupt("from a handler")

    def late(number, frame):
        raise Late

    handlers = {signal.SIGUSR1: end, signal.SIGUSR2: late, signal.SIGURG: lambda number, frame: counted.append(number)}
    before = {number: signal.signal(number, h) for number, h in handlers.items()}
    yield counted
    for number, h in handlers.items():
        assert signal.getsignal(number) is h, "the user's handler was not put back"
        signal.signal(number, before[number])


def send(number):
    os.kill(os.getpid(), number)


def test_noted_until_it_is_looked_for(alarms):
    with Held() as held:
        for _ in range(2):
            send(signal.SIGUSR1)
            send(signal.SIGURG)
            assert alarms == [signal.SIGURG] * 0
            with pytest.raises(KeyboardInterrupt, match="from a handler"):
                held.check()
            held.check()
            assert alarms.pop() == signal.SIGURG
        held.check()


def test_one_that_comes_at_the_end_is_acted_upon_behind_the_block(alarms):
    done = []
    with pytest.raises(Late):
        with Held():
            send(signal.SIGUSR2)
            send(signal.SIGURG)
            done.append(1)
    assert done and alarms == [signal.SIGURG]


def test_ctrl_c_again_while_a_run_ends():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may have it ignored
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            with Held() as held:
                send(signal.SIGINT)
                try:
                    held.check()
                finally:
                    send(signal.SIGINT)
        assert caught.value.__context__ is None, "one is enough"
    finally:
        signal.signal(signal.SIGINT, before)


def test_users_code_hears_it_at_once_and_cannot_lose_it(alarms):
    def swallows():
        try:
            send(signal.SIGUSR1)
        except BaseException:
            return "swallowed"

    def renames():
        try:
            send(signal.SIGUSR1)
        except BaseException as e:
            raise ValueError("another error") from e

    def handles():
        try:
            send(signal.SIGUSR2)
        except Late:
            return "an alarm of its own"

    with Held() as held:
        for code in (swallows, renames):
            with pytest.raises(KeyboardInterrupt, match="from a handler"):
                held.call(code)
        assert held.call(handles) == "an alarm of its own"
        assert held.call(lambda *a: a, 1, 2) == (1, 2)
        send(signal.SIGUSR1)  # held again
        with pytest.raises(KeyboardInterrupt):
            held.check()


def test_blocks_in_blocks(alarms):
    """A log that is written in a user's callback: its own block ends with the signal, which the callback hears."""

    def writes():
        with Held():
            send(signal.SIGUSR2)
            alarms.append("written")
        alarms.append("not reached")

    with Held() as held:
        with pytest.raises(Late):
            held.call(writes)
        writes_held = len(alarms)
        writes()
        with pytest.raises(Late):
            held.check()
    assert writes_held == 1 and alarms == ["written", "written", "not reached"]


def test_a_handler_of_users_code_stays(alarms):
    mine = signal.getsignal(signal.SIGUSR1)

    def other(number, frame):
        pass

    with Held() as held:
        held.call(signal.signal, signal.SIGUSR1, other)
    assert signal.getsignal(signal.SIGUSR1) is other
    signal.signal(signal.SIGUSR1, mine)


def test_other_threads_hear_nothing(alarms):
    seen = []

    def work():
        with Held() as held:
            held.check()
            seen.append(held.call(signal.getsignal, signal.SIGUSR1))

    t = threading.Thread(target=work)
    t.start()
    t.join()
    assert seen == [signal.getsignal(signal.SIGUSR1)]
