package acidplatform;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.orc.OrcFileFormat;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/** Spark's file format for the ACID files of a snapshot, whose live rows it reads as flat columns. */
public final class AcidFileFormat extends OrcFileFormat {
  private final SnapshotFiles snapshot;
  private final String[] virtual;
  private transient Broadcast tests;

  AcidFileFormat(SnapshotFiles snapshot, String[] virtual) {
    this.snapshot = snapshot;
    this.virtual = virtual;
  }

  public String shortName() {
    return "acid";
  }

  public String toString() {
    return "ACID";
  }

  /** Files of equal snapshots are equal: Spark takes the result of an equal scan for that of this one. */
  public boolean equals(Object other) {
    return other instanceof AcidFileFormat && snapshot.equals(((AcidFileFormat) other).snapshot);
  }

  public int hashCode() {
    return snapshot.hashCode();
  }

  public boolean isSplitable(SparkSession session, Map options, Path path) {
    return true;
  }

  /** The columns may be of several classes, so Spark's code is not compiled for one. */
  public Option vectorTypes(StructType required, StructType partition, SQLConf conf) {
    return Option.empty();
  }

  /** Without the time of modification, which is not known. */
  public Seq metadataSchemaFields() {
    List fields = new ArrayList();
    Iterator all = CollectionConverters.asJava(super.metadataSchemaFields()).iterator();
    while (all.hasNext()) {
      StructField field = (StructField) all.next();
      if (!field.name().equals(FileFormat.FILE_MODIFICATION_TIME())) {
        fields.add(field);
      }
    }
    return SnapshotFiles.seq(fields);
  }

  public Function1 buildReaderWithPartitionValues(
      SparkSession session, StructType data, StructType partition, StructType required, Seq filters, Map options,
      Configuration conf) {
    SQLConf settings = session.sessionState().conf();
    AskedColumns asked = new AskedColumns(required, partition, virtual);
    List usable = new ArrayList();
    Iterator all = CollectionConverters.asJava(filters).iterator();
    while (settings.orcFilterPushDown() && all.hasNext()) {
      Object filter = all.next();
      if (ExactFilters.isExact(asked.stored, filter)) {
        usable.add(filter);
      }
    }
    Option batches = options.get(FileFormat.OPTION_RETURNING_BATCH());
    return new OpenFile(
        tests(session),
        session.sparkContext().broadcast(new SerializableConfiguration(conf), ofClass(SerializableConfiguration.class)),
        asked,
        SnapshotFiles.seq(usable),
        batches.isDefined() && batches.get().equals("true"),
        settings.orcVectorizedReaderBatchSize());
  }

  private synchronized Broadcast tests(SparkSession session) {
    if (tests == null) {
      tests = session.sparkContext().broadcast(snapshot.tests(), ofClass(RowTests.class));
    }
    return tests;
  }

  private static ClassTag ofClass(Class one) {
    return ClassTag$.MODULE$.apply(one);
  }
}
