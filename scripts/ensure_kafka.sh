#!/usr/bin/env bash
# Gets a Kafka broker, which some tests talk to, into the cache folder: its jars, by Maven. Does nothing if it is there.
#
# Always succeeds: without a broker those tests are skipped, with the reason.
set -euo pipefail
version=4.3.1
folder=${HEADGATE_CACHE:-$HOME/.cache/headgate}/kafka-$version

[ -d "$folder" ] && exit 0
if ! command -v mvn >/dev/null || ! command -v java >/dev/null; then
    echo "setup: warning: without mvn and java the tests with a Kafka broker are skipped" >&2
    exit 0
fi
echo "setup: getting Kafka $version"
unfinished=$folder.$$
mkdir -p "$unfinished"
trap 'rm -rf "$unfinished"' EXIT
cat >"$unfinished/pom.xml" <<POM
<project><modelVersion>4.0.0</modelVersion>
<groupId>headgate</groupId><artifactId>kafka-for-tests</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version></dependency>
</dependencies></project>
POM
# Renamed when complete: a download that broke off is not taken for a broker.
if (cd "$unfinished" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=libs -DincludeScope=runtime); then
    mv -T "$unfinished" "$folder"
else
    echo "setup: warning: Kafka could not be downloaded; the tests with a Kafka broker are skipped" >&2
fi
