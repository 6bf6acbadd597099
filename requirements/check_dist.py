"""Check what ``make dist`` has built: one wheel and one sdist, with every file that Tally reads.

Run from the checkout, with its virtual environment: ``python requirements/check_dist.py dist``.
"""

import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from email.parser import Parser
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


def main(folder: Path) -> int:
    """Name what is wrong; returns 0 when nothing is."""
    wheels, sdists = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        return _fail(
            [f"{folder} holds {len(wheels)} wheels and {len(sdists)} sdists, not one each"]
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        in_wheel = set(wheel.namelist())
        (metadata,) = [name for name in in_wheel if name.endswith(".dist-info/METADATA")]
        headers = Parser().parsestr(wheel.read(metadata).decode())
    with tarfile.open(sdists[0]) as sdist:
        in_sdist = {name.partition("/")[2] for name in sdist.getnames()}
    wanted = _wanted()
    wrong = [f"{wheels[0].name} lacks {name}" for name in sorted(wanted.keys() - in_wheel)]
    wrong += [f"{sdists[0].name} lacks {name}" for name in sorted({*wanted.values()} - in_sdist)]
    wrong += [
        f"{wheels[0].name} holds {name}, which is not Tally's"
        for name in sorted(in_wheel - wanted.keys())
        if ".dist-info/" not in name
    ]
    if headers["Name"] != "kafka-tally" or not headers["Description-Content-Type"]:
        wrong.append(f"{wheels[0].name} is named {headers['Name']}, or has no readme")
    if wrong:
        return _fail(wrong)
    sys.stdout.write(f"{wheels[0]}: {len(in_wheel)} files\n{sdists[0]}: {len(in_sdist)} files\n")
    return 0


def _wanted() -> Mapping[str, str]:
    """By path in the wheel, the path in the checkout of each file that Tally needs."""
    text = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    included = tomllib.loads(text)["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    found = {
        str(path.relative_to(PROJECT / "src")): str(path.relative_to(PROJECT))
        for path in (PROJECT / "src" / "tally").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    for source, target in included.items():
        path = PROJECT / source
        for file in sorted(filter(Path.is_file, path.rglob("*"))) if path.is_dir() else [path]:
            place = Path(target) / file.relative_to(path)
            found[str(place)] = str(file.relative_to(PROJECT))
    return found


def _fail(wrong: list[str]) -> int:
    sys.stderr.write("".join(f"{line}\n" for line in wrong))
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
