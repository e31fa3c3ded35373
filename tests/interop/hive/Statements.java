import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.ql.IDriver;
import org.apache.hadoop.hive.ql.processors.CommandProcessor;
import org.apache.hadoop.hive.ql.processors.CommandProcessorFactory;
import org.apache.hadoop.hive.ql.session.SessionState;

/**
 * Sessions of Hive. The first line of the output is a port; each connection to it is a session, which
 * sends statements, one a line. After each answer comes a line "==ok" or "==failed". The end of the
 * input ends the process.
 */
public class Statements {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        ClassLoader classes = Thread.currentThread().getContextClassLoader();
        Thread sessions = new Thread(() -> accept(server, classes));
        sessions.setDaemon(true);
        sessions.start();
        out.println(server.getLocalPort());
        out.flush();
        while (System.in.read() >= 0) {
            continue;
        }
        Runtime.getRuntime().halt(0);
    }

    static void accept(ServerSocket server, ClassLoader classes) {
        while (true) {
            try {
                Socket connection = server.accept();
                Thread session = new Thread(() -> serve(connection));
                session.setContextClassLoader(classes);
                session.setDaemon(true);
                session.start();
            } catch (Exception error) {
                error.printStackTrace();
                return;
            }
        }
    }

    static void serve(Socket connection) {
        try (connection) {
            SessionState session = new SessionState(new HiveConf(SessionState.class));
            SessionState.start(session);
            BufferedReader lines =
                    new BufferedReader(
                            new InputStreamReader(
                                    connection.getInputStream(), StandardCharsets.UTF_8));
            PrintStream out = new PrintStream(connection.getOutputStream(), true, "UTF-8");
            out.println("==ok");
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                answer(line, session, out);
            }
            session.close();
        } catch (Throwable error) {
            error.printStackTrace();
        }
    }

    static void answer(String line, SessionState session, PrintStream out) {
        try {
            for (String row : run(line, session)) {
                out.println(row);
            }
            out.println("==ok");
        } catch (Throwable error) {
            error.printStackTrace();
            StringBuilder told = new StringBuilder();
            for (Throwable one = error; one != null; one = one.getCause()) {
                told.append(one).append(" caused by ");
            }
            out.println(told.toString().replace('\n', ' '));
            out.println("==failed");
        }
    }

    static List<String> run(String line, SessionState session) throws Exception {
        List<String> rows = new ArrayList<>();
        CommandProcessor processor =
                CommandProcessorFactory.get(line.trim().split("\\s+"), session.getConf());
        if (processor instanceof IDriver) {
            try (IDriver driver = (IDriver) processor) {
                driver.run(line);
                List<String> some = new ArrayList<>();
                while (driver.getResults(some)) {
                    rows.addAll(some);
                    some.clear();
                }
            }
        } else {
            processor.run(line.trim().split("\\s+", 2)[1]);
        }
        return rows;
    }
}
