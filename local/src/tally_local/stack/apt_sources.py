"""Reading the machine's own apt sources, to find a mirror of Debian's archive."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One address of binary packages."""

    uri: str
    """The archive's address."""
    suites: tuple[str, ...]
    """Its suites that the machine uses."""
    components: tuple[str, ...]
    """Their components."""
    signed_by: str | None = None
    """The keyring named for it, if it is a path."""


def read_sources(etc_apt: Path) -> list[Source]:
    """All sources below ``etc_apt`` (``/etc/apt``), in apt's order."""
    files = [etc_apt / "sources.list"]
    parts = etc_apt / "sources.list.d"
    if parts.is_dir():
        files += sorted(parts.iterdir())
    sources: list[Source] = []
    for file in files:
        if file.suffix not in {".list", ".sources"} or not file.is_file():
            continue
        parse = parse_deb822 if file.suffix == ".sources" else parse_one_line
        sources += parse(file.read_text(encoding="utf-8", errors="replace"))
    return sources


def debian_mirror(sources: list[Source]) -> Source | None:
    """The source that holds Debian itself; None if there is none."""
    for source in sources:
        archive = source.uri.rstrip("/").endswith("/debian")
        security = any("security" in suite for suite in source.suites)
        if archive and "main" in source.components and not security:
            return source
    return None


def parse_one_line(text: str) -> list[Source]:
    """The ``deb [options] uri suite component…`` lines of a ``.list`` file."""
    sources = []
    for line in text.splitlines():
        found = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s*)?([^\s#]+)\s+([^\s#]+)([^#]*)", line)
        if found:
            options = dict(
                option.split("=", 1) for option in (found[1] or "").split() if "=" in option
            )
            sources.append(
                Source(
                    uri=found[2],
                    suites=(found[3],),
                    components=tuple(found[4].split()),
                    signed_by=_keyring(options.get("signed-by", "")),
                )
            )
    return sources


def parse_deb822(text: str) -> list[Source]:
    """The paragraphs of a ``.sources`` file that are enabled and name binary packages."""
    sources = []
    for fields in _paragraphs(text):
        types = fields.get("types", "").split()
        if "deb" not in types or fields.get("enabled", "yes").strip() in {"no", "false", "0"}:
            continue
        sources += [
            Source(
                uri=uri,
                suites=tuple(fields.get("suites", "").split()),
                components=tuple(fields.get("components", "").split()),
                signed_by=_keyring(fields.get("signed-by", "")),
            )
            for uri in fields.get("uris", "").split()
        ]
    return sources


def _paragraphs(text: str) -> Iterator[dict[str, str]]:
    fields: dict[str, str] = {}
    name = ""
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                yield fields
            fields, name = {}, ""
        elif line[0].isspace() and name:
            fields[name] += "\n" + line
        elif ":" in line:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()


def _keyring(value: str) -> str | None:
    """The path in a Signed-By; None for fingerprints and keys written out."""
    value = value.strip()
    return value if value.startswith("/") and "\n" not in value else None
