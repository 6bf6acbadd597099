"""Write what an install of the wheel brings, beside it: a CycloneDX SBOM and a list of licences.

Run from the checkout, with its virtual environment, in which the packages have the locked versions:
``python requirements/bill_of_materials.py dist``.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tally.spark.jars import CONNECTOR

PROJECT = Path(__file__).resolve().parent.parent
CYCLONEDX = "cyclonedx-bom==7.5.0"
# Not in their metadata; of the jars also the group, by the beginning of the name.
OF_PACKAGES = {"protobuf": "BSD-3-Clause"}
OF_JARS = {
    "commons-pool2": ("org.apache.commons", "Apache-2.0"),
    "jsr305": ("com.google.code.findbugs", "Apache-2.0"),
    "kafka-clients": ("org.apache.kafka", "Apache-2.0"),
    "lz4-java": ("at.yawk.lz4", "Apache-2.0"),
    "snappy-java": ("org.xerial.snappy", "Apache-2.0"),
    "spark-sql-kafka-0-10_2.13": ("org.apache.spark", "Apache-2.0"),
    "spark-tags_2.13": ("org.apache.spark", "Apache-2.0"),
    "spark-token-provider-kafka-0-10_2.13": ("org.apache.spark", "Apache-2.0"),
}


def main(folder: Path) -> int:
    """Write both; returns 0, or 1 after naming what has no licence."""
    (wheel,) = folder.glob("*.whl")
    document = _environment()
    root = document["metadata"]["component"]
    root["version"] = wheel.name.split("-")[1]
    root["hashes"] = [_sha256(hashlib.sha256(wheel.read_bytes()).hexdigest())]
    needed = _reachable(document["dependencies"], root["bom-ref"])
    document["dependencies"] = [d for d in document["dependencies"] if d["ref"] in needed]
    found = [c for c in document["components"] if c["bom-ref"] in needed]
    for component in found:
        if not component.get("licenses") and (own := OF_PACKAGES.get(component["name"])):
            component["licenses"] = [{"license": {"id": own}}]
    document["components"] = [*found, *_jars()]
    rows = [[c["name"], c["version"], _licence(c)] for c in document["components"]]
    if unknown := [name for name, _, licence in rows if not licence]:
        sys.stderr.write(f"no licence is known of {', '.join(unknown)}: name it in {__file__}\n")
        return 1
    name = "-".join(wheel.name.split("-")[:2])
    bill, licences = folder / f"{name}.cdx.json", folder / f"{name}.licences.txt"
    bill.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    licences.write_text("".join("\t".join(row) + "\n" for row in sorted(rows)), encoding="utf-8")
    sys.stdout.write(f"{bill}: {len(rows)} components\n{licences}\n")
    return 0


def _environment() -> dict[str, Any]:
    """What is installed, as the tool tells it, with Tally as the root."""
    # In an environment of its own: what it brings would change what Airflow's forms accept.
    uv = [Path(sys.executable).parent / "uv", "tool", "run", "--quiet", "--from", CYCLONEDX]
    arguments = ["--pyproject", str(PROJECT / "pyproject.toml"), "--mc-type", "library"]
    told = subprocess.run(
        [*uv, "cyclonedx-py", "environment", *arguments, "--output-reproducible", sys.executable],
        check=True,
        capture_output=True,
    )
    document: dict[str, Any] = json.loads(told.stdout)
    return document


def _reachable(dependencies: list[dict[str, Any]], root: str) -> set[str]:
    """The root and all that it needs: the environment has the tools of the tests, too."""
    needs = {each["ref"]: each.get("dependsOn", []) for each in dependencies}
    found, open_ = {root}, [root]
    while open_:
        new = set(needs.get(open_.pop(), [])) - found
        found |= new
        open_ += new
    return found


def _jars() -> Iterator[dict[str, Any]]:
    """What ``tally jars`` fetches."""
    for file, digest in CONNECTOR.checksums["spark"].items():
        name, _, version = file.removesuffix(".jar").rpartition("-")
        group, licence = OF_JARS.get(name, ("", ""))
        yield {
            "type": "library",
            "bom-ref": file,
            "group": group,
            "name": name,
            "version": version,
            "purl": f"pkg:maven/{group}/{name}@{version}",
            "hashes": [_sha256(digest)],
            "licenses": [{"license": {"id": licence}}] if licence else [],
        }


def _sha256(digest: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": digest}


def _licence(component: dict[str, Any]) -> str:
    """Its licences in one line; empty when there is none."""
    told = [
        each.get("expression") or each["license"].get("id") or each["license"]["name"]
        for each in component.get("licenses", [])
    ]
    return "; ".join(line.strip().splitlines()[0] for line in dict.fromkeys(told))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
