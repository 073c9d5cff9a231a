import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.MemberAssignment;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Members of one group, in one process: the bootstrap servers and the group.
 * It reads commands as JSON lines from its standard input and prints events as JSON lines.
 */
class JavaMembers {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(20);
    private static final JsonNode END = JSON.nullNode();

    private final String bootstrap;
    private final String group;
    private final Map<String, KafkaConsumer<String, String>> members = new LinkedHashMap<>();
    private final Set<String> failed = new HashSet<>();
    private final Set<String> persistent = new HashSet<>();
    private final LinkedBlockingQueue<JsonNode> commands = new LinkedBlockingQueue<>();

    JavaMembers(String bootstrap, String group) {
        this.bootstrap = bootstrap;
        this.group = group;
    }

    public static void main(String[] arguments) throws Exception {
        JavaMembers program = new JavaMembers(arguments[0], arguments[1]);
        Thread reader = new Thread(program::readCommands);
        reader.setDaemon(true);
        reader.start();
        program.run();
    }

    private void readCommands() {
        try (BufferedReader input = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                commands.add(JSON.readTree(line));
            }
        } catch (Exception error) {
            error.printStackTrace();
        }
        commands.add(END);
    }

    private void run() throws Exception {
        while (true) {
            JsonNode command = members.isEmpty() ? commands.take() : commands.poll();
            if (command == END) {
                break;
            }
            if (command != null) {
                answer(command);
            }
            members.forEach(this::poll);
        }
        members.values().forEach(KafkaConsumer::close);
    }

    private void answer(JsonNode command) throws Exception {
        Map<String, Object> answer = new HashMap<>(Map.of("id", command.get("id").asInt()));
        try {
            answer.put("result", handle(command.get("do").asText(), command.get("arguments")));
        } catch (Exception error) {
            answer.put("error", error.toString());
        }
        print("answer", answer);
    }

    private Object handle(String command, JsonNode arguments) throws Exception {
        switch (command) {
            case "join":
                return join(arguments);
            case "leave":
                members.remove(arguments.get("member").asText()).close();
                return null;
            case "commit_sync":
                member(arguments).commitSync(offsets(arguments));
                return null;
            case "commit_async":
                String name = arguments.get("member").asText();
                member(arguments).commitAsync(offsets(arguments), (offsets, error) -> print("committed", Map.of(
                    "member", name, "partitions", numbers(offsets.keySet()), "error", String.valueOf(error))));
                return null;
            case "committed":
                Map<Integer, Long> committed = new TreeMap<>();
                member(arguments).committed(offsets(arguments).keySet()).forEach(
                    (partition, offset) -> committed.put(partition.partition(), offset == null ? -1 : offset.offset()));
                return committed;
            case "describe":
                return describe();
            default:
                throw new IllegalArgumentException("unknown command " + command);
        }
    }

    private KafkaConsumer<String, String> member(JsonNode arguments) {
        return members.get(arguments.get("member").asText());
    }

    private static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode arguments) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        arguments.get("offsets").properties().forEach(entry -> offsets.put(
            new TopicPartition(arguments.get("topic").asText(), Integer.parseInt(entry.getKey())),
            new OffsetAndMetadata(entry.getValue().asLong())));
        return offsets;
    }

    /**
     * By a topic or a pattern, and with an instance id or without one. The protocol is "consumer" (KIP-848), or
     * "classic" if that is given; with a protocol given, the offsets are committed automatically.
     */
    private Object join(JsonNode arguments) {
        String name = arguments.get("member").asText();
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", group);
        properties.put("client.id", name);
        properties.put("group.protocol", arguments.path("protocol").asText("consumer"));
        if (arguments.path("protocol").asText().equals("classic")) {
            properties.put("heartbeat.interval.ms", "100");
        }
        properties.put("enable.auto.commit", String.valueOf(arguments.has("protocol")));
        if (arguments.has("auto_commit_interval_ms")) {
            properties.put("auto.commit.interval.ms", arguments.get("auto_commit_interval_ms").asText());
        }
        properties.put("auto.offset.reset", "earliest");
        properties.put("fetch.max.wait.ms", "100");
        if (arguments.path("polls_after_errors").asBoolean()) {
            persistent.add(name);
        }
        if (arguments.has("instance")) {
            properties.put("group.instance.id", arguments.get("instance").asText());
        }
        KafkaConsumer<String, String> member =
            new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
        if (arguments.has("pattern")) {
            member.subscribe(new SubscriptionPattern(arguments.get("pattern").asText()), new Listener(name));
        } else {
            member.subscribe(List.of(arguments.get("topic").asText()), new Listener(name));
        }
        members.put(name, member);
        return null;
    }

    /** A member is not polled again after an error, unless it was to be. */
    private void poll(String name, KafkaConsumer<String, String> member) {
        if (failed.contains(name)) {
            return;
        }
        try {
            for (ConsumerRecord<String, String> record : member.poll(POLL)) {
                print("record", Map.of("member", name, "partition", record.partition(), "offset", record.offset()));
            }
        } catch (Exception error) {
            if (!persistent.contains(name)) {
                failed.add(name);
            }
            print("error", Map.of("member", name, "error", error.toString()));
        }
    }

    private Object describe() throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        try (Admin admin = Admin.create(properties)) {
            ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            Map<String, Object> members = new TreeMap<>();
            for (MemberDescription member : found.members()) {
                members.put(member.clientId(), Map.of(
                    "instance", member.groupInstanceId().orElse(""),
                    "epoch", member.memberEpoch().orElse(-1),
                    "upgraded", String.valueOf(member.upgraded().orElse(null)),
                    "partitions", numbers(member.assignment().topicPartitions()),
                    "target", member.targetAssignment().map(MemberAssignment::topicPartitions)
                        .map(JavaMembers::numbers).orElse(List.of())));
            }
            return Map.of(
                "type", found.type().toString(), "state", found.groupState().toString(),
                "assignor", found.partitionAssignor(), "epoch", found.groupEpoch().orElse(-1),
                "target_epoch", found.targetAssignmentEpoch().orElse(-1), "members", members);
        }
    }

    private static List<Integer> numbers(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::partition).sorted().toList();
    }

    private static synchronized void print(String event, Map<String, Object> fields) {
        Map<String, Object> line = new HashMap<>(fields);
        line.put("event", event);
        try {
            System.out.println(JSON.writeValueAsString(line));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static class Listener implements ConsumerRebalanceListener {
        private final String name;

        Listener(String name) {
            this.name = name;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            report("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            report("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            report("lost", partitions);
        }

        private void report(String event, Collection<TopicPartition> partitions) {
            print(event, Map.of("member", name, "partitions", numbers(partitions)));
        }
    }
}
