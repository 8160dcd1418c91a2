"""Concurrent clients of the whole service, some of them killed or frozen: no order of commands breaks a promise."""

import pytest

from .service import Service

#: `make linearize` takes ten minutes for each database.
SECONDS = 8.0
LEAST_CALLS = 30


@pytest.mark.long("clients are processes that are killed and frozen")
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.extended)])
def test_each_history_of_concurrent_clients_is_linearizable(tmp_path, database):
    with Service(tmp_path, database=database, n_clients=2, seed=3) as service:
        service.trouble(SECONDS, least_calls=LEAST_CALLS)

    assert service.judged() == []
