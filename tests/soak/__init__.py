"""The soak: an app under load whose processes are killed, frozen and stopped, and a check of what was kept.

`python -m tests.soak --help` says what it can be asked. Each process writes down what it does before and after it
does it (`recording`); afterwards `checking` compares these files with the tables, and knows nothing else.
"""
