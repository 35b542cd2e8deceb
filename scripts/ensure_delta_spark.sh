#!/usr/bin/env bash
# Makes an environment with Delta's own reader for Spark, which some tests read our tables with, or says why it cannot.
#
# It is an environment of its own, because that reader needs an older Spark than we do. Always succeeds: without it
# those tests are skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly SPARK=4.2.0 DELTA=io.delta:delta-spark_4.2_2.13:4.4.0
home=${HEADGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/headgate}/delta-spark-$SPARK

install() {
    rm -rf "$home"
    mkdir -p "$home/jars"
    local pom=$home/pom.xml
    IFS=: read -r group artifact version <<<"$DELTA"
    cat >"$pom" <<POM
<project><modelVersion>4.0.0</modelVersion>
<groupId>headgate</groupId><artifactId>delta-spark-jars</artifactId><version>1</version><packaging>pom</packaging>
<dependencies><dependency>
<groupId>$group</groupId><artifactId>$artifact</artifactId><version>$version</version>
</dependency></dependencies></project>
POM
    # Spark has everything else that Delta needs, in versions that fit each other.
    mvn --quiet --batch-mode --file "$pom" dependency:copy-dependencies \
        -DincludeGroupIds=io.delta,io.unitycatalog -DoutputDirectory="$home/jars" &&
        "${PYTHON:-python3}" -m venv "$home/venv" &&
        "$home/venv/bin/pip" --quiet --disable-pip-version-check install "pyspark==$SPARK"
}

if [ ! -e "$home/ready" ]; then
    if ! command -v mvn >/dev/null; then
        echo "setup: warning: without Maven (mvn) Delta's own reader is not tried" >&2
    elif install >&2; then
        touch "$home/ready"
    else
        echo "setup: warning: Delta's own reader could not be installed, so it is not tried" >&2
    fi
fi
