"""Keys of an object store reach Spark, and are on no command line, where every user of the machine sees them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPT = """
import json, os, sys
from pathlib import Path
from headgate.places.place import hadoop_settings, path_from
from headgate.warehouse.session import open_session

place = path_from("s3://bucket/city", {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "hush-hush"})
conf = {
    "spark.hadoop.fs.azure.account.key": "whisper",
    "spark.hadoop.fs.s3a.access.key": "another",
    "spark.hadoop.fs.oss.accessKeySecret": "murmur",
    "spark.hadoop.fs.cloud.apikey": "mumble",
}
spark = open_session("secrets", "local[1]", conf, hadoop_settings(place))
started = []
for folder in Path("/proc").glob("[0-9]*"):
    try:
        if f"PPid:\\t{os.getpid()}\\n" in (folder / "status").read_text():
            started.append((folder / "cmdline").read_text())
    except OSError:
        pass
found = spark.newSession()._jsparkSession.sessionState().newHadoopConf()
names = ("fs.s3a.secret.key", "fs.s3a.access.key", "fs.azure.account.key", "fs.oss.accessKeySecret", "fs.cloud.apikey")
print(json.dumps({"started": started, "known": [found.get(name) for name in names]}))
spark.stop()
"""


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="command lines are found in /proc")
def test_keys_are_known_to_spark_and_on_no_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env={**os.environ}, check=True, timeout=3600
    )
    told = json.loads(done.stdout.splitlines()[-1])
    secrets = ["hush-hush", "another", "whisper", "murmur", "mumble"]
    assert told["known"] == secrets
    assert any("java" in line for line in told["started"])
    assert not [line for line in told["started"] for key in secrets if key in line]
