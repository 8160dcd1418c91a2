"""Which urls name a Spark, and the errors of those that do not, or that do not answer."""

import os
from dataclasses import replace

import pytest

from databuild_dagster.spark.errors import BadSetting, BadSparkUrl, FixedSetting, RemoteUnreachable, SessionModesMixed
from databuild_dagster.spark.interrupt import session_address
from databuild_dagster.spark.server import use_server
from databuild_dagster.spark.session import open_session
from databuild_dagster.spark.settings import SparkSettings, name_driver, parse_url

CONNECT, MASTER = True, False


@pytest.mark.parametrize(
    ("url", "is_connect", "endpoints"),
    [
        ("sc://spark.example", CONNECT, [("spark.example", 15002)]),
        ("sc://spark.example:443/;use_ssl=true;token=abc=", CONNECT, [("spark.example", 443)]),
        ("sc://[::1]:7", CONNECT, [("::1", 7)]),
        ("spark://one:7077", MASTER, [("one", 7077)]),
        ("spark://one:7077,two:7078", MASTER, [("one", 7077), ("two", 7078)]),
        ("k8s://https://cluster.example", MASTER, [("cluster.example", 443)]),
        ("k8s://https://cluster.example:6443/api", MASTER, [("cluster.example", 6443)]),
        ("yarn", MASTER, []),
        ("local[2]", MASTER, []),
    ],
)
def test_a_url_names_a_server_or_a_master_and_where_to_knock(url, is_connect, endpoints):
    remote = parse_url(url)

    assert (remote.is_connect, list(remote.endpoints)) == (is_connect, endpoints)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (None, "needs a url"),
        ("  ", "needs a url"),
        ("spark.example:7077", "no scheme"),
        ("http://spark.example", "http:// is not a scheme of Spark's"),
        ("spark://one", "'one' has no port"),
        ("spark://one:7077,", "'' is not host:port"),
        ("sc://", "'' is not host:port"),
        ("sc://one:70777", "70777 is not a port"),
        ("sc://one:1/path", "only /;key=value;key=value may follow"),
        ("sc://one:1/;token", "not of the form key=value"),
    ],
)
def test_what_is_no_url_of_spark_is_refused_with_the_reason_and_what_there_is(url, why):
    with pytest.raises(BadSparkUrl, match=f"{why}.* Give sc://host:port"):
        SparkSettings(mode="remote", url=url).check()


def test_a_token_is_in_no_message():
    with pytest.raises(BadSparkUrl) as malformed:
        parse_url("sc://one:x/;token=secret")
    with pytest.raises(RemoteUnreachable) as silent:
        open_session(SparkSettings(mode="remote", url="sc://localhost:1/;token=secret"))

    assert "secret" not in str(malformed.value) + str(silent.value)


def test_a_url_is_for_the_mode_that_has_one():
    with pytest.raises(BadSparkUrl, match="mode='shared' has no url"):
        open_session(SparkSettings(url="sc://localhost:1"))


@pytest.mark.parametrize("url", ["sc://localhost:1", "spark://localhost:1", "spark://localhost:1,localhost:2"])
def test_a_remote_spark_that_does_not_answer_is_said_at_once(url):
    with pytest.raises(RemoteUnreachable, match=r"does not answer at localhost:1 \(connection refused\)"):
        open_session(SparkSettings(mode="remote", url=url))


def test_yarn_without_its_configuration_is_refused_before_a_jvm_starts(monkeypatch):
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)

    with pytest.raises(BadSparkUrl, match="neither HADOOP_CONF_DIR nor YARN_CONF_DIR"):
        open_session(SparkSettings(mode="remote", url="yarn"))


def test_a_setting_that_the_server_has_fixed_is_named():
    """A remote server is others': what it was started with cannot be ours to say."""
    settings = SparkSettings(mode="remote", url="sc://localhost:1", config={"spark.driver.memory": "4g"})

    with pytest.raises(FixedSetting, match=r"spark\.driver\.memory is fixed .*a session of sc://localhost:1"):
        open_session(settings)


def test_what_is_no_setting_of_spark_is_refused():
    with pytest.raises(BadSetting, match=r"'shuffle\.partitions' is not .*begin with 'spark\.'"):
        SparkSettings(config={"shuffle.partitions": "8"}).check()


def test_a_cluster_elsewhere_gets_no_loopback_address_of_its_driver():
    here = SparkSettings(mode="remote", url="spark://127.0.0.1:7077")
    elsewhere = replace(here, url="spark://spark.example:7077")

    assert here.all_config()["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in elsewhere.all_config()
    assert "spark.driver.memory" not in elsewhere.all_config()


def test_the_driver_of_a_cluster_draws_no_progress_into_the_lines_of_the_command():
    settings = SparkSettings(mode="remote", url="spark://spark.example:7077")

    assert settings.all_config()["spark.ui.showConsoleProgress"] == "false"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, {"SPARK_LOCAL_HOSTNAME": "10.0.0.7"}),
        ({"SPARK_LOCAL_HOSTNAME": "builder"}, {"SPARK_LOCAL_HOSTNAME": "builder"}),
        ({"SPARK_LOCAL_IP": "10.1.0.7"}, {"SPARK_LOCAL_IP": "10.1.0.7"}),
    ],
)
def test_the_driver_of_a_cluster_is_named_by_its_address_unless_the_user_names_it(given, named):
    environment = dict(given)

    name_driver("10.0.0.7", environment)

    assert environment == named


def test_a_session_on_a_remote_server_works_and_has_its_settings(spark, spark_home):
    url = use_server(SparkSettings(home=spark_home)).url

    remote = open_session(SparkSettings(mode="remote", url=url, config={"spark.sql.shuffle.partitions": "3"}))

    assert remote.range(3).count() == 3
    assert remote.conf.get("spark.sql.shuffle.partitions") == "3"
    assert remote.conf.get("spark.sql.session.timeZone") == "UTC"
    assert session_address(remote) != session_address(spark)
    assert "token" not in session_address(remote)


def test_one_dagster_runs_settings_are_its_sessions_alone(spark, spark_home):
    settings = SparkSettings(home=spark_home, run_config={"spark.sql.shuffle.partitions": "3"})

    of_one_run = open_session(settings)

    assert of_one_run.conf.get("spark.sql.shuffle.partitions") == "3"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "8"
    assert settings.fingerprint() == SparkSettings(home=spark_home).fingerprint()


def test_a_fixed_setting_for_one_dagster_run_is_named_and_nothing_starts(tmp_path):
    settings = SparkSettings(home=tmp_path, run_config={"spark.executor.memory": "4g"})

    with pytest.raises(FixedSetting, match=r"spark\.executor\.memory is fixed .*one Dagster run cannot change it"):
        open_session(settings)

    assert os.listdir(tmp_path) == []


def test_a_setting_that_only_spark_knows_to_be_fixed_is_named_too(spark, spark_home):
    settings = SparkSettings(home=spark_home, run_config={"spark.sql.legacy.createHiveTableByDefault.x": "1"})
    fixed = replace(settings, run_config={"spark.sql.cache.serializer": "x"})

    assert open_session(settings).range(1).count() == 1
    with pytest.raises(FixedSetting, match=r"spark\.sql\.cache\.serializer is fixed"):
        open_session(fixed)


def test_a_jvm_of_this_process_cannot_stand_beside_a_client(spark):
    with pytest.raises(SessionModesMixed, match="has a shared Spark session already"):
        open_session(SparkSettings(mode="remote", url="local[2]"))
