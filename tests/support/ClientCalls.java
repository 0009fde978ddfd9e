// The Java client's ordinary calls: `java -cp JARS ClientCalls.java BOOTSTRAP TOPIC` prints a line a call:
// name, what is expected, what it was answered (ok, or Kafka's name of the error), seconds; parted by tabs.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.*;

public class ClientCalls {
    static final String NO_GROUPS = "GROUP_AUTHORIZATION_FAILED";
    static final String NO_TRANSACTIONS = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED";
    static String bootstrap, topic;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        Admin admin = Admin.create(settings());
        ConfigResource mine = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        TopicPartition partition = new TopicPartition(topic, 0);
        call("list topics", "ok", () -> done(admin.listTopics().names()));
        call("describe the cluster", "ok", () -> {
            check(done(admin.describeCluster().nodes()).size() == 3);
            return null;
        });
        NewTopic wanted = new NewTopic(topic, 1, (short) 3);
        call("create a topic", "ok", () -> done(admin.createTopics(List.of(wanted)).all()));
        call("create it again", "TOPIC_ALREADY_EXISTS", () -> done(admin.createTopics(List.of(wanted)).all()));
        call("describe it", "ok", () -> done(admin.describeTopics(List.of(topic)).allTopicNames()));
        call("add partitions", "ok",
            () -> done(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all()));
        call("describe its configs", "ok", () -> {
            check(config(admin, mine, "min.insync.replicas").equals("2"));
            return null;
        });
        call("alter its configs", "ok", () -> {
            alter(admin, mine, "min.insync.replicas", "1");
            check(config(admin, mine, "min.insync.replicas").equals("1"));
            return null;
        });
        call("alter a config that is none", "INVALID_CONFIG", () -> alter(admin, mine, "no.such.config", "1"));
        call("cleanup.policy=compact", "POLICY_VIOLATION", () -> alter(admin, mine, "cleanup.policy", "compact"));
        call("describe a broker's configs", "ok", () -> {
            check(config(admin, new ConfigResource(ConfigResource.Type.BROKER, "1"), "node.id").equals("1"));
            return null;
        });
        for (String compression : List.of("none", "gzip", "snappy", "lz4", "zstd"))
            call("produce (" + compression + "), assign, read", "ok", () -> produceAndRead(compression));
        call("produce (idempotent)", "ok", () -> produce(List.of("i"), Map.of("enable.idempotence", true)));
        call("assign without an offset", "ok", () -> {
            try (Consumer<String, String> consumer = consumer()) {
                consumer.assign(List.of(partition));
                check(consumer.committed(java.util.Set.of(partition)).get(partition) == null);
                check(read(consumer, 1).get(0).offset() == 0);
            }
            return null;
        });
        call("offsets by time", "ok", () -> {
            try (Consumer<String, String> consumer = consumer()) {
                check(consumer.offsetsForTimes(Map.of(partition, 1L)).get(partition).offset() == 0);
                long tenth = time("none", 10);
                check(consumer.offsetsForTimes(Map.of(partition, tenth)).get(partition).offset() == 10);
                check(consumer.offsetsForTimes(Map.of(partition, 1L << 50)).get(partition) == null);
                check(consumer.endOffsets(List.of(partition)).get(partition) > 100);
            }
            return null;
        });
        call("list offsets (Admin)", "ok", () -> {
            for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp()))
                check(done(admin.listOffsets(Map.of(partition, spec)).all()).get(partition).offset() >= 0);
            return null;
        });
        call("list groups", "ok", () -> {
            check(done(admin.listGroups().all()).isEmpty());
            return null;
        });
        call("subscribe", NO_GROUPS, () -> subscribe("classic"));
        call("subscribe (group.protocol=consumer)", NO_GROUPS, () -> subscribe("consumer"));
        call("commit", NO_GROUPS, () -> {
            try (Consumer<String, String> consumer = consumer()) {
                consumer.assign(List.of(partition));
                consumer.commitSync(Map.of(partition, new OffsetAndMetadata(1)));
            }
            return null;
        });
        call("initTransactions", NO_TRANSACTIONS, () -> {
            try (Producer<String, String> producer = producer(Map.of("transactional.id", topic))) {
                producer.initTransactions();
            }
            return null;
        });
        call("delete records", "UNSUPPORTED_VERSION",
            () -> done(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(1))).all()));
        call("describe ACLs", "UNSUPPORTED_VERSION",
            () -> done(admin.describeAcls(AclBindingFilter.ANY).values()));
        call("delete the topic", "ok", () -> done(admin.deleteTopics(List.of(topic)).all()));
        call("delete it again", "UNKNOWN_TOPIC_OR_PARTITION", () -> done(admin.deleteTopics(List.of(topic)).all()));
        call("describe what is deleted", "UNKNOWN_TOPIC_OR_PARTITION",
            () -> done(admin.describeTopics(List.of(topic)).allTopicNames()));
        admin.close(Duration.ZERO);
        System.exit(0);
    }

    /** One call, its answer and its time. */
    static void call(String name, String expected, Callable<Object> ask) {
        long began = System.nanoTime();
        String answer = answer(ask);
        double seconds = (System.nanoTime() - began) / 1e9;
        System.out.println(String.join("\t", name, expected, answer, String.format("%.3f", seconds)));
    }

    static String answer(Callable<Object> ask) {
        try {
            ask.call();
            return "ok";
        } catch (Throwable error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            Errors known = Errors.forException(cause);
            return known == Errors.UNKNOWN_SERVER_ERROR ? cause.toString().replaceAll("\\s+", " ") : known.name();
        }
    }

    static <T> T done(KafkaFuture<T> future) throws Exception {
        return future.get();
    }

    static void check(boolean as) {
        if (!as) throw new IllegalStateException("not as expected");
    }

    static Map<String, Object> settings() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("request.timeout.ms", 15000);
        settings.put("default.api.timeout.ms", 20000);
        return settings;
    }

    static String config(Admin admin, ConfigResource resource, String name) throws Exception {
        return done(admin.describeConfigs(List.of(resource)).all()).get(resource).get(name).value();
    }

    static Object alter(Admin admin, ConfigResource resource, String name, String value) throws Exception {
        Collection<AlterConfigOp> change =
            List.of(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET));
        return done(admin.incrementalAlterConfigs(Map.of(resource, change)).all());
    }

    static Producer<String, String> producer(Map<String, Object> config) {
        Map<String, Object> settings = settings();
        settings.remove("default.api.timeout.ms");
        settings.put("acks", "all");
        settings.put("linger.ms", 20);
        settings.put("max.block.ms", 20000);
        settings.putAll(config);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static Consumer<String, String> consumer(Object... config) {
        Map<String, Object> settings = settings();
        settings.put("group.id", "calls");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        for (int each = 0; each < config.length; each += 2)
            settings.put((String) config[each], config[each + 1]);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static String value(String compression, int number) {
        return compression + " " + "v".repeat(99) + number;
    }

    static long time(String compression, int number) {
        return 1_000_000 + value(compression, number).length();
    }

    static Object produce(List<String> values, Map<String, Object> config) throws Exception {
        try (Producer<String, String> producer = producer(config)) {
            List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<>();
            for (String value : values)
                sent.add(producer.send(
                    new ProducerRecord<>(topic, 0, 1_000_000L + value.length(), null, value)));
            for (java.util.concurrent.Future<RecordMetadata> each : sent)
                each.get();
        }
        return null;
    }

    static Object produceAndRead(String compression) throws Exception {
        List<String> values = new ArrayList<>();
        for (int number = 0; number < 20; number++)
            values.add(value(compression, number));
        try (Consumer<String, String> consumer = consumer()) {
            TopicPartition partition = new TopicPartition(topic, 0);
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            produce(values, Map.of("compression.type", compression, "enable.idempotence", false));
            consumer.assign(List.of(partition));
            consumer.seek(partition, end);
            List<String> found = new ArrayList<>();
            for (ConsumerRecord<String, String> record : read(consumer, 20))
                found.add(record.value());
            check(found.equals(values));
        }
        return null;
    }

    static List<ConsumerRecord<String, String>> read(Consumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long until = System.nanoTime() + 20_000_000_000L;
        while (found.size() < count && System.nanoTime() < until)
            consumer.poll(Duration.ofMillis(100)).forEach(found::add);
        return found;
    }

    static Object subscribe(String protocol) {
        try (Consumer<String, String> consumer = consumer("group.protocol", protocol)) {
            consumer.subscribe(List.of(topic));
            long until = System.nanoTime() + 20_000_000_000L;
            while (System.nanoTime() < until)
                consumer.poll(Duration.ofMillis(100));
        }
        throw new IllegalStateException("silence");
    }
}
