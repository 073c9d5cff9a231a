import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Kafka's tools, one after the other, in one process.
 * It reads commands as JSON lines from its standard input, and prints what each tool has printed, and its exit code.
 */
class KafkaTools {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream output = System.out;
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode command = JSON.readTree(line);
            List<String> words = new ArrayList<>();
            command.get("arguments").get("words").forEach(word -> words.add(word.asText()));
            Map<String, Object> answer =
                Map.of("event", "answer", "id", command.get("id").asInt(), "result", run(words));
            output.println(JSON.writeValueAsString(answer));
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> run(List<String> words) throws Exception {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        CompletableFuture<Integer> code = new CompletableFuture<>();
        // A tool that exits does nothing after that, as if its process had ended.
        Exit.Procedure exit = (status, message) -> {
            code.complete(status);
            waitForever();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Thread tool = new Thread(() -> runMain(words, code));
        tool.setDaemon(true);
        tool.start();
        int status = code.get();
        return Map.of("code", status, "out", text(printed), "err", text(errors));
    }

    private static void runMain(List<String> words, CompletableFuture<Integer> code) {
        try {
            Method main = Class.forName(words.get(0)).getDeclaredMethod("main", String[].class);
            main.setAccessible(true);
            main.invoke(null, (Object) words.subList(1, words.size()).toArray(String[]::new));
            code.complete(0);
        } catch (InvocationTargetException failure) {
            failure.getCause().printStackTrace();
            code.complete(1);
        } catch (ReflectiveOperationException missing) {
            missing.printStackTrace();
            code.complete(1);
        }
    }

    private static void waitForever() {
        while (true) {
            LockSupport.park();
        }
    }

    private static String text(ByteArrayOutputStream stream) {
        return stream.toString(StandardCharsets.UTF_8);
    }
}
