"""The files for an Airflow, a Prometheus and a Grafana of one's own."""

from functools import partial
from pathlib import Path

import pytest
from tests.servers import PROJECT

from tally.errors import UsageError
from tally.packaged import AIRFLOW_FILES as FILES
from tally.packaged import MONITORING_FILES, folder_of, write_packaged

write_airflow_files = partial(write_packaged, names=FILES)


def test_the_files_are_those_of_the_checkout(tmp_path: Path) -> None:
    """In folders of the same names; a second call changes nothing."""
    folder, names = tmp_path / "new", [*FILES, *MONITORING_FILES]
    assert write_packaged(folder, names) == {folder / name: True for name in names}
    for name in names:
        assert (folder / name).read_bytes() == (PROJECT / name).read_bytes()
    assert write_packaged(folder, names) == {folder / name: False for name in names}


def test_a_file_that_someone_has_changed_is_kept(tmp_path: Path) -> None:
    """Nothing is written beside it, until its replacement is asked for."""
    mine = tmp_path / FILES[1]
    mine.parent.mkdir()
    mine.write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match=f"{FILES[1]}: there already") as raised:
        write_airflow_files(tmp_path)
    assert "--replace" in raised.value.next_step
    assert not (tmp_path / FILES[0]).exists()
    assert mine.read_text(encoding="utf-8") == "mine"
    write_airflow_files(tmp_path, replace=True)
    assert mine.read_bytes() == (PROJECT / FILES[1]).read_bytes()


def test_a_linked_dag_file_finds_what_was_written_beside_it(tmp_path: Path) -> None:
    """The folder with the job: of the link, as in a Kubernetes volume, or of the file itself."""
    written = tmp_path / "tally"
    write_airflow_files(written)
    dag = written / FILES[0]
    linked = tmp_path / "one" / "dags" / dag.name
    linked.parent.mkdir(parents=True)
    linked.symlink_to(dag)
    folder = tmp_path / "two" / "dags"
    folder.parent.mkdir()
    folder.symlink_to(dag.parent)
    for name in (dag, linked, folder / dag.name):
        assert folder_of(str(name)) == written
    held = dag.parent / "..data" / dag.name
    held.parent.mkdir()
    dag.rename(held)
    dag.symlink_to(held)
    assert folder_of(str(dag)) == written
