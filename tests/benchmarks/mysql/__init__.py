"""What is measured on MariaDB and MySQL."""
