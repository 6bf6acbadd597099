"""What ``docker-compose.yml`` promises, checked without Docker."""

import json
import os
import re
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import yaml
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner
from packaging.requirements import Requirement
from tests.servers import PROJECT
from tests.unit.sources import text

import tally
from tally.spark.jars import CONNECTOR
from tally_local import compose_secrets
from tally_local.stack.airflow_server import airflow_cfg
from tally_local.stack.home import Credentials, Layout

COMPOSE_FILE = PROJECT / "docker-compose.yml"
TEXT = text(COMPOSE_FILE)
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PYPROJECT = tomllib.loads(text(PROJECT / "pyproject.toml"))

OWN_IMAGE = f"tally:{tally.__version__}"
BUILDER = "airflow-migrate"
ONE_SHOT = {name for name, service in SERVICES.items() if service["restart"] == "no"}
DOCKERFILE: str = SERVICES[BUILDER]["build"]["dockerfile_inline"]

# `name:1.2` at the least, so that no tag wanders from one feature release to the next.
PINNED = re.compile(r"[a-z0-9/._-]+:v?\d+\.\d+[\w.+-]*")
CREDENTIAL_KEY = re.compile(
    r"PASSWORD|TOKEN|_KEY(_|$)|SECRET(_|$)|SQL_ALCHEMY_CONN|AIRFLOW_CONN_|AIRFLOW_VAR_"
)
CREDENTIAL_IN_URL = re.compile(r"://[^/\s:@]+:[^/\s@]+@")


def base_images() -> list[str]:
    """The base images of our image, without its own stages."""
    lines = [line.split() for line in DOCKERFILE.splitlines() if line.startswith("FROM ")]
    stages = {words[3] for words in lines if len(words) == 4}
    return [words[1] for words in lines if words[1] not in stages]


def test_the_file_meets_the_compose_specification(tmp_path: Path) -> None:
    """The schema that check-jsonschema carries accepts the file, and finds a misspelt key."""
    broken = tmp_path / "docker-compose.yml"
    broken.write_text(TEXT.replace("healthcheck:", "healthchek:", 1), encoding="utf-8")
    for path, code, said in ((COMPOSE_FILE, 0, "ok"), (broken, 1, "healthchek")):
        asked = ["--builtin-schema", "vendor.compose-spec", str(path)]
        answer = CliRunner().invoke(check_jsonschema, asked)
        assert (answer.exit_code, said in answer.output) == (code, True), answer.output


def test_every_image_is_pinned_and_ours_is_built_once() -> None:
    """A tag with a version, never `latest`; Tally's has its own and is asked of no registry."""
    images = {service["image"] for service in SERVICES.values()} | set(base_images())
    assert [image for image in images if not PINNED.fullmatch(image)] == []
    assert not PINNED.fullmatch("mysql:latest")
    own = {name: service for name, service in SERVICES.items() if service["image"] == OWN_IMAGE}
    policies = {name: service["pull_policy"] for name, service in own.items()}
    assert {name for name, service in SERVICES.items() if "build" in service} == {BUILDER}
    assert policies == dict.fromkeys(own, "never") | {BUILDER: "build"}
    assert own.keys() == {
        name for name in SERVICES if re.match("airflow|spark|tally|kafka-topics", name)
    }


def test_every_service_is_checked_restarted_and_confined() -> None:
    """It waits for what it needs, has limits and gains no rights; our own image is read-only."""
    waits = {True: "service_completed_successfully", False: "service_healthy"}
    for name, service in SERVICES.items():
        if name not in ONE_SHOT:
            health = service["healthcheck"]
            assert (service["restart"], health["test"][0]) == ("unless-stopped", "CMD"), name
            keys = {"interval", "timeout", "retries", "start_period", "start_interval"}
            assert keys <= health.keys(), name
        for needed, how in service.get("depends_on", {}).items():
            assert how["condition"] == waits[needed in ONE_SHOT], (name, needed)
        assert service["deploy"]["resources"]["limits"]["memory"], name
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        if service["image"] == OWN_IMAGE:
            assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"]), name


def test_no_credential_stands_in_the_file() -> None:
    """Each setting for a credential is the path of a file or a command that reads one."""
    environments = [service.get("environment", {}) for service in SERVICES.values()]
    given = {k: value for e in environments for k, value in e.items() if CREDENTIAL_KEY.search(k)}
    assert {"MYSQL_PASSWORD_FILE", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD"} <= given.keys()
    for key, value in given.items():
        assert key.endswith(("_FILE", "_CMD")), key
        assert re.fullmatch(r"(cat )?/run/(secrets|tally)/[\w.]+", value), key
    assert not CREDENTIAL_IN_URL.search(TEXT)
    # Each service has just the secrets that it names. Airflow's parts share an environment: the API
    # server alone has the users' passwords.
    for name, service in SERVICES.items():
        secrets = service.get("secrets", [])
        given = {one for one in secrets if isinstance(one, str)}
        # What is put elsewhere is named by nobody: MySQL runs what is in that folder.
        placed = {one["source"]: one["target"] for one in secrets if isinstance(one, dict)}
        console = {"mysql_console.sql": "/docker-entrypoint-initdb.d/console.sql"}
        assert placed == (console if name == "mysql" else {})
        named = {
            path
            for key, value in service.get("environment", {}).items()
            if not key.endswith("PASSWORDS_FILE") or name == "airflow-apiserver"
            for path in re.findall(r"/run/(?:secrets|tally)/([\w.]+)", value)
        }
        assert given == named, name
        assert given | placed.keys() <= COMPOSE["secrets"].keys()


def test_only_airflow_is_published_and_only_to_this_machine() -> None:
    """One port, on the loopback address; only the scheduler, which tells alerts, has a way out."""
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"airflow-apiserver": ["127.0.0.1:${TALLY_AIRFLOW_PORT:-8080}:8080"]}
    internal = {name for name, network in COMPOSE["networks"].items() if network}
    for name, service in SERVICES.items():
        if "network_mode" in service:  # it opens no port, and listens where only its host does
            assert service["network_mode"].removeprefix("service:") in SERVICES.keys() - published
        else:
            outside = {"web"} if name in published else set()
            outside |= {"alerts"} if name == "airflow-scheduler" else set()
            assert set(service["networks"]) - internal == outside
    assert all(COMPOSE["networks"][name] == {"internal": True} for name in internal)


def test_the_header_names_the_memory_that_services_may_take() -> None:
    """Those that stay; what runs once at the beginning has ended when the last of them starts."""
    limits = [
        s["deploy"]["resources"]["limits"]["memory"]
        for n, s in SERVICES.items()
        if n not in ONE_SHOT
    ]
    mib = sum(int(limit[:-1]) * {"m": 1, "g": 1024}[limit[-1]] for limit in limits)
    assert f"up to {mib / 1024:.1f} GiB of memory" in TEXT


def test_every_part_that_reads_the_configuration_sees_the_folder() -> None:
    """A file that an editor replaces would stay the old one in its container."""
    reading = {n for n, s in SERVICES.items() if "TALLY_CONFIG" in s.get("environment", {})}
    folder = {
        "type": "bind",
        "source": "./compose",
        "target": "/opt/tally/config",
        "read_only": True,
    }
    assert {n for n, s in SERVICES.items() if folder in s.get("volumes", [])} == reading
    path = Path(SERVICES["airflow-scheduler"]["environment"]["TALLY_CONFIG"])
    assert str(path.parent) == folder["target"]
    own = PROJECT / "compose" / path.name
    assert (
        tomllib.loads(text(own))["pipelines"]
        == tomllib.loads(text(PROJECT / "tally.toml"))["pipelines"]
    )


def test_kafka_is_published_by_a_second_file_alone() -> None:
    beside = yaml.safe_load(text(PROJECT / "compose" / "kafka.yml"))
    assert list(beside["services"]) == ["kafka"]
    (port,) = beside["services"]["kafka"]["ports"]
    advertised = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"OUTSIDE://{port.rpartition(':')[0]}" in advertised


def test_scripts_in_the_file_are_valid() -> None:
    """Python compiles, the shell accepts it, every dollar is meant, and nothing is installed."""
    assert "$" not in TEXT.replace("$$", "").replace("${TALLY_AIRFLOW_PORT:-8080}", "")
    for name, service in SERVICES.items():
        check = service.get("healthcheck", {"test": ["", ""]})["test"]
        if check[1] == "python":
            compile(check[3], name, "exec")
        entrypoint = service.get("entrypoint", [""])
        if service.get("command", [""])[0] == "python":
            compile(service["command"][2], name, "exec")
        if entrypoint[0] == "/bin/bash":
            script = entrypoint[2].replace("$$", "$")
            assert subprocess.run(["/bin/bash", "-n", "-c", script], check=False).returncode == 0
        started = f"{entrypoint} {service.get('command', '')}"
        assert not re.search(r"\b(pip|uv|apt|apt-get|curl|wget|ivy)\b", started), name


def test_the_image_holds_what_the_tests_run_with() -> None:
    """The locked list with hashes, whose Spark and Airflow pyproject allows; the oldest Python."""
    assert "--require-hashes --no-build-isolation" in DOCKERFILE
    assert "requirements/locked.txt" in DOCKERFILE
    extras = PYPROJECT["project"]["optional-dependencies"]
    locked = text(PROJECT / "requirements/locked.txt")
    for needed in map(Requirement, {*extras["spark"], *extras["airflow"]}):
        (version,) = re.findall(rf"^{needed.name}==(\S+)", locked, re.MULTILINE)
        assert needed.specifier.contains(version)
    oldest = PYPROJECT["project"]["requires-python"].removeprefix(">=")
    assert any(image.startswith(f"python:{oldest}.") for image in base_images())
    assert set(re.findall(r"lib/python(\d+\.\d+)/", DOCKERFILE)) == {oldest}


def test_kafka_and_airflow_are_set_as_in_the_local_stack() -> None:
    """The version that the tests run on, and the settings of Airflow."""
    ivy = text(PROJECT / "local" / "src" / "tally_local" / "stack" / "ivy.xml")
    (revision,) = set(re.findall(r'org="org\.apache\.kafka" name="[^"]+" rev="([^"]+)"', ivy))
    images = {s["image"] for s in SERVICES.values() if s["image"].startswith("apache/k")}
    assert images == {f"apache/kafka:{revision}"}
    # Every setting of Airflow that the local stack changes is changed here in the same way.
    local = ConfigParser(interpolation=None)
    local.read_string(airflow_cfg(Layout(PROJECT), 1, Credentials()))
    of_core = "executor parallelism simple_auth_manager_users min_serialized_dag_update_interval"
    keys = [("scheduler", key) for key in local["scheduler"]]
    keys += [("core", key) for key in of_core.split()]
    environment = SERVICES["airflow-scheduler"]["environment"]
    for section, key in [*keys, ("dag_processor", "refresh_interval")]:
        found = environment.get(f"AIRFLOW__{section}__{key}".upper(), "missing")
        assert found.lower() == local[section][key].lower(), key


def run_alone(folder: Path, *command: str, path: Path) -> "subprocess.CompletedProcess[str]":
    """Run Python in a folder, with only one folder of code."""
    asked: dict[str, Any] = {"cwd": folder, "env": {**os.environ, "PYTHONPATH": str(path)}}
    argv = [sys.executable, *command]
    return subprocess.run(argv, **asked, capture_output=True, text=True, check=False)


def test_the_image_fetches_the_connector_as_the_set_up_does(tmp_path: Path) -> None:
    """The script of the image runs, with the code alone that is copied beside it."""
    here = re.compile(r'COPY <<"EOF" fetch_jars\.py\n(.*?)^EOF$', re.DOTALL | re.MULTILINE)
    (script,) = here.findall(DOCKERFILE)
    assert "COPY src/tally src/tally" in DOCKERFILE
    # Jars that are there are not fetched; how they are is tests/stack/test_stack.py's.
    CONNECTOR.folder("spark", tmp_path / "downloads").mkdir(parents=True)
    script += "\nassert 'tally_local' not in __import__('sys').modules\n"
    done = run_alone(tmp_path, "-c", script, path=PROJECT / "src")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "jars").is_dir()


def test_generated_secrets_are_private_and_stay(tmp_path: Path) -> None:
    """Owner only; leftovers of a killed run are not used, and a second run changes nothing."""
    folder = tmp_path / compose_secrets.FOLDER
    left = folder.with_name(f"{folder.name}.new")
    left.mkdir(parents=True)
    (left / "mysql_root_password").write_text("half")
    assert compose_secrets.write_secrets(folder)
    assert not left.exists()
    declared = COMPOSE["secrets"].items()
    paths = {name: (tmp_path / secret["file"]).resolve() for name, secret in declared}
    assert paths == {path.name: path for path in folder.iterdir()}
    first = {path: path.read_text() for path in folder.iterdir()}
    assert "half" not in first.values()
    assert [path.stat().st_mode & 0o777 for path in (folder, *first)] == [
        0o700,
        *[0o600] * len(first),
    ]
    assert not compose_secrets.write_secrets(folder)
    assert {path: path.read_text() for path in folder.iterdir()} == first


def test_generated_secrets_agree_with_one_another_and_with_the_file() -> None:
    """A server and its clients get the same password; connections name the containers."""
    files, others = compose_secrets.secret_files(), compose_secrets.secret_files()
    mysql = files["mysql_tally_password"]
    connections = json.loads(files["airflow_connections.json"])
    token = connections["tally_spark"]["password"]
    of_tally = {"mysql": {"password": mysql}, "spark": {"connect_token": token}}
    assert tomllib.loads(files["tally.toml"]) == of_tally
    assert connections["tally_mysql"]["password"] == mysql
    assert f":{files['postgres_password']}@postgres/" in files["airflow_database"]
    assert not set(files.values()) & set(others.values()), "two generations share none"
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
    command, path = ("-S", "-m", "tally_local.compose_secrets"), PROJECT / "local" / "src"
    assert run_alone(tmp_path, *command, path=path).returncode == 2
    (tmp_path / "docker-compose.yml").touch()
    done = run_alone(tmp_path, *command, path=path)
    assert done.returncode == 0, done.stderr
    written = (tmp_path / compose_secrets.FOLDER / "mysql_tally_password").read_text()
    assert written not in done.stdout + done.stderr
