import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/**
 * Fetches a URL into a file: java Fetch.java URL FILE.
 *
 * Under `longhaul run` it needs nothing. By an on-ramp's SOCKS entry, two properties of the Java platform:
 *
 *   java -DsocksProxyHost=127.0.0.1 -DsocksProxyPort=1080 Fetch.java http://server.example/data data
 */
public final class Fetch {
    private Fetch() {}

    public static void main(String[] arguments) throws IOException {
        if (arguments.length != 2) {
            System.err.println("usage: Fetch URL FILE");
            System.exit(2);
        }
        try (InputStream content = URI.create(arguments[0]).toURL().openStream()) {
            Files.copy(content, Path.of(arguments[1]), StandardCopyOption.REPLACE_EXISTING);
        }
    }
}
