"""Everything that README and docs/ name exists: commands, targets, links, keys, codes, tests."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree as ET

import click
import pytest
from benchmarks import picture
from benchmarks.page import get
from docs import configuration_page
from pydantic import BaseModel
from tests.first_use.pages import FENCE
from tests.mutants.table import MUTANTS
from tests.servers import PROJECT
from tests.unit.sources import DOCS, ERRORS, PAGES, README, text

from tally import errors
from tally.cli import failures
from tally.cli.app import App
from tally.cli.tree import cli
from tally.config.loading import load_settings
from tally.config.servers import MySQLSettings, ResultsSettings
from tally.config.settings import Settings
from tally.errors import TallyError
from tally.lines.format import MalformedReason
from tally.model import BatchState, SegmentState
from tally.mysql.connection import SERVER_NEEDED
from tally.planning.blocks import BlockReason

CODE_SPAN = re.compile(r"`([^`]+)`")
PROGRAM = re.compile(r"(?:\$ )?(?:\.tally/venv/bin/)?tally(?= |$)")
TARGET = re.compile(r"(?:\$ )?(?:time )?make (?P<words>[^&|#]+)")
TEST_NAME = re.compile(r"\btest_\w+")


def code_blocks(page: Path, language: str | None = None) -> list[str]:
    """The contents of a page's code blocks, of one language or of all."""
    found = FENCE.findall(text(page))
    return [block for kind, block in found if language in {None, kind}]


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return FENCE.sub("", text(page))


BLOCKS = [block for page in PAGES for block in code_blocks(page)]
LINES_OF_CODE = [line.strip() for block in BLOCKS for line in block.splitlines()]
"""Each line of the code blocks of all pages."""
SPANS = [
    " ".join(span.replace("\\|", "|").split())
    for page in PAGES
    for span in CODE_SPAN.findall(prose(page))
]
"""Each piece of code inside the sentences and tables of all pages."""


def table(page: Path, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, its own header left out."""
    section = prose(page).partition(f"\n## {heading}\n")[2]
    rows = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert rows is not None
    return [[c.strip() for c in line.strip("|").split("|")] for line in rows[0].splitlines()[2:]]


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def parse(line: str) -> click.Context:
    """Parse a command line of tally's down to its last command, without running it."""
    own = re.split(r" [|&>]", PROGRAM.sub("", line))[0]
    context = cli.make_context("tally", shlex.split(own, comments=True), obj=App())
    command: click.Command = cli
    while isinstance(command, click.Group) and (left := [*context._protected_args, *context.args]):
        name, found, rest = command.resolve_command(context, left)
        assert found is not None
        command = found
        context = found.make_context(name, rest, parent=context)
    return context


def test_each_picture_is_what_its_generator_draws() -> None:
    """If this fails, run make docs. A picture has words for those who do not see it."""
    command = [sys.executable, str(DOCS / "picture.py")]
    drawn = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    backlog = picture.picture(get(picture.BACKLOG))
    for path, wanted in ((DOCS / "batch-lifecycle.svg", drawn), (picture.SVG, backlog)):
        assert text(path) == wanted
        drawing = ET.fromstring(wanted)  # noqa: S314 - our own
        words = {child.tag.rpartition("}")[2] for child in drawing if child.text}
        assert {"title", "desc"} <= words


def test_the_configuration_reference_is_what_the_settings_say() -> None:
    """If this fails, run make docs. No section and no key is left out."""
    page = text(DOCS / "configuration.md")
    assert page == configuration_page.render()
    for name, field in Settings.model_fields.items():
        assert f"## [{'pipelines.NAME' if name == 'pipelines' else name}]\n" in page
        kind: Any = field.annotation
        models = (kind, *get_args(kind))  # of a section that may be left out, or of a table of them
        (model,) = (m for m in models if isinstance(m, type) and issubclass(m, BaseModel))
        if model is ResultsSettings:  # it has exactly the keys and the defaults of the ledger's
            assert described(model) == described(MySQLSettings)
            continue
        for key in model.model_fields:
            assert f"`{key}`<br>`TALLY_{name.upper()}__" in page


def described(model: type[BaseModel]) -> dict[str, str]:
    return {name: repr(field) for name, field in model.model_fields.items()}


def test_every_documented_variable_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one is accepted with its documented default, which changes nothing; a value does."""
    config = tmp_path / "tally.toml"
    config.write_text('[pipelines.error_log]\ntopics = ["alog"]\n')
    before = load_settings(config)
    with_results = before.model_copy(update={"results": ResultsSettings()})
    rows = re.findall(r"<br>`(TALLY_\w+)` \| .*? \| `(.*?)` \|", text(DOCS / "configuration.md"))
    mysql = [row for row in rows if row[0].startswith("TALLY_MYSQL__")]
    rows += [(name.replace("MYSQL", "RESULTS"), default) for name, default in mysql]
    # SASL apart, an empty text is the default of the password alone.
    variables = [(name, default) for name, default in rows if default != '""']
    assert len(variables) > 40
    for name, default in variables:
        value, variable = json.loads(default), name.replace("__NAME__", "__ERROR_LOG__")
        monkeypatch.setenv(variable, value if isinstance(value, str) else default)
        # That the section of the results is there is a setting by itself.
        wanted = with_results if variable.startswith("TALLY_RESULTS__") else before
        assert load_settings(config) == wanted, variable
        monkeypatch.setenv(variable, "{")  # what no key allows, or what then shows
        with suppress(errors.ConfigError):
            assert load_settings(config) != before, variable
        monkeypatch.delenv(variable)


LINES = {
    "shop_errors": "2017-07-30 14:09:08 ERROR [cart] no such item",
    "server_errors": '1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 503 12',
    "shop": "|30.07.2017 14:09:08|SEVERE| no such item",
    "containers": "2017-07-30T14:09:08.123456789+02:00 stderr P no such item",
}
"""Such as the formats of the examples of labels and line formats understand."""
PAGES_WITH_LINES = ("labels", "line-formats")


def test_every_configuration_that_is_shown_can_be_loaded(tmp_path: Path) -> None:
    config, matched = tmp_path / "tally.toml", set()
    for page in PAGES:
        for block in code_blocks(page, "toml"):
            config.write_text(block, encoding="utf-8")
            settings = load_settings(config)
            assert settings.pipelines.keys() == tomllib.loads(block)["pipelines"].keys(), block
            for name in settings.pipelines.keys() & LINES if page.stem in PAGES_WITH_LINES else ():
                pattern = settings.pipeline(name).format.parsed_pattern.python
                matched |= {name} if pattern.match(LINES[name]) else set()
    assert matched == LINES.keys()


def test_the_runbook_has_exactly_one_entry_for_each_code_and_each_reason() -> None:
    """None is missing, obsolete or there twice; messages name existing entries."""
    runbook = DOCS / "runbook.md"
    chapters = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", prose(runbook), re.MULTILINE))
    both = chapters["Errors"] + chapters["Blocked partitions"]
    entries = re.findall(r"^### (.+)$", both, re.MULTILINE)
    wanted = {error.code for error in ERRORS} | {str(reason) for reason in BlockReason}
    assert sorted(entries) == sorted(wanted)
    assert len(headings(runbook)) == len(set(headings(runbook)))
    links = {code: [] for code in sorted({error.exit_code for error in ERRORS})}
    for error in ERRORS:
        links[error.exit_code].append(f"[{error.code}](#{error.code})")
    listed = [[str(code), ", ".join(codes)] for code, codes in links.items()]
    assert table(runbook, "Errors") == listed
    sent = {
        name
        for path in (PROJECT / "src").rglob("*.py")
        for name in re.findall(r"docs/runbook\.md, ([a-z-]+)", text(path))
    }
    assert "audit-finding" in sent
    assert sent <= set(headings(runbook))


def test_the_runbook_lists_exit_codes_and_oldest_servers_as_they_are() -> None:
    """Every exit code, and the classes of errors that end with it."""
    listed = {int(row[0]): row[1] for row in table(DOCS / "runbook.md", "Exit codes")}
    known = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    known |= {failures.EXIT_CANCELLED, failures.EXIT_PIPE_CLOSED, failures.EXIT_TERMINATED}
    assert listed.keys() == known
    assert set(map(int, re.findall(r"^(\d+) ", failures.__doc__ or "", re.MULTILINE))) == known
    for code, names in listed.items():
        bases = [e.__name__ for e in TallyError.__subclasses__() if e.exit_code == code]
        assert names == ", ".join(bases)
    # The versions that the doctor requires are named in no other place.
    named = {
        path.relative_to(PROJECT).as_posix(): found
        for path in [*PAGES, *PROJECT.glob("src/**/*.py"), *PROJECT.glob("local/src/**/*.py")]
        if (found := re.findall(r"(?:MySQL|MariaDB) [0-9.]+ or newer", text(path)))
    }
    assert named == {"docs/runbook.md": SERVER_NEEDED.split(", or ")}


def test_the_versions_to_install_are_those_that_the_tests_run_with() -> None:
    """The locked ones, and the oldest that the extras allow."""
    extras = tomllib.loads(text(PROJECT / "pyproject.toml"))["project"]["optional-dependencies"]
    needs = [need for needs in extras.values() for need in needs if "," in need]
    oldest = {found for need in needs for found in re.findall(r">=([0-9.]+),", need)}
    names = {re.split("[>=<]", need)[0] for need in needs} - {"pyspark-client"}
    locked = text(PROJECT / "requirements" / "locked.txt")
    newest = {re.search(rf"^{name}==(\S+)", locked, re.MULTILINE)[1] for name in names}
    local = PROJECT / "local/src/tally_local/stack/ivy.xml"
    kafka = set(re.findall(r'name="kafka_2.13" rev="([0-9.]+)"', text(local)))
    said = re.findall(r"\s(\d+\.\d+\.\d+)\b(?!\])", prose(DOCS / "install.md"))
    assert oldest | newest | kafka == set(said)


def test_the_glossary_has_every_state_and_every_reason() -> None:
    words = {str(word) for kind in (BatchState, SegmentState, MalformedReason) for word in kind}
    glossary = prose(DOCS / "glossary.md")
    assert [w for w in sorted(words) if not re.search(rf"[|,`] ?{w}[ ,`]", glossary)] == []


def test_every_relative_link_leads_somewhere() -> None:
    """The file and the heading exist; README links to every page, and to no other."""
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)", prose(README)))
    assert linked == {f"docs/{page.name}" for page in PAGES if page != README}
    links = [(p, link) for p in PAGES for link in re.findall(r"\]\(([^)\s]+)\)", prose(p))]
    for page, link in links:
        if re.match(r"https?:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), link
        assert not fragment or fragment in map(anchor, headings(target)), link


def test_every_command_of_tally_parses() -> None:
    """In code with its arguments and options; in a sentence it may be only a command's name."""
    lines = list(filter(PROGRAM.match, LINES_OF_CODE))
    assert len(lines) > 50
    with pytest.raises(click.NoSuchOption):
        parse("tally audit --frobnicate # because")
    wrong = {}
    for line in lines:
        try:
            parse(line)
        except click.ClickException as error:
            wrong[line] = error.message
    assert wrong == {}
    for span in filter(PROGRAM.match, SPANS):
        with suppress(click.MissingParameter, click.exceptions.NoArgsIsHelpError):
            parse(span)


def test_every_make_target_and_every_program_that_is_shown_exists() -> None:
    """Each target is in the Makefile, and in its help."""
    makefile = text(PROJECT / "Makefile")
    for found in filter(None, map(TARGET.match, [*LINES_OF_CODE, *SPANS])):
        for word in shlex.split(found["words"]):
            if "=" not in word:
                assert re.search(rf"^{word}:", makefile, re.MULTILINE), found[0]
                assert re.search(rf"@echo 'make (\w+ \| )?{word}\b", makefile), found[0]
    # Modules after -m and Python files in code blocks; each benchmark is named in its page.
    for line in LINES_OF_CODE:
        for module in re.findall(r"-m ((?:benchmarks|tally)[\w.]*)", line):
            file = f"{module.replace('.', '/')}.py"
            assert any((PROJECT / base / file).is_file() for base in ("", "src")), line
        for path in re.findall(r"\bpython3? ([\w/]+\.py)", line):
            assert (PROJECT / path).is_file(), line
    page = text(DOCS / "performance.md")
    for path in (PROJECT / "benchmarks").glob("*.py"):
        if "command(measure)" in text(path):
            assert f"benchmarks.{path.stem}" in page


CASES = {"Planning": 18, "Reading": 28, "Commit": 16, "Orchestration": 11, "Replay": 17}
CASES |= {"Proof machinery": 9}
"""How many each section of the failure cases has, so that no row is lost unnoticed."""
REPORT = re.compile(r"SPARK-\d+|#\d+|commit_unknown_result")


def test_every_failure_case_has_an_answer_and_a_test() -> None:
    """In order, none twice; all 28 reports are named, as their projects number them."""
    page = DOCS / "failure-cases.md"
    assert [heading for heading in headings(page) if heading in CASES] == list(CASES)
    found = {section: table(page, section) for section in CASES}
    assert {section: len(rows) for section, rows in found.items()} == CASES
    assert text(page).count("| case | what Tally does | test |") == len(CASES)
    rows = [(section, *row) for section in CASES for row in found[section]]
    guards = {mutant.guard for mutant in MUTANTS}
    assert len({(section, case) for section, case, _, _ in rows}) == len(rows)
    for _, case, answer, tests in rows:
        assert case
        assert answer.endswith("."), case
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
        assert len(named) == tests.count("::") > 0, case
        for path, name in named:
            assert f"def {name}(" in text(PROJECT / path), (path, name)
        assert set(re.findall(r"`make mutants`: (.*?)\)", tests)) <= guards
    reports = REPORT.findall(" ".join(case for _, case, _, _ in rows))
    assert reports == REPORT.findall(text(page))
    assert len(set(reports)) == 28


def test_every_test_that_is_named_as_evidence_exists() -> None:
    tests = "\n".join(map(text, (PROJECT / "tests").rglob("test_*.py")))
    known = set(re.findall(r"^ *def (test_\w+)\(", tests, re.MULTILINE))
    for page in PAGES:
        named = TEST_NAME.findall(re.sub(r"[\w/]+\.py", "", text(page)))
        assert set(named) <= known, page.name
    assert len(TEST_NAME.findall(prose(DOCS / "exactly-once.md"))) > 40


def test_each_question_of_a_newcomer_leads_to_three_files_at_most() -> None:
    """What the page on the architecture names is there, files and functions alike."""
    page = text(DOCS / "architecture.md")
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \|$", page.partition("## Where to add")[2], re.MULTILINE
    )
    asked = [(question, answer) for question, answer in rows if "`" in answer]
    assert len(asked) >= 15
    for question, answer in asked:
        files = re.findall(r"`([\w/]+\.(?:py|toml))`", answer)
        assert 1 <= len(files) <= 3, question
        functions = re.findall(r"`(\w+)`", answer)
        texts = "".join(text(PROJECT / "src/tally" / file) for file in files)
        assert all(f"def {name}(" in texts for name in functions), question
    for file in re.findall(r"`([\w/]+\.(?:py|toml))`", page):
        assert (PROJECT / "src/tally" / file).exists(), file
