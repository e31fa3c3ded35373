import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hive.ql.io.AcidUtils;
import org.apache.hadoop.hive.ql.io.orc.OrcInputFormat;
import org.apache.hadoop.hive.ql.io.orc.OrcStruct;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspectorUtils;
import org.apache.hadoop.hive.serde2.objectinspector.StructObjectInspector;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfoUtils;
import org.apache.hadoop.io.NullWritable;
import org.apache.hadoop.mapred.InputSplit;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.RecordReader;
import org.apache.hadoop.mapred.Reporter;

/**
 * Reads directories of tables with the reader of Hive's MapReduce jobs. A line of the input is a
 * directory, the names and the types of the columns, and the lists of valid write ids and
 * transactions, with tabs between them. The answer is a line for each row, as Hive's CLI prints it,
 * and "==ok" or "==failed".
 */
public class ReadDirectories {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                for (String row : read(line.split("\t", -1))) {
                    out.println(row);
                }
                out.println("==ok");
            } catch (Throwable error) {
                error.printStackTrace();
                out.println(error.toString().replace('\n', ' '));
                out.println("==failed");
            }
        }
    }

    static List<String> read(String[] asked) throws Exception {
        JobConf job = new JobConf(new Configuration());
        job.set("fs.defaultFS", "file:///");
        job.set("mapreduce.input.fileinputformat.inputdir", "file://" + asked[0]);
        for (String prefix : new String[] {"", "schema.evolution."}) {
            job.set(prefix + "columns", asked[1]);
            job.set(prefix + "columns.types", asked[2]);
        }
        job.set("transactional", "true");
        job.set("transactional_properties", "default");
        job.set("hive.transactional.table.scan", "true");
        job.set("hive.acid.table.scan", "true");
        job.set("hive.txn.valid.writeids", asked[3]);
        job.set("hive.txn.valid.txns", asked[4]);
        job.set("hive.vectorized.execution.enabled", "false");
        AcidUtils.setAcidOperationalProperties(
                job, true, AcidUtils.AcidOperationalProperties.getDefault());
        StructObjectInspector inspector =
                (StructObjectInspector)
                        OrcStruct.createObjectInspector(struct(asked[1], asked[2]));
        OrcInputFormat format = new OrcInputFormat();
        List<String> rows = new ArrayList<>();
        for (InputSplit split : format.getSplits(job, 1)) {
            RecordReader<NullWritable, OrcStruct> reader =
                    format.getRecordReader(split, job, Reporter.NULL);
            NullWritable key = reader.createKey();
            OrcStruct value = reader.createValue();
            while (reader.next(key, value)) {
                rows.add(text(ObjectInspectorUtils.copyToStandardJavaObject(value, inspector)));
            }
            reader.close();
        }
        return rows;
    }

    static String text(Object row) {
        List<String> values = new ArrayList<>();
        for (Object value : (List<?>) row) {
            if (value == null) {
                values.add("NULL");
            } else if (value instanceof byte[]) {
                values.add(new String((byte[]) value, StandardCharsets.UTF_8));
            } else {
                values.add(value.toString());
            }
        }
        return String.join("\t", values);
    }

    static TypeInfo struct(String names, String types) {
        List<TypeInfo> kinds = TypeInfoUtils.getTypeInfosFromTypeString(types);
        List<String> fields = new ArrayList<>();
        for (String name : names.split(",")) {
            fields.add(name + ":" + kinds.get(fields.size()).getTypeName());
        }
        return TypeInfoUtils.getTypeInfoFromTypeString("struct<" + String.join(",", fields) + ">");
    }
}
