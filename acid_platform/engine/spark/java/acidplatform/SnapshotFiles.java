package acidplatform;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.paths.SparkPath;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Predicate;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The ACID files of a snapshot by partition, as Spark's planner asks for them; nothing is listed again. */
public final class SnapshotFiles implements FileIndex {
  /** Under this key Spark's metadata of a file has our AcidFile. */
  static final String FACTS = "acid_file";

  private final String identity;
  private final Path location;
  private final StructType partitionSchema;
  private final InternalRow[] values;
  private final Path[] paths;
  private final AcidFile[] files;
  private final RowTests tests;
  /** The files by partition, as Spark takes them; made when they are first asked for. */
  private transient PartitionDirectory[] directories;

  /**
   * `identity`: a digest of all that the rows depend on. `texts`: the values of the partition columns of each partition in turn: `=` and
   * the value as the directory's name has it, or `-` for NULL. `numbers`: what live_rows.py writes.
   */
  public SnapshotFiles(
      String identity, String location, String[] uris, StructType partitionSchema, String[] texts, String zone,
      byte[] numbers) {
    this.identity = identity;
    this.location = new Path(location);
    this.partitionSchema = partitionSchema;
    LongBuffer in = ByteBuffer.wrap(numbers).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer();
    values = new InternalRow[(int) in.get()];
    files = new AcidFile[uris.length];
    paths = new Path[uris.length];
    for (int i = 0; i < uris.length; i++) {
      files[i] = new AcidFile(in);
      paths[i] = new Path(uris[i]);
    }
    tests = new RowTests(in, values.length);
    int width = partitionSchema.length();
    for (int i = 0; i < values.length; i++) {
      Object[] row = new Object[width];
      for (int j = 0; j < width; j++) {
        String text = texts[i * width + j];
        UTF8String value = text.startsWith("=") ? UTF8String.fromString(text.substring(1)) : null;
        Literal literal = new Literal(value, DataTypes.StringType);
        DataType type = partitionSchema.fields()[j].dataType();
        row[j] = new Cast(literal, type, Option.apply(zone), EvalMode$.MODULE$.TRY()).eval(InternalRow.empty());
      }
      values[i] = new GenericInternalRow(row);
    }
  }

  /**
   * A frame of the live rows. `data`: columns of the files, and any of the four named in `virtual`: write id, bucket
   * property and row id of a row's key, and the ordinal of its partition. Whatever the session says, a file that is
   * gone or corrupt fails the read (P12).
   */
  public Object frame(SparkSession session, StructType data, String[] virtual) {
    Map options = (Map) Map$.MODULE$.empty().updated("ignoreMissingFiles", "false");
    options = (Map) options.updated("ignoreCorruptFiles", "false");
    return session.baseRelationToDataFrame(
        new HadoopFsRelation(
            this, partitionSchema, data, Option.empty(), new AcidFileFormat(this, virtual), options, session));
  }

  RowTests tests() {
    return tests;
  }

  public Seq rootPaths() {
    return seq(Arrays.asList(new Object[] {location}));
  }

  public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
    List predicates = new ArrayList();
    Iterator filters = CollectionConverters.asJava(partitionFilters).iterator();
    while (filters.hasNext()) {
      Expression filter = (Expression) filters.next();
      predicates.add(Predicate.createInterpreted((Expression) filter.transform(new Bound())));
    }
    PartitionDirectory[] all = directories();
    List chosen = new ArrayList();
    for (int i = 0; i < all.length; i++) {
      boolean included = all[i] != null;
      for (int p = 0; included && p < predicates.size(); p++) {
        included = ((BasePredicate) predicates.get(p)).eval(values[i]);
      }
      if (included) {
        chosen.add(all[i]);
      }
    }
    return seq(chosen);
  }

  private synchronized PartitionDirectory[] directories() {
    if (directories == null) {
      List[] byPartition = new List[values.length];
      for (int i = 0; i < files.length; i++) {
        int partition = files[i].partition;
        if (byPartition[partition] == null) {
          byPartition[partition] = new ArrayList();
        }
        FileStatus status = new FileStatus(files[i].size, false, 1, files[i].size, 0, paths[i]);
        Map facts = (Map) Map$.MODULE$.empty().updated(FACTS, files[i]);
        byPartition[partition].add(new FileStatusWithMetadata(status, facts));
      }
      directories = new PartitionDirectory[values.length];
      for (int i = 0; i < values.length; i++) {
        directories[i] = byPartition[i] == null ? null : new PartitionDirectory(values[i], seq(byPartition[i]));
      }
    }
    return directories;
  }

  public String[] inputFiles() {
    String[] encoded = new String[paths.length];
    for (int i = 0; i < paths.length; i++) {
      encoded[i] = SparkPath.fromPath(paths[i]).urlEncoded();
    }
    return encoded;
  }

  public void refresh() {}

  public long sizeInBytes() {
    long sum = 0;
    for (int i = 0; i < files.length; i++) {
      sum += files[i].size;
    }
    return sum;
  }

  public StructType partitionSchema() {
    return partitionSchema;
  }

  public boolean equals(Object other) {
    return other instanceof SnapshotFiles && identity.equals(((SnapshotFiles) other).identity);
  }

  public int hashCode() {
    return identity.hashCode();
  }

  static Seq seq(List items) {
    return CollectionConverters.asScala(items).toSeq();
  }

  /** Replaces a partition column in a filter by its place in a partition's values. */
  private final class Bound extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return node instanceof Attribute && place((Attribute) node) >= 0;
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (!isDefinedAt(node)) {
        return otherwise.apply(node);
      }
      Attribute column = (Attribute) node;
      return new BoundReference(place(column), column.dataType(), true);
    }

    private int place(Attribute column) {
      for (int i = 0; i < partitionSchema.length(); i++) {
        if (partitionSchema.fields()[i].name().equalsIgnoreCase(column.name())) {
          return i;
        }
      }
      return -1;
    }
  }
}
