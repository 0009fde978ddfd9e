#!/bin/sh
# Makes a class-data archive of Apache Kafka (Java's AppCDS), with which its processes start quicker: one broker is
# started on two free ports of 127.0.0.1 and stopped in order, and Java then writes the classes that it had loaded.
#
#     class_archive.sh OUT PORT PORT JAVA CLASSPATH
#
# CLASSPATH: the jars in the order in which clusters will name them; Java ignores the archive with any other. OUT is
# complete or absent; OUT.work is used meanwhile. Plain sh, because an image's base may have no other shell.
set -eu
out=$1 port=$2 controller=$3 java=$4 jars=$5
UP_S=90
work=$out.work
broker='' zookeeper=''
tidy() {
  for pid in $broker $zookeeper; do kill -9 "$pid" 2>/dev/null || true; done
  wait
  rm -rf "$work"
}
trap tidy EXIT
trap 'exit 1' HUP INT TERM
mkdir "$work"

# 3.x has the one logging library, 4.x the other.
cat >"$work/log4j.properties" <<END
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%m%n
END
cat >"$work/log4j2.properties" <<END
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%m%n
rootLogger.level=INFO
rootLogger.appenderRef.out.ref=out
END
set -- -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "-Dlog4j.configuration=file:$work/log4j.properties" \
  "-Dlog4j2.configurationFile=$work/log4j2.properties" -cp "$jars"

{
  echo "log.dirs=$work/data"
  echo offsets.topic.replication.factor=1
  echo transaction.state.log.replication.factor=1
  echo transaction.state.log.min.isr=1
} >"$work/server.properties"
case "$jars" in
*/kafka_2.1?-[0-2].* | */kafka_2.1?-3.[0-2].*) # before KRaft, as in harness/cluster/kafka/distribution.py
  {
    echo broker.id=1
    echo "listeners=PLAINTEXT://127.0.0.1:$port"
    echo "zookeeper.connect=127.0.0.1:$controller"
    echo zookeeper.connection.timeout.ms=60000
  } >>"$work/server.properties"
  {
    echo "dataDir=$work/zookeeper"
    echo "clientPort=$controller"
    echo clientPortAddress=127.0.0.1
    echo admin.enableServer=false
  } >"$work/zoo.cfg"
  "$java" "$@" org.apache.zookeeper.server.quorum.QuorumPeerMain "$work/zoo.cfg" >"$work/zookeeper.log" 2>&1 &
  zookeeper=$!
  ;;
*)
  {
    echo process.roles=broker,controller
    echo node.id=1
    echo "controller.quorum.voters=1@127.0.0.1:$controller"
    echo "listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller"
    echo controller.listener.names=CONTROLLER
  } >>"$work/server.properties"
  "$java" "$@" kafka.tools.StorageTool format -t class-archive-cluster0 -c "$work/server.properties" \
    >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  ;;
esac

"$java" "-XX:ArchiveClassesAtExit=$work/classes.jsa" "$@" kafka.Kafka "$work/server.properties" \
  >"$work/log" 2>&1 &
broker=$!
waited=0
until grep -q 'Kafka Server started\|KafkaServer id=1\] started' "$work/log"; do
  if ! kill -0 "$broker" 2>/dev/null || [ "$waited" -ge $((UP_S * 5)) ]; then
    echo "the broker did not start:" >&2
    tail -n 20 "$work/log" >&2
    exit 1
  fi
  sleep 0.2
  waited=$((waited + 1))
done
kill "$broker"
wait "$broker" || true # 143, the number of its signal
broker=''
if [ ! -s "$work/classes.jsa" ]; then
  echo "Java wrote no archive:" >&2
  tail -n 20 "$work/log" >&2
  exit 1
fi
mv "$work/classes.jsa" "$out"
