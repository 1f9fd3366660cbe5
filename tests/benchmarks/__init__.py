"""Benchmarks: `make bench`. They print tables, and judge nothing; the tests assert plans and row counts instead."""
