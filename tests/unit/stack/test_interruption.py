"""Ctrl-C and SIGTERM end a program in the same way."""

import signal

import pytest

from tally_local.stack.interruption import interruptible


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_interrupts(number: signal.Signals) -> None:
    """What cleans up on Ctrl-C cleans up on SIGTERM too."""
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(number)
    assert signal.getsignal(number) is before


def test_a_second_signal_does_not_stop_the_clean_up() -> None:
    """A second Ctrl-C while the stack is stopped is ignored."""
    cleaned = []

    def work() -> None:
        with interruptible() as going_down:
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                with going_down():
                    signal.raise_signal(signal.SIGINT)
                    cleaned.append(True)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert cleaned == [True]
