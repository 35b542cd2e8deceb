#!/usr/bin/env bash
# Gets the file system by which Spark reads and writes S3 itself (s3a) into the cache folder: its jars, by Maven.
#
# Of the AWS SDK only the modules that it uses, which are 16 MB; the bundle that its package asks for has 686 MB.
# Always succeeds: without it the tests of Spark with an object store are skipped, with the reason.
set -euo pipefail
version=3.5.0 # of Hadoop, as Spark has it
sdk=2.35.4    # as this Hadoop has it
accelerator=1.3.1 # likewise; s3a cannot be loaded without it
folder=${HEADGATE_CACHE:-$HOME/.cache/headgate}/s3a-$version

[ -d "$folder" ] && exit 0
if ! command -v mvn >/dev/null; then
    echo "setup: warning: without mvn Spark is not tried with an object store" >&2
    exit 0
fi
echo "setup: getting s3a $version"
unfinished=$folder.$$
mkdir -p "$unfinished"
trap 'rm -rf "$unfinished"' EXIT
{
    echo "<project><modelVersion>4.0.0</modelVersion>"
    echo "<groupId>headgate</groupId><artifactId>s3a-for-tests</artifactId><version>1</version><packaging>pom</packaging>"
    echo "<dependencies><dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-aws</artifactId>"
    echo "<version>$version</version><exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    echo "</exclusions></dependency>"
    for module in s3 s3-transfer-manager sts apache-client netty-nio-client; do
        echo "<dependency><groupId>software.amazon.awssdk</groupId><artifactId>$module</artifactId>"
        echo "<version>$sdk</version></dependency>"
    done
    echo "<dependency><groupId>software.amazon.s3.analyticsaccelerator</groupId>"
    echo "<artifactId>analyticsaccelerator-s3</artifactId><version>$accelerator</version>"
    echo "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
    echo "</dependencies></project>"
} >"$unfinished/pom.xml"
# Renamed when complete: a download that broke off is not taken for the file system. What Spark has itself stays out.
if (cd "$unfinished" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=libs -DincludeScope=runtime \
    -DexcludeGroupIds=org.slf4j,io.netty,commons-codec,commons-logging,org.apache.httpcomponents); then
    mv -T "$unfinished" "$folder"
else
    echo "setup: warning: s3a could not be downloaded; Spark is not tried with an object store" >&2
fi
