"""The form of a replay: the fields that Airflow draws."""

from typing import Final

from airflow.sdk import Param

from tally.config.pipeline import Pipeline

REASON_MAX: Final = 1000

CHOICES: Final = {
    "everything": "Everything that Kafka still holds",
    "offsets": "A range of offsets",
    "ranges": "Several ranges of offsets",
    "times": "Records of a span of time",
    "batch": "What a batch has counted",
    "minutes": "Minutes of the result",
}


def form(pipeline: Pipeline) -> dict[str, Param]:
    """The fields, by name; the defaults request a preview of everything, for a reason."""
    return {**_run_fields(), **_offset_fields(pipeline), **_other_fields(), **_shown_field()}


def _run_fields() -> dict[str, Param]:
    # Without a named section: Airflow shows these fields open, and closes the named sections.
    return {
        "what": Param(
            "everything",
            type="string",
            enum=list(CHOICES),
            values_display=CHOICES,
            title="What",
            description="Fill in the section of the same name, and no other.",
        ),
        "dry_run": Param(
            True,
            type="boolean",
            title="Dry run",
            description="On: show what would be done, and change nothing. Off: reprocess it.",
        ),
        # Without a default: Airflow accepts no run before it is filled in. It validates each field
        # by itself, so that it cannot be required for a real run alone.
        "reason": Param(
            type="string",
            pattern=r"\S",
            maxLength=REASON_MAX,
            title="Reason",
            description="Why it must be reprocessed. Kept in the ledger with your name, unless it "
            "is a dry run.",
        ),
    }


def _offset_fields(pipeline: Pipeline) -> dict[str, Param]:
    where = "Topic and partitions"
    topic = pipeline.topics[0]
    return {
        "topic": Param(
            None,
            type=["null", "string"],
            examples=list(pipeline.topics),
            title="Topic",
            description="For everything, a range of offsets or a span of time. Empty: all.",
            section=where,
        ),
        "partitions": Param(
            None,
            type=["null", "string"],
            title="Partitions",
            description="For the same choices. Numbers, such as 0, 3. Empty: all.",
            section=where,
        ),
        "from_offset": _offset(
            "From offset", "First offset. Empty: the first offset that Kafka still holds."
        ),
        "until_offset": _offset(
            "Until offset", "First offset after the range. Empty: the committed offset."
        ),
        "ranges": Param(
            None,
            type=["null", "string"],
            format="multiline",
            title="Ranges",
            description=f"One per line. {topic}/0:300-310 is partition 0, offsets 300 until 310; "
            "310 itself is not read.",
            section=CHOICES["ranges"],
        ),
    }


def _offset(title: str, description: str) -> Param:
    return Param(
        None,
        type=["null", "integer"],
        minimum=0,
        title=title,
        description=description,
        section=CHOICES["offsets"],
    )


def _other_fields() -> dict[str, Param]:
    times, batch, minutes = CHOICES["times"], CHOICES["batch"], CHOICES["minutes"]
    clock = "As Kafka stamped the record. A time without a zone is UTC."
    return {
        "since": _time(
            "Since", f"The range begins with the first record at or after it. {clock}", times
        ),
        "before": _time(
            "Before", f"The range ends before the first record at or after it. {clock}", times
        ),
        "batch_id": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Batch",
            description="Its number, as on the page Browse > Tally or in a run's XCom.",
            section=batch,
        ),
        "first_minute": _minute(
            "First minute", "On the lines' own clock, such as 2026-11-20 14:05.", minutes
        ),
        "last_minute": _minute("Last minute", "Inclusive. Empty: only the first minute.", minutes),
    }


def _shown_field() -> dict[str, Param]:
    return {
        "shown": Param(
            None,
            type=["null", "object"],
            title="What was shown",
            description="Filled in by Tally's pages, with `digest`, `asked` and `plan` of a "
            "preview: exactly that is reprocessed, or nothing. Leave it empty here.",
            section="From a preview",
        )
    }


def _time(title: str, description: str, section: str) -> Param:
    return Param(
        None,
        type=["null", "string"],
        format="date-time",
        title=title,
        description=description,
        section=section,
    )


def _minute(title: str, description: str, section: str) -> Param:
    return Param(
        None,
        type=["null", "string"],
        title=title,
        description=description,
        section=section,
    )
