#!/usr/bin/env bash
# Somebody's Kafka, which floodmark knows nothing of: one controller and three brokers of stock Apache Kafka in
# KRaft mode, each a process on loopback. Every command names the folder that holds it all.
#
#   somebodys_kafka.sh up FOLDER JAVA CLASSPATH PORT...        of the controller; of brokers 1, 2, 3; and of
#                                                              the same by SASL over TLS, for user me
#   somebodys_kafka.sh kill|stop|start|pause|resume FOLDER ID
#   somebodys_kafka.sh start_short FOLDER ID PREFIX            as start, but first the end of each log of a topic
#                                                              of this prefix is lost: what no disk may do
#   somebodys_kafka.sh fetch FOLDER ID PREFIX TO               copies the logs of those topics, and the checkpoints
#   somebodys_kafka.sh down FOLDER
set -euo pipefail
what=$1 folder=$2
[ "$what" = up ] || . "$folder/settings"

settings_of() { # ID ROLE PORTS
  cat <<S
process.roles=$2
node.id=$1
controller.quorum.voters=100@127.0.0.1:${ports[0]}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LOCKED:SASL_SSL
log.dirs=$folder/data-$1
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=300
replica.lag.time.max.ms=3000
replica.fetch.backoff.ms=100
min.insync.replicas=2
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
num.network.threads=1
num.io.threads=2
log.cleaner.enable=false
S
  if [ "$2" = controller ]; then
    echo "listeners=CONTROLLER://127.0.0.1:$3"
  else
    cat <<S
listeners=PLAINTEXT://127.0.0.1:$3,LOCKED://127.0.0.1:$4
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.locked.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_me="$password";
listener.name.locked.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.locked.ssl.keystore.type=PEM
listener.name.locked.ssl.keystore.location=$folder/broker.pem
S
  fi
}

run_node() { # ID
  setsid "$java" -Xmx192m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ActiveProcessorCount=2 \
    "-Dlog4j2.configurationFile=$folder/log4j2.yaml" -cp "$classpath" kafka.Kafka "$folder/$1.properties" \
    </dev/null >>"$folder/$1.log" 2>&1 &
  echo $! >"$folder/$1.pid"
}

pid_of() { cat "$folder/$1.pid"; }

gone() { # ID: until it is
  while kill -0 "$(pid_of "$1")" 2>/dev/null; do sleep 0.05; done
}

case $what in
  up)
    mkdir -p "$folder"
    printf 'java=%q\nclasspath=%q\npassword=a-secret-of-theirs\nports=(%s)\n' "$3" "$4" "${*:5}" >"$folder/settings"
    . "$folder/settings"
    openssl req -x509 -newkey rsa:2048 -nodes -keyout "$folder/key.pem" -out "$folder/certificate.pem" \
      -subj /CN=somebody -addext subjectAltName=IP:127.0.0.1 2>/dev/null
    cat "$folder/key.pem" "$folder/certificate.pem" >"$folder/broker.pem"
    cat >"$folder/log4j2.yaml" <<S
Configuration:
  Appenders: {Console: {name: out, PatternLayout: {pattern: '%d %p %m (%c)%n'}}}
  Loggers: {Root: {level: INFO, AppenderRef: [{ref: out}]}}
S
    settings_of 100 controller "${ports[0]}" >"$folder/100.properties"
    for id in 1 2 3; do
      settings_of $id broker "${ports[$id]}" "${ports[$((id + 3))]}" >"$folder/$id.properties"
    done
    for id in 100 1 2 3; do
      "$java" -XX:TieredStopAtLevel=1 "-Dlog4j2.configurationFile=$folder/log4j2.yaml" -cp "$classpath" \
        kafka.tools.StorageTool format -t AAAAAAAAQACAAAAAAAAAAA -c "$folder/$id.properties" \
        --add-scram "SCRAM-SHA-512=[name=me,password=$password]" >>"$folder/format.log" 2>&1
      run_node $id
    done ;;
  kill) kill -9 "$(pid_of "$3")"; gone "$3" ;;
  stop) kill "$(pid_of "$3")"; gone "$3" ;;
  pause) kill -STOP "$(pid_of "$3")" ;;
  resume) kill -CONT "$(pid_of "$3")" ;;
  start) run_node "$3" ;;
  start_short)
    for log in "$folder/data-$3/$4"log-*/00000000000000000000.log; do
      size=$(stat -c %s "$log")
      [ "$size" -lt 4000 ] || truncate -s $((size / 2)) "$log"
    done
    run_node "$3" ;;
  fetch)
    mkdir -p "$5"
    cp -r "$folder/data-$3/$4"* "$5/"
    cp "$folder/data-$3/"*checkpoint "$5/" ;;
  down)
    for pid in "$folder"/*.pid; do kill -9 "$(cat "$pid")" 2>/dev/null || true; done ;;
esac
