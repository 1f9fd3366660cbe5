"""Real servers, told to stop while a hundred jobs run.

python -m tests.servers
"""
