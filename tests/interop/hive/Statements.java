import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.ql.IDriver;
import org.apache.hadoop.hive.ql.processors.CommandProcessor;
import org.apache.hadoop.hive.ql.processors.CommandProcessorException;
import org.apache.hadoop.hive.ql.processors.CommandProcessorFactory;
import org.apache.hadoop.hive.ql.session.SessionState;

/** Runs the statements of standard input, one a line. After each comes a line "==ok" or "==failed". */
public class Statements {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        HiveConf configuration = new HiveConf(SessionState.class);
        SessionState session = new SessionState(configuration);
        SessionState.start(session);
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        out.println("==ok");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                for (String row : run(line, session)) {
                    out.println(row);
                }
                out.println("==ok");
            } catch (Exception error) {
                String told = error.getMessage();
                Throwable cause = error.getCause();
                out.println(told + (cause == null ? "" : " caused by " + cause));
                out.println("==failed");
            }
        }
        session.close();
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
