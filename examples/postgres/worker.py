"""Does the jobs in a table, each in a transaction that commits only while this instance leads.

    incumbent run jobs --store postgres://worker@db.example/work -- python worker.py
"""

import os
import time

import psycopg

EPOCH = int(os.environ["INCUMBENT_EPOCH"])
FENCE = os.environ["INCUMBENT_FENCE_SQL"]

with psycopg.connect(os.environ["INCUMBENT_DATABASE_URL"], autocommit=True) as database:
    while True:
        with database.transaction():
            database.execute(FENCE)
            job = database.execute(
                "UPDATE jobs SET done_in = %s WHERE id = (SELECT min(id) FROM jobs WHERE done_in IS NULL)"
                " RETURNING id, what",
                [EPOCH],
            ).fetchone()
        # It is done once it is committed.
        if job:
            print(f"epoch {EPOCH}: job {job[0]}, {job[1]}", flush=True)
        else:
            time.sleep(0.1)
