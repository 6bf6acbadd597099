"""Ctrl-C and SIGTERM end a program in the same way."""

import signal

import pytest

from tally_local.stack.interruption import interruptible


def test_a_signal_interrupts_and_a_second_one_does_not_stop_the_clean_up() -> None:
    """What cleans up on Ctrl-C cleans up on SIGTERM too, while a second Ctrl-C is ignored."""
    cleaned = []

    def work(number: signal.Signals) -> None:
        with interruptible() as going_down:
            try:
                signal.raise_signal(number)
            finally:
                with going_down():
                    signal.raise_signal(signal.SIGINT)
                    cleaned.append(number)

    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    for number in numbers:
        before = signal.getsignal(number)
        with pytest.raises(KeyboardInterrupt):
            work(number)
        assert signal.getsignal(number) is before
    assert cleaned == numbers
