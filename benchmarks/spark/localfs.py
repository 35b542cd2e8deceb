"""A local file system for Hadoop that starts no processes.

Without Hadoop's native library, which Spark's Python package does not bring, Hadoop runs `chmod` in a process of its
own for every file and directory it creates, and `readlink` for every rename of a checkpoint file: a dozen processes for
one micro-batch. On a cluster's storage nothing like that happens, and a comparison in which plain Spark loses by it
would be a comparison with a missing library. So contenders on plain Spark get this file system instead, which sets
permissions the way the library does. It does not write checksum files either: object stores have none.

The class is compiled with the Java compiler that Spark brings along to compile queries.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

CLASS = "benchmarks.QuietLocalFileSystem"

SOURCE = """
package benchmarks;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class QuietLocalFileSystem extends LocalFileSystem {
    public QuietLocalFileSystem() {
        super(new Raw());
        setWriteChecksum(false);
    }

    public static class Raw extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission to) throws IOException {
            String text = to.getUserAction().SYMBOL + to.getGroupAction().SYMBOL + to.getOtherAction().SYMBOL;
            Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(text));
        }
    }
}
"""


def settings(folder: Path) -> Mapping[str, str]:
    """The Spark settings that make the file system the one of `file:` paths; the class is kept in `folder`."""
    jar = folder / "quiet-local-filesystem.jar"
    if not jar.exists():
        _compile(jar)
    managers = "org.apache.spark.sql.execution.streaming.checkpointing"
    return {
        "spark.driver.extraClassPath": str(jar),
        "spark.hadoop.fs.file.impl": CLASS,
        # The usual one goes past `fs.file.impl`.
        "spark.sql.streaming.checkpointFileManagerClass": f"{managers}.FileSystemBasedCheckpointFileManager",
    }


def _compile(jar: Path) -> None:
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    try:
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(SOURCE)
        classes = {str(name): bytes(code) for name, code in compiler.getBytecodes().items()}
    finally:
        gateway.shutdown()
        # The JVM ends when its standard input does.
        gateway.proc.stdin.close()
        gateway.proc.wait()
    unfinished = jar.with_suffix(".part")
    with zipfile.ZipFile(unfinished, "w") as archive:
        for name, code in classes.items():
            archive.writestr(name.replace(".", "/") + ".class", code)
    unfinished.rename(jar)
