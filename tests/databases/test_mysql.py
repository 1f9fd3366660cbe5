from tests.databases.mysql import Database, Server


def test_a(mysql_server: Server, mysql_database: Database, mysql_module_database: Database) -> None:
    assert mysql_database.execute("SELECT 1") == [(1,)]
