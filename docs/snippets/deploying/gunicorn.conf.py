"""gunicorn main:app: this file is found by its name in the current folder."""

bind = "127.0.0.1:8000"
worker_class = "uvicorn_worker.UvicornWorker"
workers = 2
# How long a worker that was told to stop may take: its longest request, the queue's grace of 10 and a second, and
# some more. One that takes longer is killed, and its jobs wait for their holds.
graceful_timeout = 40
# How long a worker may give no sign of life: it's killed then. An event loop that is blocked gives none.
timeout = 60
