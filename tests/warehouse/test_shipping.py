"""What a cluster is sent, what is refused before it is asked, and how many tracks follow from its cores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.core import Graph
from headgate.errors import ConnectSessionError, NotSharedError
from headgate.warehouse import SparkOptions, WarehouseRun
from headgate.warehouse.declare.spec import WarehouseSpec
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.pipelines.computed import Computed
from headgate.warehouse.run.executors import refuse_unshared
from headgate.warehouse.run.runtime import MOST_FOLLOWED, Runtime
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.shipping import is_local, late_imports, late_imports_archive, package_archive, ship_modules
from headgate.warehouse.sources import Files
from headgate.warehouse.sources.delta.source import Delta
from headgate.warehouse.updates.open_warehouse import OpenWarehouse


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2, 3]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://here:7077", False),
        ("yarn", False),
        ("k8s://https://here", False),
    ],
)
def test_only_local_masters_compute_in_the_process_of_the_driver(master: str, local: bool) -> None:
    assert is_local(master) is local


def test_the_archive_is_the_whole_package_and_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    archive = package_archive()
    made = archive.stat().st_mtime_ns
    assert archive.parent == tmp_path / "cache"
    assert package_archive() == archive and archive.stat().st_mtime_ns == made
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]
    script = (
        "import headgate.stream.spark.task as task; print(task.__file__, task.__loader__.get_source(task.__name__))"
    )
    env = {**os.environ, "PYTHONPATH": str(archive)}
    told = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert told.stdout.startswith(str(archive)) and "def run_task" in told.stdout


def test_functions_of_modules_beside_the_pipeline_file_are_sent_with_all_that_they_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark import cloudpickle

    (tmp_path / "headgate_test_words.py").write_text("ODD = 'odd'\n")
    (tmp_path / "headgate_test_rules.py").write_text(
        "import headgate_test_words as words\n\n\ndef shape(n):\n    return words.ODD if n % 2 else 'even'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import headgate_test_rules as rules  # type: ignore[import-not-found]

    ship_modules(tmp_path)
    sent = tmp_path / "sent"
    try:
        sent.write_bytes(cloudpickle.dumps(rules.shape))  # type: ignore[no-untyped-call]
    finally:
        for name in ("headgate_test_rules", "headgate_test_words"):
            cloudpickle.unregister_pickle_by_value(sys.modules.pop(name))  # type: ignore[no-untyped-call]
    script = f"import pickle; print(pickle.loads(open({str(sent)!r}, 'rb').read())(3))"
    elsewhere = subprocess.run([sys.executable, "-c", script], cwd="/", capture_output=True, text=True, check=False)
    assert elsewhere.stdout == "odd\n", elsewhere.stderr


def shop(folder: Path, shared: bool = False) -> WarehouseSpec:
    wh = Warehouse("shop", folder / "warehouse", shared=shared)
    wh.stream("orders", Files(folder / "landing", schema="ts timestamp"), time="ts")
    return wh.spec()


def test_a_folder_of_this_machine_is_refused_for_a_cluster_unless_it_is_said_to_be_shared(tmp_path: Path) -> None:
    refuse_unshared(shop(tmp_path), "local[*]", shared=False)
    refuse_unshared(shop(tmp_path), "spark://there:7077", shared=True)
    assert shop(tmp_path, shared=True).shared
    with pytest.raises(NotSharedError, match=r"the path of the warehouse is .*shared=True"):
        refuse_unshared(shop(tmp_path), "spark://there:7077", shared=False)


@pytest.mark.parametrize("kind", ["files", "Delta", "computed"])
def test_a_source_in_a_folder_of_this_machine_is_refused_for_a_cluster(tmp_path: Path, kind: str) -> None:
    wh = Warehouse("shop", "s3://bucket/shop")
    if kind == "computed":  # as a pipeline of somebody else declares it
        wh.dimension("orders", Computed(lambda spark: spark.range(1), (str(tmp_path / "*.csv"),)))
    else:
        schema = "ts timestamp"
        source = Delta(tmp_path, schema=schema) if kind == "Delta" else Files(tmp_path, schema=schema)
        wh.stream("orders", source, time="ts")
    refuse_unshared(wh.spec(), "local[*]", shared=False)
    with pytest.raises(NotSharedError, match=rf"the source of 'orders' is {tmp_path}.*, a folder on this machine"):
        refuse_unshared(wh.spec(), "spark://there:7077", shared=False)


def test_a_delta_table_at_an_address_may_be_read_on_a_cluster() -> None:
    wh = Warehouse("shop", "s3://bucket/shop")
    wh.stream("orders", Delta("s3://bucket/orders", schema="ts timestamp"), time="ts")
    refuse_unshared(wh.spec(), "spark://there:7077", shared=False)


def test_a_session_of_spark_connect_is_refused_with_what_to_do(tmp_path: Path) -> None:
    # A stand-in: the real one takes packages that need not be installed, and a server.
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    for options in (SparkOptions(session=session), SparkOptions("sc://there:15002/;token=secret")):
        with (
            pytest.raises(ConnectSessionError, match=r"Spark Connect, which cannot run a warehouse.*--master") as found,
            WarehouseRun(shop(tmp_path), spark=options),
        ):
            pass
        assert "secret" not in str(found.value)


def test_tracks_follow_the_cores_of_a_cluster_until_somebody_states_a_number(tmp_path: Path) -> None:
    spec = shop(tmp_path)
    opened = OpenWarehouse(spec, Graph((), ()), {})
    changes: list[object] = []
    runtime = Runtime(
        opened,
        None,  # type: ignore[arg-type] # no update runs
        RunOptions(follows_cores=True),
        on_change=lambda _, what: changes.append(what["tracks"]),
    )
    found = []
    for cores in (5, 5, 1, 0, 1000):
        runtime.follow_cores(cores)
        found.append(runtime.tracks)
    runtime.set_tracks(3)
    runtime.follow_cores(7)
    assert [*found, runtime.tracks] == [5, 5, 1, 1, MOST_FOLLOWED, 3], "a moment without executors changes nothing"
    assert changes == [5, 1, MOST_FOLLOWED, 3]
    runtime._tracks.close()


def test_modules_that_functions_import_when_they_are_called_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "late_pipe.py": "import json\nimport late_top\n\ndef double(x):\n    import late_helper\n    "
        "from late_package.inner import TWO\n    return late_helper.times(x, TWO)\n",
        "late_top.py": "TOP = 1\n",
        "late_helper.py": "import os\nimport late_deeper\n\ndef times(x, n):\n    return late_deeper.product(x, n)\n",
        "late_deeper.py": "def product(x, n):\n    return x * n\n",
        "late_package/__init__.py": "",
        "late_package/inner.py": "TWO = 2\n",
        "late_other.py": "raise AssertionError('nobody imports this')\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    import late_pipe  # type: ignore[import-not-found]
    from pyspark import cloudpickle

    ship_modules(tmp_path)
    sent = ["late_deeper.py", "late_helper.py", "late_package/__init__.py", "late_package/inner.py"]
    assert [str(path.relative_to(tmp_path)) for path in late_imports(tmp_path / "late_pipe.py")] == sent
    archive = late_imports_archive(tmp_path / "late_pipe.py")
    assert archive is not None and late_imports_archive(tmp_path / "late_top.py") is not None
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / "double").write_bytes(cloudpickle.dumps(late_pipe.double))  # type: ignore[no-untyped-call]
    script = "import pickle, sys; print(pickle.load(open('double', 'rb'))(21))"
    for path, expected in ((str(archive), "42"), ("", "")):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": path},
            cwd=tmp_path / "away",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.strip() == expected, done.stderr
