import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** Lists, describes, changes and deletes groups with Kafka's Admin: the bootstrap servers, a topic, and the groups. */
class GroupAdmin {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        List<String> groups = List.of(arguments).subList(2, arguments.length);
        try (Admin admin = Admin.create(properties)) {
            list(admin);
            describe(admin, groups);
            offsets(admin, groups, partition);
            for (String group : groups) {
                admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(7))).all().get();
            }
            offsets(admin, groups, partition);
            for (String group : groups) {
                admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all().get();
            }
            offsets(admin, groups, partition);
            admin.deleteConsumerGroups(groups).all().get();
            list(admin);
        }
    }

    private static void list(Admin admin) throws Exception {
        Collection<GroupListing> listings = admin.listGroups(ListGroupsOptions.forConsumerGroups()).all().get();
        print("listed", listings.stream().map(GroupListing::groupId).sorted().toList());
    }

    private static void describe(Admin admin, List<String> groups) throws Exception {
        Map<String, String> nodes = new TreeMap<>();
        admin.describeConsumerGroups(groups).all().get().forEach(
            (group, described) -> nodes.put(group, described.groupState() + "@" + described.coordinator().port()));
        print("described", nodes);
    }

    private static void offsets(Admin admin, List<String> groups, TopicPartition partition) throws Exception {
        Map<String, ListConsumerGroupOffsetsSpec> asked = new TreeMap<>();
        groups.forEach(group -> asked.put(group, new ListConsumerGroupOffsetsSpec()));
        Map<String, Object> committed = new TreeMap<>();
        admin.listConsumerGroupOffsets(asked).all().get().forEach(
            (group, found) -> committed.put(group, found.containsKey(partition) ? found.get(partition).offset() : -1));
        print("offsets", committed);
    }

    private static void print(String step, Object found) {
        System.out.println(step + " " + found);
    }
}
