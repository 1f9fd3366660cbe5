"""What is measured on Postgres: fastjobs, the bare driver on its own tables, and others' queues."""
