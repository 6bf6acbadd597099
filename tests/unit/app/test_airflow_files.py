"""The files for an Airflow of one's own."""

from pathlib import Path

import pytest
from tests.conftest import PROJECT

from tally.app.airflow_files import FILES, FileState, airflow_file, write_airflow_files
from tally.errors import UsageError
from tally.packaged import folder_of


def test_the_files_are_those_of_the_checkout(tmp_path: Path) -> None:
    """In folders of the same names; a second call changes nothing."""
    folder = tmp_path / "new"
    view = write_airflow_files(folder)
    assert [f.path for f in view.files] == [str(folder / name) for name in FILES]
    assert {f.state for f in view.files} == {FileState.WRITTEN}
    for name in FILES:
        assert (folder / name).read_bytes() == (PROJECT / name).read_bytes()
    assert {f.state for f in write_airflow_files(folder).files} == {FileState.UNCHANGED}


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
    assert mine.read_bytes() == airflow_file(FILES[1]).read_bytes()


@pytest.mark.parametrize("linked", ["nothing", "file", "folder", "mount"])
def test_a_linked_dag_file_finds_what_was_written_beside_it(tmp_path: Path, linked: str) -> None:
    """The folder with the job: of the link, as in a Kubernetes volume, or of the file itself."""
    written = tmp_path / "tally"
    write_airflow_files(written)
    dag = written / FILES[0]
    if linked == "file":
        dag = tmp_path / "airflow" / "dags" / "tally_pipelines.py"
        dag.parent.mkdir(parents=True)
        dag.symlink_to(written / FILES[0])
    elif linked == "folder":
        folder = tmp_path / "airflow" / "dags"
        folder.parent.mkdir()
        folder.symlink_to(written / "dags")
        dag = folder / "tally_pipelines.py"
    elif linked == "mount":
        held = written / "dags" / "..data" / "tally_pipelines.py"
        held.parent.mkdir()
        dag.rename(held)
        dag.symlink_to(held)
    assert folder_of(str(dag)) == written
