"""What ``deploy/kubernetes`` promises, checked without a cluster."""

import tomllib
from itertools import chain
from typing import Any

import kubernetes_validate
import yaml
from tests.servers import PROJECT
from tests.unit.sources import text

import tally
from tally.config.settings import Settings

FOLDER = PROJECT / "deploy" / "kubernetes"
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all(text(FOLDER / "tally.yaml")))
VALUES: dict[str, Any] = yaml.safe_load(text(FOLDER / "airflow-values.yaml"))
NEWEST = "1.37"
"""Of Kubernetes; the page names it."""


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = (one for one in MANIFESTS if one["kind"] == kind)
    return found


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [c for key, found in pod.items() if key.lower().endswith("containers") for c in found]


def test_the_manifests_meet_the_schemas() -> None:
    """Strictly: an unknown key is an error. What the chart is given is put into a pod."""
    assert f"Kubernetes\n{NEWEST}" in text(PROJECT / "docs" / "kubernetes.md")
    scheduler = VALUES["scheduler"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "scheduler"},
        "spec": {
            "initContainers": scheduler["extraInitContainers"],
            "containers": scheduler["extraContainers"],
            "volumes": VALUES["volumes"],
        },
    }
    for one in [*MANIFESTS, pod]:
        kubernetes_validate.validate(one, NEWEST, strict=True)


def test_all_is_the_image_of_this_version() -> None:
    pods = [of_kind("Job")["spec"]["template"]["spec"], VALUES["scheduler"]]
    images = {c["image"] for c in chain.from_iterable(map(containers, pods))}
    image = VALUES["images"]["airflow"]
    assert images == {f"registry.example/tally:{tally.__version__}"}
    assert f"{image['repository']}:{image['tag']}" in images


def test_what_is_mounted_is_there_and_where_tally_looks() -> None:
    """Configuration and secrets; of the secrets Tally reads its user's own copy."""
    job = of_kind("Job")["spec"]["template"]["spec"]
    of_job = {volume["name"] for volume in job["volumes"]}
    of_chart = {volume["name"] for volume in VALUES["volumes"]}
    parts = [VALUES[name] for name in ("scheduler", "apiServer", "dagProcessor", "workers")]
    assert all(part["extraInitContainers"] for part in parts)
    pods = [(job, of_job), *((part, of_chart) for part in parts)]
    for pod, volumes in pods:
        for container in containers(pod):
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            assert set(mounts.values()) <= volumes
            variables = {e["name"]: e["value"] for e in container.get("env", [])}
            for value in (v for v in variables.values() if v.startswith("/")):
                assert value.rpartition("/")[0] in mounts


def test_the_configuration_is_valid() -> None:
    config = tomllib.loads(of_kind("ConfigMap")["data"]["tally.toml"])
    assert Settings(**config).names == ["error_log"]
