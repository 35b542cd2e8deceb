"""No password is shown, however its address is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headgate as hg
from headgate.core import DeclarationError
from headgate.places.place import path_from
from headgate.places.secret_text import SECRET_NAME, refuse_secrets, shown_address, without

#: the pieces of every password here
PIECE = "Qx9"


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://u:Qx9A/Qx9B@h:1/db",
        "postgresql://u:Qx9A#Qx9B@h:1/db",
        "postgresql://u:Qx9A#Qx9B",
        "postgresql://u:Qx9A?Qx9B@h:1/db",
        "postgresql://u:Qx9A@Qx9B/Qx9C@h:1/db",
    ],
)
@pytest.mark.parametrize(
    "declared",
    [
        lambda uri: hg.Postgres(uri, "t", key="id"),
        lambda uri: hg.PostgresChanges(uri, "t"),
        lambda uri: hg.PostgresSink(uri, "t", key="id"),
    ],
    ids=["Postgres", "PostgresChanges", "PostgresSink"],
)
def test_a_password_of_postgresql_that_is_not_encoded_is_refused_unseen(
    declared: Callable[[str], Any], uri: str
) -> None:
    with pytest.raises(DeclarationError, match="percent-encoded") as failed:
        declared(uri)
    assert PIECE not in str(failed.value)


@pytest.mark.parametrize(
    "address",
    [
        "s3://key:Qx9A@bucket/x",
        "s3://key:Qx9A/Qx9B@bucket/x",
        "s3://key:Qx9A?Qx9B@bucket/x",
        "s3://key:/Qx9A@bucket/x",
        "s3a://key:7/Qx9A@bucket/x",
        "gs://key:7/Qx9A/Qx9B@bucket/x",
        "http://u:/Qx9A@h/x",
        "http://u:Qx9A@h/x",
        "abfss://c@acc.dfs.core.windows.net/x?sig=Qx9A",
    ],
)
@pytest.mark.parametrize("declared", [path_from, hg.Delta, hg.Files], ids=["Warehouse", "Delta", "Files"])
def test_an_address_with_a_secret_is_refused_and_shown_without_it(declared: Callable[[str], Any], address: str) -> None:
    with pytest.raises(DeclarationError) as failed:
        declared(address)
    assert PIECE not in str(failed.value)


@pytest.mark.parametrize(
    "address", ["abfss://box@account/x", "s3://bucket/a:b@c", "hdfs://host:8020/a@b", "HTTP://h:1/a@b", "/a:b@c?d"]
)
def test_an_address_without_a_secret_is_taken(address: str) -> None:
    refuse_secrets(address, "here", "")


@pytest.mark.parametrize(
    "name",
    [
        *("fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token", "fs.s3a.encryption.key"),
        *("fs.azure.account.key.box.dfs.core.windows.net", "fs.azure.sas.box", "fs.azure.account.oauth2.client.secret"),
        *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "aws_sse_customer_key_base64", "azure_storage_account_key"),
        *("apikey", "api_key", "fs.cloud.apiKey", "accountkey", "fs.oss.accountKey", "access_keyId"),
        *("fs.oss.accessKeyId", "fs.oss.accessKeySecret", "accesskey", "accessKeys", "fs.gs.auth.privateKey"),
        *("fs.gs.auth.service.account.private.key.id", "sharedKey", "signingKey", "encryptionKey", "masterkey"),
        *("fs.sftp.passphrase", "ssl.keyPassphrase", "ssl.keystore.password", "ssl.keystore.key", "passwd"),
    ],
)
def test_a_name_of_a_secret_is_known(name: str) -> None:
    assert SECRET_NAME.search(name)
    assert SECRET_NAME.search(f"spark.hadoop.{name}")


@pytest.mark.parametrize(
    "name",
    [
        *(
            "spark.sql.ansi.enforceReservedKeywords",
            "keyword",
            "access.keyword",
            "hive.support.sql11.reserved.keywords",
        ),
        *("partition.key", "partition_keys", "partitionKey", "primary.key", "primaryKey", "sort-key", "foreign_key"),
        *("fs.azure.account.keyprovider.box.blob.core.windows.net", "hadoop.security.key.provider.path"),
        *("dfs.encryption.key.provider.uri", "encryptionKeyProvider", "parquet.crypto.KeyProviderClass"),
        *("ssl.keystore.location", "privateKeyStore", "hbase.master.keytab.file", "yarn.resourcemanager.keytab"),
        *("shared.keyspace", "fs.s3a.endpoint", "fs.s3a.access.point", "fs.azure.account.auth.type", "monkey", "sasl"),
    ],
)
def test_a_name_of_what_is_no_secret_is_not_taken_for_one(name: str) -> None:
    assert not SECRET_NAME.search(name)
    assert not SECRET_NAME.search(f"spark.hadoop.{name}")


def test_servers_of_kafka_have_no_password() -> None:
    with pytest.raises(DeclarationError, match=r"sasl\.password") as failed:
        hg.Kafka("SASL_SSL://u:Qx9A@h:1", "t", schema="ts timestamp")
    assert PIECE not in str(failed.value)


def test_options_of_files_are_not_shown() -> None:
    assert "~" not in repr(hg.Files("x", format="csv", schema="ts timestamp", options={"sep": "~"}))


def test_what_is_shown() -> None:
    assert shown_address("s3://key:a/b@bucket/x?c") == "s3://key:***@bucket/x?***"
    assert shown_address("folder/a:b@c") == "folder/a:b@c"
    assert without("abc abcd ab", ["abc", "abcd", "ab"]) == "*** *** ab"
