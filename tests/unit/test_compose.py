"""What ``docker-compose.yml`` promises, checked without Docker."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

import tally
from tally_local import compose_secrets
from tally_local.stack.airflow_config import airflow_cfg
from tally_local.stack.credentials import Credentials

CHECKOUT = Path(__file__).parents[2]
COMPOSE_FILE = CHECKOUT / "docker-compose.yml"
TEXT = COMPOSE_FILE.read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PYPROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))

OWN_IMAGE = f"tally:{tally.__version__}"
BUILDER = "airflow-migrate"
ONE_SHOT = {name for name, service in SERVICES.items() if service["restart"] == "no"}
LONG_RUNNING = SERVICES.keys() - ONE_SHOT
DOCKERFILE: str = SERVICES[BUILDER]["build"]["dockerfile_inline"]

# `name:1.2` at the least, so that no tag wanders from one feature release to the next.
PINNED = re.compile(r"[a-z0-9/._-]+:v?\d+\.\d+[\w.+-]*")
CREDENTIAL_KEY = re.compile(
    r"PASSWORD|TOKEN|_KEY(_|$)|SECRET(_|$)|SQL_ALCHEMY_CONN|AIRFLOW_CONN_|AIRFLOW_VAR_"
)
CREDENTIAL_IN_URL = re.compile(r"://[^/\s:@]+:[^/\s@]+@")


def strings(value: Any) -> Iterator[str]:
    """Every string in a piece of the file, keys included."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from strings(key)
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    else:
        yield str(value)


def base_images() -> list[str]:
    """The base images of our image, without its own stages."""
    lines = [line.split() for line in DOCKERFILE.splitlines() if line.startswith("FROM ")]
    stages = {words[3] for words in lines if len(words) == 4}
    return [words[1] for words in lines if words[1] not in stages]


def pinned_by(requirements: list[str], package: str) -> str:
    """The exact version of ``package`` in a list of requirements."""
    found = [line for line in requirements if line.startswith(f"{package}==")]
    assert len(found) == 1, f"{package} is not pinned once: {found}"
    return found[0].split("==")[1].split()[0].rstrip(";\\")


def validate(path: Path) -> subprocess.CompletedProcess[str]:
    """Check a Compose file against the specification's schema, which check-jsonschema carries."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "check_jsonschema"),
            *("--builtin-schema", "vendor.compose-spec", str(path)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_file_meets_the_compose_specification() -> None:
    """Docker Compose's own schema accepts the file."""
    answer = validate(COMPOSE_FILE)
    assert answer.returncode == 0, answer.stdout


def test_the_schema_refuses_a_misspelt_key(tmp_path: Path) -> None:
    """The check above can fail: a misspelt key is found."""
    broken = tmp_path / "docker-compose.yml"
    broken.write_text(TEXT.replace("healthcheck:", "healthchek:", 1), encoding="utf-8")
    answer = validate(broken)
    assert answer.returncode == 1
    assert "healthchek" in answer.stdout


@pytest.mark.parametrize(
    "image", sorted({service["image"] for service in SERVICES.values()} | set(base_images()))
)
def test_every_image_is_pinned(image: str) -> None:
    """Each image has a tag with a version in it, never `latest`."""
    assert PINNED.fullmatch(image)


def test_one_service_builds_the_image_for_all_others() -> None:
    """Tally's image has its version as tag, is built once and asked of no registry."""
    own = {name: service for name, service in SERVICES.items() if service["image"] == OWN_IMAGE}
    policies = {name: service["pull_policy"] for name, service in own.items()}
    assert {name for name, service in SERVICES.items() if "build" in service} == {BUILDER}
    assert policies == dict.fromkeys(own, "never") | {BUILDER: "build"}
    assert own.keys() == {name for name in SERVICES if re.match("airflow|spark|tally", name)}


@pytest.mark.parametrize("name", sorted(LONG_RUNNING))
def test_every_server_is_checked_and_restarted(name: str) -> None:
    """Long-running services have health checks, which also cover their start."""
    service = SERVICES[name]
    health = service["healthcheck"]
    assert service["restart"] == "unless-stopped"
    assert health["test"][0] == "CMD"
    assert {"interval", "timeout", "retries", "start_period", "start_interval"} <= health.keys()


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_waits_for_what_it_needs(name: str) -> None:
    """Services wait for servers to be healthy and for jobs to succeed."""
    for needed, how in SERVICES[name].get("depends_on", {}).items():
        done = needed in ONE_SHOT
        assert how["condition"] == (
            "service_completed_successfully" if done else "service_healthy"
        ), needed


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_is_confined(name: str) -> None:
    """Memory is limited, logs are rotated, privileges cannot grow; our own image is read-only."""
    service = SERVICES[name]
    assert service["deploy"]["resources"]["limits"]["memory"]
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert service["security_opt"] == ["no-new-privileges:true"]
    if service["image"] == OWN_IMAGE:
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]


def test_no_credential_stands_in_the_file() -> None:
    """Each setting for a credential is the path of a file or a command that reads one."""
    given = {
        key: value
        for service in SERVICES.values()
        for key, value in service.get("environment", {}).items()
        if CREDENTIAL_KEY.search(key)
    }
    assert {"MYSQL_PASSWORD_FILE", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD"} <= given.keys()
    for key, value in given.items():
        assert key.endswith(("_FILE", "_CMD")), key
        assert re.fullmatch(r"(cat )?/run/(secrets|tally)/[\w.]+", value), key
    assert not [text for text in strings(COMPOSE) if CREDENTIAL_IN_URL.search(text)]


def test_secrets_are_files_that_the_generator_writes(tmp_path: Path) -> None:
    """The declared secrets are the generator's files, in the folder that it fills."""
    assert compose_secrets.write_secrets(tmp_path / compose_secrets.FOLDER)
    declared = {
        name: (tmp_path / secret["file"]).resolve() for name, secret in COMPOSE["secrets"].items()
    }
    assert declared == {path.name: path for path in (tmp_path / compose_secrets.FOLDER).iterdir()}


PLACED = {"mysql_console.sql": "/docker-entrypoint-initdb.d/console.sql"}
"""Secrets of MySQL by their path."""


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_has_just_the_secrets_it_names(name: str) -> None:
    """A path of a secret in a service's environment is one it was given; nothing unknown is given.

    Airflow's parts share one environment, so only the API server, which alone asks for it, has the
    file with the users' passwords.
    """
    service = SERVICES[name]
    secrets = service.get("secrets", [])
    given = {one for one in secrets if isinstance(one, str)}
    # What is put elsewhere is named by nobody: MySQL runs what is in that folder.
    placed = {one["source"]: one["target"] for one in secrets if isinstance(one, dict)}
    assert placed == (PLACED if name == "mysql" else {})
    environment = service.get("environment", {})
    named = {
        path
        for key, value in environment.items()
        if not key.endswith("PASSWORDS_FILE") or name == "airflow-apiserver"
        for path in re.findall(r"/run/(?:secrets|tally)/([\w.]+)", value)
    }
    assert given == named
    assert given | placed.keys() <= COMPOSE["secrets"].keys()


def test_only_airflow_is_published_and_only_to_this_machine() -> None:
    """One port, on the loopback address; every other service is on networks with no way out."""
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"airflow-apiserver": ["127.0.0.1:${TALLY_AIRFLOW_PORT:-8080}:8080"]}
    internal = {name for name, network in COMPOSE["networks"].items() if network}
    for name, service in SERVICES.items():
        if "network_mode" in service:  # it opens no port, and listens where only its host does
            assert service["network_mode"].removeprefix("service:") in SERVICES.keys() - published
        else:
            assert set(service["networks"]) - internal == ({"web"} if name in published else set())
    assert all(COMPOSE["networks"][name] == {"internal": True} for name in internal)


def test_every_dollar_is_meant() -> None:
    """Compose replaces variables everywhere, in scripts too: a dollar is doubled or a known one."""
    rest = TEXT.replace("$$", "").replace("${TALLY_AIRFLOW_PORT:-8080}", "")
    assert "$" not in rest


def test_nothing_is_installed_when_a_container_starts() -> None:
    """Packages and jars are in the image."""
    for service in SERVICES.values():
        started = " ".join(strings([service.get("entrypoint", []), service.get("command", [])]))
        assert not re.search(r"\b(pip|uv|apt|apt-get|curl|wget|ivy)\b", started)


def test_the_image_holds_the_packages_that_the_tests_run_with() -> None:
    """It installs the locked list with hashes, whose Spark and Airflow are those of pyproject."""
    assert "--require-hashes --no-build-isolation" in DOCKERFILE
    assert "requirements/locked.txt" in DOCKERFILE
    locked = (CHECKOUT / "requirements" / "locked.txt").read_text(encoding="utf-8").splitlines()
    extras = PYPROJECT["project"]["optional-dependencies"]
    for extra, package in (
        ("spark", "pyspark"),
        ("spark", "pyspark-client"),
        ("airflow", "apache-airflow"),
        ("airflow", "apache-airflow-providers-apache-spark"),
    ):
        assert pinned_by(locked, package) == pinned_by(extras[extra], package)


def test_the_image_has_the_python_that_the_project_is_written_for() -> None:
    """Driver and executors have one Python, the oldest that pyproject allows."""
    oldest = PYPROJECT["project"]["requires-python"].removeprefix(">=")
    assert any(image.startswith(f"python:{oldest}.") for image in base_images())
    assert set(re.findall(r"lib/python(\d+\.\d+)/", DOCKERFILE)) == {oldest}


def test_kafka_is_the_local_stacks() -> None:
    """The broker has the version that the local stack, and so the tests, run on."""
    ivy = (CHECKOUT / "local" / "src" / "tally_local" / "stack" / "ivy.xml").read_text(
        encoding="utf-8"
    )
    revisions = set(re.findall(r'org="org\.apache\.kafka" name="[^"]+" rev="([^"]+)"', ivy))
    assert len(revisions) == 1
    images = {
        service["image"] for service in SERVICES.values() if service["image"].startswith("apache/k")
    }
    assert images == {f"apache/kafka:{revision}" for revision in revisions}


def test_the_topic_of_the_configuration_is_made() -> None:
    """The job makes just the topics that tally.toml counts; Tally itself makes none."""
    settings = tomllib.loads((CHECKOUT / "tally.toml").read_text(encoding="utf-8"))
    wanted = {topic for pipeline in settings["pipelines"].values() for topic in pipeline["topics"]}
    command = SERVICES["kafka-topics"]["command"]
    made = {part.removeprefix("--topic=") for part in command if part.startswith("--topic=")}
    assert made == wanted


def test_airflow_has_the_local_stacks_timeouts() -> None:
    """Every setting that the local stack changes is changed here in the same way."""
    local = ConfigParser(interpolation=None)
    local.read_string(
        airflow_cfg(
            project=CHECKOUT,
            folder=CHECKOUT,
            port=1,
            credentials=Credentials(),
            connections=CHECKOUT,
        )
    )
    wanted = {
        f"AIRFLOW__{section}__{key}".upper(): value
        for section, key in (
            *(("scheduler", key) for key in local["scheduler"]),
            *(("core", key) for key in ("executor", "parallelism", "simple_auth_manager_users")),
            ("core", "min_serialized_dag_update_interval"),
            ("dag_processor", "refresh_interval"),
        )
        for value in [local[section][key]]
    }
    environment = SERVICES["airflow-scheduler"]["environment"]
    assert {key: environment.get(key, "missing").lower() for key in wanted} == {
        key: value.lower() for key, value in wanted.items()
    }


@pytest.mark.parametrize("name", sorted(LONG_RUNNING))
def test_scripts_in_the_file_are_valid(name: str) -> None:
    """Python in a health check compiles; the shell accepts the entry point."""
    service = SERVICES[name]
    check = service["healthcheck"]["test"]
    if check[1] == "python":
        compile(check[3], name, "exec")
    entrypoint = service.get("entrypoint", [""])
    if entrypoint[0] == "/bin/bash":
        script = entrypoint[2].replace("$$", "$")
        answer = subprocess.run(["/bin/bash", "-n", "-c", script], check=False)
        assert answer.returncode == 0


def test_the_image_fetches_the_connector_as_the_set_up_does(tmp_path: Path) -> None:
    """The script of the image runs, with the code alone that is copied beside it."""
    here = re.compile(r'COPY <<"EOF" fetch_jars\.py\n(.*?)^EOF$', re.DOTALL | re.MULTILINE)
    (script,) = here.findall(DOCKERFILE)
    assert "COPY src/tally src/tally" in DOCKERFILE
    downloads = CHECKOUT / ".tally" / "downloads"
    # The files lie where the set-up has put them, so that nothing is fetched; and they stay there.
    script = script.replace('Path("downloads").resolve()', f"Path({str(downloads)!r})")
    script, renamed = script.replace('.rename("jars")', ""), '.rename("jars")' in script
    path = tmp_path / "fetch_jars.py"
    path.write_text(f"{script}\nassert 'tally_local' not in __import__('sys').modules\n")
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "src")}
    done = subprocess.run(
        [sys.executable, path], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, renamed) == (0, True), done.stderr


def test_generated_secrets_are_private_and_stay(tmp_path: Path) -> None:
    """Owner only; a second run changes nothing, for the servers keep their first passwords."""
    folder = tmp_path / "secrets"
    assert compose_secrets.write_secrets(folder)
    first = {path.name: path.read_text() for path in folder.iterdir()}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert not compose_secrets.write_secrets(folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == first


def test_an_interrupted_generator_starts_over(tmp_path: Path) -> None:
    """The leftovers of a killed run are not used as secrets."""
    left = tmp_path / "secrets.new"
    left.mkdir()
    (left / "mysql_root_password").write_text("half")
    assert compose_secrets.write_secrets(tmp_path / "secrets")
    assert (tmp_path / "secrets" / "mysql_root_password").read_text() != "half"
    assert not left.exists()


def test_generated_secrets_agree_with_one_another() -> None:
    """A server and its clients get the same password, two generations share none."""
    files, others = compose_secrets.secret_files(), compose_secrets.secret_files()
    mysql = files["mysql_tally_password"]
    connections = json.loads(files["airflow_connections.json"])
    token = connections["tally_spark"]["password"]
    assert tomllib.loads(files["tally.toml"]) == {
        "mysql": {"password": mysql},
        "spark": {"connect_token": token},
    }
    assert connections["tally_mysql"]["password"] == mysql
    assert f":{files['postgres_password']}@postgres/" in files["airflow_database"]
    assert not set(files.values()) & set(others.values())


def test_connections_name_services_of_the_file() -> None:
    """Airflow's connections name the containers."""
    connections = json.loads(compose_secrets.secret_files()["airflow_connections.json"])
    kafka = connections["tally_kafka"]["extra"]["bootstrap.servers"]
    scheduler = SERVICES["airflow-scheduler"]["environment"]
    assert kafka == scheduler["TALLY_KAFKA__BOOTSTRAP_SERVERS"]
    spark = connections["tally_spark"]
    assert f"sc://{spark['host']}:{spark['port']}" == scheduler["TALLY_SPARK__MASTER"]
    server = SERVICES["spark-connect"]
    assert server["network_mode"] == "service:airflow-scheduler"
    assert server["command"][-2:] == ["--port", str(spark["port"])]
    assert str(spark["port"]) in server["healthcheck"]["test"][-1]
    assert "spark://spark-master:7077" in server["command"]
    assert connections["tally_mysql"]["host"] == scheduler["TALLY_MYSQL__HOST"]
    assert {kafka.split(":")[0], "mysql", "spark-master"} <= SERVICES.keys()


def test_the_generator_needs_no_package(tmp_path: Path) -> None:
    """The command in the file's header works with Python alone, and only where it belongs."""
    command = [sys.executable, "-S", "-m", "tally_local.compose_secrets"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "local" / "src")}

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    assert run().returncode == 2
    (tmp_path / "docker-compose.yml").touch()
    done = run()
    assert done.returncode == 0, done.stderr
    written = (tmp_path / compose_secrets.FOLDER / "mysql_tally_password").read_text()
    assert written not in done.stdout + done.stderr
