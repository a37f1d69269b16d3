import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.logging.Logger;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

public class Begin {
    public static void main(String[] arguments) throws Exception {
        var threads = Executors.newFixedThreadPool(2);
        Future<String> text = threads.submit(() -> IntStream.range(0, 1000).mapToObj(Integer::toString)
            .filter(Pattern.compile("[13579]$").asPredicate()).collect(Collectors.joining(",")));
        var client = HttpClient.newHttpClient();
        var request = HttpRequest.newBuilder(URI.create("https://localhost/")).build();
        Logger.getLogger("begin").fine(() -> client + " " + request);
        var digest = java.security.MessageDigest.getInstance("SHA-256").digest(text.get().getBytes("UTF-8"));
        System.out.println("ready " + DateTimeFormatter.RFC_1123_DATE_TIME.format(ZonedDateTime.now()) + " " + digest.length);
        System.exit(0);
    }
}
