"""Log lines on stderr."""

import logging

from tally.cli.ui.log import LogFormatter, is_worth_saying


def record(pathname: str = "/src/tally/pipeline/run.py", **fields: str) -> logging.LogRecord:
    """A record as the logging module makes it."""
    made = logging.LogRecord("tally", logging.WARNING, pathname, 1, "not_mirrored", (), None)
    vars(made).update(fields)
    return made


def test_a_line_has_the_events_name_and_its_fields() -> None:
    """What was passed as `extra` is shown, and nothing of logging's own."""
    line = LogFormatter().format(record(pipeline="first", cause="no answer"))
    assert line == "WARNING not_mirrored pipeline='first' cause='no answer'"


def test_an_exception_keeps_its_traceback() -> None:
    """Below the line, as Python prints it."""
    made = record()
    made.exc_info = (ZeroDivisionError, ZeroDivisionError("oops"), None)
    lines = LogFormatter().format(made).splitlines()
    assert lines[0] == "WARNING not_mirrored"
    assert lines[-1] == "ZeroDivisionError: oops"


def test_the_echo_of_the_bridge_to_java_is_left_out() -> None:
    """Ctrl-C while Spark works is one word, no traceback of the bridge."""
    assert not is_worth_saying(record("/site-packages/py4j/java_gateway.py"))
    assert is_worth_saying(record())
