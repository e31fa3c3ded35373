import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.hive.cli.CliDriver;
import org.apache.hadoop.hive.cli.CliSessionState;
import org.apache.hadoop.hive.common.io.SessionStream;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.ql.processors.CommandProcessorException;
import org.apache.hadoop.hive.ql.session.SessionState;

/** Runs the statements of standard input, one a line. After each comes a line "==ok" or "==failed". */
public class Statements {
    public static void main(String[] arguments) throws Exception {
        CliSessionState session = new CliSessionState(new HiveConf(SessionState.class));
        SessionStream out = new SessionStream(System.out, true, "UTF-8");
        session.in = System.in;
        session.out = out;
        session.info = new SessionStream(System.err, true, "UTF-8");
        session.err = out;
        session.setIsSilent(true);
        SessionState.start(session);
        CliDriver driver = new CliDriver();
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("==ok");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            boolean good = true;
            try {
                driver.processLine(line);
            } catch (CommandProcessorException error) {
                System.out.println(error.getMessage());
                good = false;
            }
            System.out.flush();
            System.out.println(good ? "==ok" : "==failed");
        }
        session.close();
    }
}
