#!/usr/bin/env bash
# Gets HDFS, which some tests keep tables in, into the cache folder: its jars, by Maven. Does nothing if it is there.
#
# Always succeeds: without it those tests are skipped, with the reason.
set -euo pipefail
version=3.5.0 # of Hadoop, as Spark has it
folder=${HEADGATE_CACHE:-$HOME/.cache/headgate}/hdfs-$version

[ -d "$folder" ] && exit 0
if ! command -v mvn >/dev/null || ! command -v java >/dev/null; then
    echo "setup: warning: without mvn and java the tests with HDFS are skipped" >&2
    exit 0
fi
echo "setup: getting HDFS $version"
unfinished=$folder.$$
mkdir -p "$unfinished"
trap 'rm -rf "$unfinished"' EXIT
cat >"$unfinished/pom.xml" <<POM
<project><modelVersion>4.0.0</modelVersion>
<groupId>headgate</groupId><artifactId>hdfs-for-tests</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-client-minicluster</artifactId><version>$version</version></dependency>
</dependencies></project>
POM
# Renamed when complete: a download that broke off is not taken for HDFS.
if (cd "$unfinished" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=libs -DincludeScope=runtime); then
    mv -T "$unfinished" "$folder"
else
    echo "setup: warning: HDFS could not be downloaded; the tests with HDFS are skipped" >&2
fi
