"""A dump of the whole database, and its restore, after which the same numbers are handed out."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pymysql.cursors import Cursor

if TYPE_CHECKING:
    import pymysql

_TABLES = """
    select t.table_name as name, t.auto_increment is not null as is_numbered, (
        select json_arrayagg(c.column_name) from information_schema.columns c
        where (c.table_schema, c.table_name) = (t.table_schema, t.table_name)
            and c.generation_expression = ''
    ) as columns
    from information_schema.tables t
    where t.table_schema = database() and t.table_type = 'BASE TABLE'
"""


class Dump:
    """What the database and a folder held at a moment."""

    def __init__(self, connection: "pymysql.Connection[Any]", folder: Path) -> None:
        self._connection, self._folder = connection, folder
        self._copy = folder.with_name(f"{folder.name}.dump")
        self._tables = [
            (table, is_numbered, [f"`{name}`" for name in json.loads(columns)])
            for table, is_numbered, columns in self._rows(_TABLES)
        ]
        self._held = {of[0]: self._rows_of(*of[::2]) for of in self._tables}
        shutil.rmtree(self._copy, ignore_errors=True)
        if folder.exists():
            shutil.copytree(folder, self._copy)

    def restore(self) -> None:
        """Put everything back; files that came later stay in the folder."""
        changed = [of for of in self._tables if self._rows_of(*of[::2]) != self._held[of[0]]]
        with self._connection.cursor() as cursor:
            self._connection.begin()
            for table, _, columns in changed:
                cursor.execute(f"delete from `{table}`")
                into = f"insert into `{table}` ({', '.join(columns)})"
                places = ", ".join(["%s"] * len(columns))
                cursor.executemany(f"{into} values ({places})", self._held[table])
            self._connection.commit()
            for table, is_numbered, _ in changed:
                if is_numbered:
                    cursor.execute(f"alter table `{table}` auto_increment = 1")
        if self._copy.exists():
            shutil.copytree(self._copy, self._folder, dirs_exist_ok=True)

    def _rows_of(self, table: str, columns: list[str]) -> "list[tuple[Any, ...]]":
        return self._rows(f"select {', '.join(columns)} from `{table}`")

    def _rows(self, statement: str) -> "list[tuple[Any, ...]]":
        with self._connection.cursor(Cursor) as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())
